"""Rewriting a small file in place, so that its inode stays the same.

A container into which a single file is bind-mounted refers to the inode: if a new file were renamed to the path, the
container would still see the old file. A lock (`flock`) lets readers see either the old or the new bytes, if the file
system has locks.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")


def read_status(path: Path) -> tuple[os.stat_result, bytes]:
    """Return a file's status before the read, and its bytes; raise `BlockingIOError` while it is being written."""
    with path.open("rb") as file:
        _lock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        return os.fstat(file.fileno()), file.read()


def is_bound(path: Path, mounts: Path = MOUNTS) -> bool:
    """Return whether the file at `path` is itself a mount point; always False where `mounts` is missing (not Linux)."""
    if not mounts.exists():
        return False
    target = os.fsencode(path.resolve())
    points = (line.split(b" ")[4] for line in mounts.read_bytes().splitlines())
    return any(
        re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]), one) == target for one in points
    )


def rewrite(path: Path, fresh: Path, change: Callable[[bytes | None], bytes]) -> None:
    """Durably replace the file's bytes by `change(bytes)`; if there is no file, create it from `change(None)`.

    `fresh` is a path in the same folder for the new bytes while they are written. It also is the lock of writers: if it
    exists, `FileExistsError` is raised. After an error the file is unchanged.
    """
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            old = path.read_bytes() if path.exists() else None
            new = change(old)
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        if old is None:
            fresh.replace(path)
        else:
            _overwrite(path, old, new)
            fresh.unlink()
    except BaseException:
        fresh.unlink()
        raise
    _sync_folder(path.parent)


def _overwrite(path: Path, old: bytes, new: bytes) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        _lock(descriptor, fcntl.LOCK_EX)
        os.fchmod(descriptor, 0o600)
        before = os.fstat(descriptor).st_mtime_ns
        try:
            _put(descriptor, new)
        except BaseException:
            _put(descriptor, old)
            raise
        after = os.fstat(descriptor)
        # Readers detect changes by the time, so two edits within one tick of the file system's clock must differ.
        os.utime(descriptor, ns=(after.st_atime_ns, max(after.st_mtime_ns, before + 1)))
    finally:
        os.close(descriptor)


def _put(descriptor: int, data: bytes) -> None:
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)


def _lock(descriptor: int, operation: int) -> None:
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        raise
    except OSError:
        return  # no locks on this file system: a reader of a partial file reads it again, because its mtime changes


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
