"""Deletion markers keep a recovery from restoring deleted objects from a write-ahead log.

A marker consists of the SHA-256 of a key and a modification time in nanoseconds: log records of the key up to that time
must not be restored. The marker is needed while any log may hold such a record. Markers written
together form one file in `.hsparse/deletions`, 40 bytes each: the 32 bytes of the hash, then the time as u64
little-endian. Version 0.1 wrote one file per marker: 8 bytes with the time, named by the hash in hexadecimal.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from hsparse.storage.filesystem.object_file import (
    DIRECTORY_MODE,
    FILE_MODE,
    open_directory,
    unlink_if_exists,
    write_all,
)
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.wal.write_ahead_log import log_paths, started_durably

MARKER = struct.Struct("<32sQ")


class DeletionMarkers:
    """The markers in a store; each file is read once."""

    def __init__(self, root: RootDirectory) -> None:
        self._folder = _marker_folder(root)
        self._sizes: dict[str, int] = {}
        self._times: dict[bytes, int] = {}

    def cover(self, key: str, date: int) -> bool:
        """Tell whether a record of `key` with this date must not be restored; call under the key's lock.

        New marker files are read only if no known marker covers the record.
        """
        name = _hash(key)
        if self._times.get(name, -1) < date:
            self._look()
        return self._times.get(name, -1) >= date

    def _look(self) -> None:
        """Read the files that are new or have grown."""
        with suppress(FileNotFoundError), os.scandir(self._folder) as files:
            for file in files:
                with suppress(FileNotFoundError):  # removed, as no log has such records any more
                    if self._sizes.get(file.name) == file.stat().st_size:
                        continue
                    content = Path(file.path).read_bytes()
                    self._sizes[file.name] = len(content)
                    for name, time in _markers(file.name, content):
                        self._times[name] = max(time, self._times.get(name, -1))


def write_deletion_marker(root: RootDirectory, key: str, mtime_ns: int) -> None:
    """Mark durably that records of `key` up to this modification time must not be restored.

    Call under the key's lock, before the file is removed. No marker is written if no log can hold such a record.
    """
    started = _log_starts(root)
    if started and mtime_ns >= min(started):
        write_deletion_markers(root, {key: mtime_ns})


def write_deletion_markers(root: RootDirectory, times: Mapping[str, int]) -> None:
    """Mark durably that records of each key up to its modification time must not be restored.

    Call under the keys' locks, before the files are removed.
    """
    folder = _marker_folder(root)
    folder.mkdir(DIRECTORY_MODE, exist_ok=True)
    path = f"{folder}/{token_hex(8)}"
    with _locked_markers(root, fcntl.LOCK_SH) as directory:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            write_all(file, b"".join(MARKER.pack(_hash(key), time) for key, time in times.items()))
            root.sync(file)
        except BaseException:
            with suppress(OSError):  # the disk fails: the object is not deleted, so the marker is not needed
                unlink_if_exists(path)
            raise
        finally:
            os.close(file)
        root.sync(directory)
    root.sync_directory(root.internal)


def remove_old_deletion_markers(root: RootDirectory) -> None:
    """Remove marker files whose times are before the start of every log; do nothing while a file is being written."""
    with suppress(FileNotFoundError, BlockingIOError), _locked_markers(root, fcntl.LOCK_EX | fcntl.LOCK_NB):
        floor = min(_log_starts(root), default=None)
        for path in _marker_folder(root).iterdir():
            if floor is None or all(time < floor for _, time in _markers(path.name, path.read_bytes())):
                path.unlink()


def _markers(name: str, content: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the hash and the time of each whole marker in a file."""
    if len(name) == 2 * hashlib.sha256().digest_size:
        yield bytes.fromhex(name), int.from_bytes(content, "little")
        return
    whole = len(content) - len(content) % MARKER.size
    yield from MARKER.iter_unpack(content[:whole])


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _log_starts(root: RootDirectory) -> list[int]:
    return [began for path in log_paths(root) if (began := started_durably(path)) is not None]


@contextmanager
def _locked_markers(root: RootDirectory, operation: int) -> Iterator[int]:
    """Hold the `flock` lock `operation` on the directory of markers during the context; yield its descriptor."""
    folder = open_directory(str(_marker_folder(root)))
    try:
        fcntl.flock(folder, operation)
        yield folder
    finally:
        os.close(folder)


def _marker_folder(root: RootDirectory) -> Path:
    return Path(root.internal, "deletions")
