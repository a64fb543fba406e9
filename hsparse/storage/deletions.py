"""Marks of deletions that a log of puts does not know: without one, a recovery would put the object again.

A mark is a file of 8 bytes, a modification time in nanoseconds (u64 little-endian), named by the SHA-256 of the
key: nothing that was put or logged before the deletion has a later one. It is needed while any log may hold a
record that is not later.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hsparse.storage.posix_file import open_directory
from hsparse.storage.posix_root import PosixRoot
from hsparse.storage.put_log import log_paths, started_durably


def mark_deletion(root: PosixRoot, key: str, mtime_ns: int) -> None:
    """Mark, durably, that what a log may hold of `key` up to this modification time is not to be put again.

    Called under the key's lock, before the file is removed.
    """
    started = _started(root)
    if not started or mtime_ns < min(started):
        return
    _folder(root).mkdir(exist_ok=True)
    with _locked(root, fcntl.LOCK_SH) as folder:
        # Not truncated: the mark that is there counts until this one has reached the disk.
        path = _folder(root) / _name(key)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.pwrite(file, max(mtime_ns, deleted_at(root, key)).to_bytes(8, "little"), 0)
            root.sync(file)
        finally:
            os.close(file)
        root.sync(folder)
    root.sync_directory(root.own)


def deleted_at(root: PosixRoot, key: str) -> int:
    """Return the modification time of the file of `key` whose deletion is marked, or 0."""
    try:
        return int.from_bytes((_folder(root) / _name(key)).read_bytes(), "little")
    except FileNotFoundError:
        return 0


def forget_deletions(root: PosixRoot) -> None:
    """Remove the marks that are earlier than all that any log may hold; not while a mark is being made."""
    with suppress(FileNotFoundError, BlockingIOError), _locked(root, fcntl.LOCK_EX | fcntl.LOCK_NB):
        floor = min(_started(root), default=None)
        for path in _folder(root).iterdir():
            if floor is None or int.from_bytes(path.read_bytes(), "little") < floor:
                path.unlink()


def _started(root: PosixRoot) -> list[int]:
    return [began for path in log_paths(root) if (began := started_durably(path)) is not None]


@contextmanager
def _locked(root: PosixRoot, operation: int) -> Iterator[int]:
    """Hold a lock on the directory of marks, as its open file descriptor."""
    folder = open_directory(str(_folder(root)))
    try:
        fcntl.flock(folder, operation)
        yield folder
    finally:
        os.close(folder)


def _folder(root: PosixRoot) -> Path:
    return Path(root.own, "deletions")


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
