"""A write that is sent again is applied before what came after it, whatever the order in which both arrive."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.dn import redo_log
from hsparse.dn.cached_object import Encoded
from hsparse.dn.membership.member_ownership import Accepted, MemberOwnership, Resent
from hsparse.dn.redo_log import LOGGED_SECONDS, Change, RedoLog
from tests.testing.manual_clock import ManualClock

Chunk = dict[int, int]


class Node:
    """Chunks over a `RedoLog` in an epoch; its monotonic clock begins at 0."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.started = self.clock.monotonic()
        self.log = RedoLog(self.clock)
        self.chunks: dict[str, Chunk] = {}

    def accept(self, change: Change, resent: tuple[int, float] | None = None, key: str = "k") -> Change:
        first = None if resent is None else Resent(resent[0], self.started + resent[1])
        return self.log.logged(key, change, 10, Accepted(0, 5, first))

    def write(self, values: Chunk, resent: tuple[int, float] | None = None, key: str = "k") -> Change:
        change = self.accept(setting(values), resent, key)
        self.chunks[key], _ = change(self.chunks.get(key, {}))
        return change


def setting(values: Chunk) -> Change:
    return lambda chunk: ({**chunk, **values}, len(values))


def test_a_write_that_is_sent_again_does_not_undo_what_came_after_it() -> None:
    node = Node()
    node.clock.time += 10
    node.write({0: 1, 1: 1})
    node.write({0: 2, 2: 2}, resent=(4, 9))
    assert node.chunks["k"] == {0: 1, 1: 1, 2: 2}
    node.write({0: 3, 2: 3}, resent=(4, 8))
    assert node.chunks["k"] == {0: 1, 1: 1, 2: 2}
    node.write({0: 4, 2: 4}, resent=(4, 9.5))
    assert node.chunks["k"] == {0: 1, 1: 1, 2: 4}


@pytest.mark.parametrize("resent", [None, (4, 10.5), (5, 9.0)], ids=["none", "asked for later", "sent later"])
def test_a_write_that_came_later_is_applied_last(resent: tuple[int, float] | None) -> None:
    node = Node()
    node.clock.time += 10
    node.write({0: 1})
    node.clock.time += 1
    node.write({0: 2}, resent)
    assert node.chunks["k"] == {0: 2}


def test_a_change_that_is_applied_again_has_the_same_place() -> None:
    """Another node has put in between: what came into the queue meanwhile is applied after it anyway."""
    node = Node()
    node.clock.time += 10
    node.write({0: 1})
    resent = node.accept(setting({0: 2, 1: 2}), (4, 9))
    assert resent({}) == ({0: 1, 1: 2}, 2)
    node.write({1: 3})
    assert resent({5: 5}) == ({0: 1, 1: 2, 5: 5}, 2)


def test_an_encoded_value_is_changed_on() -> None:
    node = Node()
    node.clock.time += 10
    node.write({0: 1})
    direct = node.accept(lambda chunk: (Encoded({0: 2, 1: 2}, b""), None), (4, 9))
    assert direct({7: 7}) == ({0: 1, 1: 2}, None)


def test_changes_are_forgotten_where_another_node_may_have_been_the_owner() -> None:
    node = Node()
    node.clock.time += 10
    for key in ("kept", "lost"):
        node.write({0: 1}, key=key)
    under_way = node.accept(setting({0: 2}), key="lost")
    node.log.forget(lambda key: key == "kept")
    under_way({})
    for key in ("kept", "lost"):
        node.write({0: 3}, (4, 9), key)
    assert node.chunks == {"kept": {0: 1}, "lost": {0: 3}}


def test_a_change_that_was_refused_is_no_change() -> None:
    node = Node()
    node.clock.time += 10
    node.log.remove(node.write({0: 1}))
    node.write({0: 2}, (4, 9))
    assert node.chunks["k"] == {0: 2}


def test_changes_are_remembered_for_a_time_and_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redo_log, "MAX_LOG_BYTES", 25)
    node = Node()
    node.clock.time += 10
    for key in ("a", "b", "c"):
        node.write({0: 1}, key=key)
    for key in ("a", "c"):
        node.write({0: 2}, (4, 9), key)
    assert (node.chunks["a"], node.chunks["c"]) == ({0: 2}, {0: 1})
    node.clock.time += LOGGED_SECONDS + 1
    change = setting({0: 1})
    assert node.accept(change) is change


def test_a_server_remembers_nothing() -> None:
    """Nothing is sent to it again."""
    log, accepted = RedoLog(ManualClock()), MemberOwnership(lambda: True, server=True).accept()
    change = setting({0: 1})
    assert log.logged("k", change, 1, accepted) is change


@given(st.data())
def test_writes_end_up_in_the_order_in_which_they_were_asked_for(data: Any) -> None:
    """Writes of a lost owner arrive in any order between those of this one."""
    node, expected = Node(), dict[int, int]()
    writes = data.draw(st.lists(st.dictionaries(st.integers(0, 3), st.integers()), max_size=6))
    resent = [(write, (4, float(at))) for at, write in enumerate(writes)]
    certain = data.draw(st.lists(st.dictionaries(st.integers(0, 3), st.integers()), max_size=4))
    node.clock.time += 100
    arrivals = data.draw(st.permutations([*resent, *((None, None) for _ in certain)]))
    rest = iter(certain)
    for write, first in arrivals:
        node.clock.time += 1
        node.write(next(rest) if write is None else write, first)
    for write in (*writes, *certain):
        expected |= write
    assert node.chunks.get("k", {}) == expected
