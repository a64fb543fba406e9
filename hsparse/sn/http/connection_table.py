"""The connections of a server, at most so many: a new one takes the place of the one whose client is silent longest.

Connections that send nothing cost a client nothing. So they are not refused, which would keep honest clients out as
well, but give way. A connection is not closed while its request is worked on.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
from collections import OrderedDict
from typing import Protocol

log = logging.getLogger(__name__)

MOST = 10_000
"""The most connections where none are configured: each takes some 20 KiB."""
QUIET = 60.0
"""Seconds between two lines of the log about connections that gave way."""


class Closable(Protocol):
    """A connection; `waits` says whether it waits for its client to send something."""

    waits: bool

    def abort(self) -> None:
        """Close it at once."""
        ...


class ConnectionTable:
    """The open connections of a server, those that were heard of last at the end; 0 is a limit by open files."""

    def __init__(self, limit: int) -> None:
        self._limit = limit or limit_by_files()
        self._open: OrderedDict[Closable, None] = OrderedDict()
        self._logged_at = -math.inf

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Closable) -> bool:
        """Add a connection; False if there are too many, all of which are worked for."""
        if len(self._open) >= self._limit:
            silent = next((one for one in self._open if one.waits), None)
            self._log()
            if silent is None:
                return False
            self.remove(silent)
            silent.abort()
        self._open[connection] = None
        return True

    def hear(self, connection: Closable) -> None:
        """Note that the client has sent something, or that its request was answered."""
        if connection in self._open:
            self._open.move_to_end(connection)

    def remove(self, connection: Closable) -> None:
        """Forget a connection; nothing for one that is not there."""
        self._open.pop(connection, None)

    def _log(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._logged_at + QUIET:
            self._logged_at = now
            log.warning(
                "There are %d connections, the limit (max_connections): silent ones are closed for new ones.",
                self._limit,
            )


def limit_by_files() -> int:
    """Return how many connections leave the process enough descriptors for files and the store."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, max(1, soft * 3 // 4))
