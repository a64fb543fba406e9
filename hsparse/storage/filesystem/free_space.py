"""Free space that puts leave on a file system, so that what is stored can still be changed and deleted."""

from __future__ import annotations

import math
import os

from hsparse.errors import StoreFailed

SMALL = 64 * 1024
"""Objects of fewer bytes, such as records, may use all of the reserve but a quarter: deleting puts notes."""
PART = 20
"""A reserve is at most this part of the file system."""
SECONDS = 1.0
"""How long what was free stands, less what was put since."""
MIB = 1024 * 1024


class FreeSpace:
    """The free space of the file system that has the directory `path`, of which `reserve` bytes are kept free."""

    def __init__(self, path: str, reserve: int) -> None:
        self._path = path
        self._reserve = self._wanted = reserve
        self._free = 0
        self._seen_at = math.inf

    def is_outdated(self, now: float) -> bool:
        """Say whether `look` should be called first; `now` is in seconds."""
        return bool(self._wanted) and not 0 <= now - self._seen_at < SECONDS

    def look(self, now: float) -> None:
        """Ask the file system, which blocks."""
        status = os.statvfs(self._path)
        self._reserve = min(self._wanted, status.f_blocks * status.f_frsize // PART)
        self._free = status.f_bavail * status.f_frsize
        self._seen_at = now

    def take(self, nbytes: int, store: str) -> None:
        """Count a put of so many bytes; `StoreFailed` if it would leave less than the reserve."""
        if not self._wanted:
            return
        keep = self._reserve if nbytes >= SMALL else self._reserve // 4
        if self._free - nbytes < keep:
            raise StoreFailed(
                f"The store {store!r} has {self._free // MIB} MiB free and keeps {self._reserve // MIB} MiB "
                "(reserve_size), so that data can be deleted; free space on its file system. Nothing was stored."
            )
        self._free -= nbytes
