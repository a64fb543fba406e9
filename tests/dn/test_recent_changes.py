"""The last changes of domains."""

from __future__ import annotations

import pytest

from hsparse.dn import records as recent_changes
from hsparse.dn.records import RecentChanges
from hsparse.model.ids import new_id, new_root_id
from tests.testing.manual_clock import ManualClock

CLOCK = ManualClock()


def test_a_change_is_recent_until_its_time_is_over_or_it_is_settled() -> None:
    clock = ManualClock()
    changes, root, other = RecentChanges(clock), new_root_id(CLOCK), new_root_id(CLOCK)
    assert not changes.within(root, 10)
    changes.note(new_id("datasets", root, CLOCK))
    clock.time += 9
    assert changes.within(root, 10)
    assert not changes.within(other, 10)
    clock.time += 1
    assert not changes.within(root, 10)
    changes.note(root)
    changes.settle(root)
    assert not changes.within(root, 10)


def test_the_domains_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_changes, "MAX_DOMAINS", 2)
    changes, roots = RecentChanges(CLOCK), [new_root_id(CLOCK) for _ in range(3)]
    for root in (*roots[:2], roots[0], roots[2]):
        changes.note(root)
    assert [changes.within(root, 10) for root in roots] == [True, False, True]
