"""A client beside an attack, in a process of its own: how long `/about` takes, and how much memory the server has."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from multiprocessing.connection import Connection, Pipe
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.server_process import STARTS

EVERY = 0.02
"""Seconds from one request to the next."""


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What was seen: seconds of each answer, how many requests had none, and the most bytes the server had."""

    seconds: tuple[float, ...]
    unanswered: int
    memory: int

    @property
    def p99(self) -> float:
        """Return the seconds in which all but one of a hundred answers came."""
        ordered = sorted(self.seconds)
        return ordered[int(0.99 * (len(ordered) - 1))] if ordered else float("inf")


class Witness:
    """A process that looks at the server at `url`, whose processes these are, until it is asked what it saw."""

    def __init__(self, url: str, processes: Sequence[int]) -> None:
        self._connection, far = Pipe()
        self._process: ForkServerProcess = STARTS.Process(
            target=_watch, args=(url, tuple(processes), far), daemon=True
        )
        self._process.start()
        far.close()
        self._connection.recv()

    def witnessed(self) -> Witnessed:
        """End the process, and return what it saw."""
        self._connection.send(None)
        seen = self._connection.recv()
        self._process.join()
        self._process.close()
        assert isinstance(seen, Witnessed)
        return seen


def memory_of(processes: Sequence[int]) -> int:
    """Return the bytes of memory that processes have, by proc(5); those that have ended have none."""
    pages = 0
    for process in processes:
        with suppress(FileNotFoundError, ProcessLookupError):
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _watch(url: str, processes: tuple[int, ...], connection: Connection) -> None:
    parts = urlsplit(url)
    client = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    seconds, unanswered, memory = [], 0, memory_of(processes)
    connection.send(None)
    ended = False
    while not ended:
        began = time.perf_counter()
        try:
            client.request("GET", "/about")
            answer = client.getresponse()
            answer.read()
            unanswered += answer.status != 200
            seconds.append(time.perf_counter() - began)
        except (OSError, HTTPException):
            unanswered += 1
            client.close()
        memory = max(memory, memory_of(processes))
        ended = connection.poll(EVERY)
    client.close()
    connection.send(Witnessed(tuple(seconds), unanswered, memory))
