"""Objects of a store in a directory that this process can read (docs/storage.md, "Directory")."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from hsparse.client.integrations.direct.object_reader import (
    ObjectChanged,
    ObjectPlace,
    ObjectReader,
    ObjectUnavailable,
)
from hsparse.storage.filesystem.object_file import file_etag, is_half_written, open_file, read_at

MARK = ".hsparse"
"""The directory at the root of every store."""
SMALL_OBJECT_BYTES = 32 * 1024
"""One thread reads objects that are smaller than this many bytes on average, because numpy holds Python's lock.
Measured: two threads take 1.5 times as long as one for objects of 4 KiB, and as long as one for objects of 70 KiB. Well
compressed objects take longer to decode, outside the lock.
"""
LOCAL_OPEN_SECONDS = 0.0002
"""If finding a file takes more than this many seconds, the directory is on a network: threads pay for small objects."""


class DirectoryObjects(ObjectReader):
    """Reads the files of a store; the server reads files that are being written, or that a crash left half written.

    The etag of a file consists of its modification time, size and inode. A file of another directory therefore never
    has the etag in the chunk map, and reading it raises `ObjectChanged`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.at_once = os.cpu_count() or 1

    def read(self, place: ObjectPlace) -> bytes:
        try:
            file = open_file(f"{self.root}/{place.key}")
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectChanged(place.key) from None
        except OSError as error:
            raise ObjectUnavailable(f"{place.key}: {error.strerror}") from error
        try:
            before = os.fstat(file)
            _check(before, place)
            data = read_at(file, 0, before.st_size)
            _check(os.fstat(file), place)  # it may have been written in place meanwhile
        except OSError as error:
            raise ObjectUnavailable(f"{place.key}: {error.strerror}") from error
        finally:
            os.close(file)
        if len(data) != before.st_size:
            raise ObjectUnavailable(f"{place.key} was cut short while it was read")
        return data

    def threads(self, places: Sequence[ObjectPlace]) -> int:
        """See `ObjectReader`; return 1 if the objects are small and the first object is found fast."""
        if not places or sum(place.size for place in places) >= SMALL_OBJECT_BYTES * len(places):
            return self.at_once
        began = time.perf_counter()
        os.path.exists(f"{self.root}/{places[0].key}")  # noqa: PTH110 - `Path.exists` raises if it is refused
        return 1 if time.perf_counter() - began < LOCAL_OPEN_SECONDS else self.at_once

    def close(self) -> None:
        """Do nothing, because no file is kept open."""


def is_store(root: Path) -> bool:
    """Return whether a directory is the root of a store; False if it is not accessible."""
    try:
        return (root / MARK).is_dir()
    except OSError:
        return False


def _check(status: os.stat_result, place: ObjectPlace) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ObjectChanged(place.key)
    if is_half_written(status):
        raise ObjectUnavailable(f"{place.key} is being written")
    if file_etag(status) != place.etag:
        raise ObjectChanged(place.key)
