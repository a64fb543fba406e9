"""Progress of long work: a bar of tqdm or rich on a terminal, or a function of the caller.

What is read from a server passes many functions, some in threads. So a read is shown by a context variable: `show_read`
sets it, what receives values takes `received()` when it begins, and calls that with the bytes that it has.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeAlias, TypeVar

from hsparse.errors import Misconfigured
from hsparse.optional_module import OptionalModule

Report: TypeAlias = Callable[[int, int], None]
"""Called with the bytes that are done, and their total; of an iteration with rows."""
Progress: TypeAlias = "Report | bool | None"
"""A function; True for a bar; None for a bar on a terminal, if tqdm or rich is installed; False for none."""
TQDM = OptionalModule("tqdm", "anndata")
RICH = OptionalModule("rich.progress", "anndata")
Advance: TypeAlias = Callable[[int], None]
LONG = 256 << 20
"""Bytes that a read may have to be shown on a terminal without being asked to."""
PIECE = 1 << 20
T = TypeVar("T")


class Answer(Protocol):
    """What is read until it is empty."""

    def read(self, size: int | None = None, /) -> bytes: ...

    def readinto(self, data: memoryview, /) -> int: ...


def ignore(nbytes: int) -> None:
    """Show nothing."""


_RECEIVED: ContextVar[Advance] = ContextVar("received", default=ignore)


def is_visible(progress: Progress) -> bool:
    """Say whether there is anything to show progress to."""
    return callable(progress) or bool(progress) or (progress is None and sys.stderr.isatty())


@contextmanager
def show_progress(progress: Progress, title: str, total: int, unit: str = "B") -> Iterator[Advance]:
    """Yield a function that any thread calls with the number of bytes, or of another unit, that it has done."""
    if not is_visible(progress):
        yield ignore
        return
    done = 0
    lock = threading.Lock()
    with _report(progress, title, total, unit) as report:

        def advance(count: int) -> None:
            nonlocal done
            with lock:
                done = min(done + count, total)
                report(done, total)

        yield advance


@contextmanager
def show_read(progress: Progress, title: str, most: int, total: Callable[[], int]) -> Iterator[None]:
    """Show what is received in the context: `total()` bytes, which is asked for only if it is shown.

    `most` is what that may be: a bar that nobody asked for is for long reads.
    """
    if not is_visible(progress) or (progress is None and most < LONG):
        yield
        return
    size = total()
    with show_progress(progress, title, size) as advance:
        token = _RECEIVED.set(advance)
        try:
            yield
        finally:
            _RECEIVED.reset(token)
        advance(size)  # what is received is not always as large as what it becomes


def received() -> Advance:
    """Return what takes the bytes that are received; any thread may call it."""
    return _RECEIVED.get()


def read_answer(answer: Answer) -> bytes:
    """Return what is left of an answer, read in pieces if that is shown."""
    advance = received()
    if advance is ignore:
        return answer.read()
    pieces = []
    while piece := answer.read(PIECE):
        pieces.append(piece)
        advance(len(piece))
    return b"".join(pieces)


def receive_into(answer: Answer, data: memoryview, advance: Advance = ignore) -> int:
    """Receive what comes next of an answer in `data`, and return how many bytes: fewer than it has only at the end."""
    at = 0
    while count := answer.readinto(data[at : at + PIECE]):
        at += count
        advance(count)
    return at


def show_rows(
    items: Iterator[T], progress: Progress, title: str, total: int, rows: Callable[[T], int]
) -> Iterator[T]:
    """Yield items, which have `total` rows, and show how many are done with."""
    with show_progress(progress, title, total, " rows") as advance:
        for item in items:
            count = rows(item)
            yield item
            advance(count)


@contextmanager
def _report(progress: Progress, title: str, total: int, unit: str) -> Iterator[Report]:
    if callable(progress):
        yield progress
        return
    with _bar(title, total, unit, needed=bool(progress)) as report:
        yield report


@contextmanager
def _bar(title: str, total: int, unit: str, *, needed: bool) -> Iterator[Report]:
    """Yield what moves a bar; `Misconfigured` if one is needed and there is neither tqdm nor rich."""
    try:
        tqdm = TQDM.load().tqdm
    except Misconfigured:
        tqdm = None
    if tqdm is not None:
        with tqdm(total=total, desc=title, unit=unit, unit_scale=True, file=sys.stderr) as bar:
            yield lambda done, _: bar.update(done - bar.n) and None
        return
    try:
        rich = RICH.load()
    except Misconfigured:
        if needed:
            raise
        yield lambda done, total: None
        return
    with rich.Progress(transient=True) as shown:
        task = shown.add_task(title, total=total)
        yield lambda done, _: shown.update(task, completed=done)
