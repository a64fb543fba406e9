from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.storage.deletions import deleted_at, forget_deletions, mark_deletion
from hsparse.storage.posix_root import PosixRoot
from hsparse.storage.put_log import PutLog


@pytest.fixture
def root(tmp_path: Path) -> PosixRoot:
    times = iter(range(1000, 10**6, 1000))
    made = PosixRoot(str(tmp_path), now_ns=lambda: next(times))
    made.make()
    return made


def test_no_log_needs_no_mark(root: PosixRoot) -> None:
    mark_deletion(root, "a", 10**9)
    assert deleted_at(root, "a") == 0


def test_what_is_older_than_every_log_needs_no_mark(root: PosixRoot) -> None:
    log = PutLog(root)
    mark_deletion(root, "a", log.started - 1)
    assert deleted_at(root, "a") == 0
    mark_deletion(root, "b", log.started)
    assert deleted_at(root, "b") == log.started
    mark_deletion(root, "b", log.started + 7)
    assert deleted_at(root, "b") == log.started + 7


def test_marks_go_when_no_log_can_hold_the_put(root: PosixRoot) -> None:
    first, second = PutLog(root), PutLog(root)
    mark_deletion(root, "a", second.started)
    first.empty()
    forget_deletions(root)
    assert deleted_at(root, "a") == second.started
    second.empty()
    forget_deletions(root)
    assert deleted_at(root, "a") == 0
    mark_deletion(root, "a", 10**9)
    first.remove()
    second.remove()
    forget_deletions(root)
    assert deleted_at(root, "a") == 0
