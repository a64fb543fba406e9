"""Marks of deletions that a log of puts does not know: without one, a recovery would put the object again.

A mark is a file of 8 bytes, the modification time in nanoseconds (u64 little-endian) of the file that was
deleted, named by the SHA-256 of the key. It is needed while any log may hold a record that is not later.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from hsparse.storage.posix_root import PosixRoot
from hsparse.storage.put_log import log_paths, started_durably


def mark_deletion(root: PosixRoot, key: str, mtime_ns: int) -> None:
    """Mark the deletion of a file of this modification time, durably, where a log may still hold its put.

    Called under the key's lock, before the file is removed.
    """
    started = [began for path in log_paths(root) if (began := started_durably(path)) is not None]
    if not started or mtime_ns < min(started):
        return
    folder = _folder(root)
    folder.mkdir(exist_ok=True)
    path = folder / _name(key)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        os.write(file, mtime_ns.to_bytes(8, "little"))
        root.sync(file)
    finally:
        os.close(file)
    root.sync_directory(str(folder))
    root.sync_directory(root.own)


def deleted_at(root: PosixRoot, key: str) -> int:
    """Return the modification time of the file of `key` whose deletion is marked, or 0."""
    try:
        return int.from_bytes((_folder(root) / _name(key)).read_bytes(), "little")
    except FileNotFoundError:
        return 0


def forget_deletions(root: PosixRoot) -> None:
    """Remove the marks that are earlier than all that any log may hold."""
    started = [began for path in log_paths(root) if (began := started_durably(path)) is not None]
    floor = min(started, default=None)
    with suppress(FileNotFoundError):
        for path in _folder(root).iterdir():
            with suppress(FileNotFoundError):  # another forgets too
                if floor is None or int.from_bytes(path.read_bytes(), "little") < floor:
                    path.unlink()


def _folder(root: PosixRoot) -> Path:
    return Path(root.own, "deletions")


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
