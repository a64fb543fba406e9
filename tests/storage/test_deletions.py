from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

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


def test_no_mark_goes_while_one_is_being_made(root: PosixRoot) -> None:
    """The one that is made may take the place of an old one that could go."""
    log = PutLog(root)
    began = log.started
    mark_deletion(root, "a", began)
    log.remove()
    folder = os.open(Path(root.own, "deletions"), os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    forget_deletions(root)
    assert deleted_at(root, "a") == began
    os.close(folder)
    forget_deletions(root)
    assert deleted_at(root, "a") == 0


def test_an_old_mark_counts_until_the_new_one_is_written(
    root: PosixRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PutLog(root)
    mark_deletion(root, "a", log.started + 7)

    def fail(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    for call in ("pwrite", "write"):
        monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="Input"):
        mark_deletion(root, "a", log.started + 8)
    assert deleted_at(root, "a") == log.started + 7


def test_a_log_whose_header_is_being_written_may_hold_anything(root: PosixRoot) -> None:
    log = PutLog(root)
    with Path(log.path).open("r+b") as file:
        file.seek(10)
        file.write(b"torn")
    mark_deletion(root, "a", 5)
    assert deleted_at(root, "a") == 5
