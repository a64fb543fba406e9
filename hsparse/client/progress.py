"""Progress of long work: a bar of tqdm or rich on a terminal, or a function of the caller.

Reads pass through many functions, some in threads, so a context variable carries their progress: `show_read` sets it,
and code that receives values gets a function from `received()` and calls it with byte counts.
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
"""A function called with the finished and the total number of bytes, or of rows in iterations."""
Progress: TypeAlias = "Report | bool | None"
"""A function, True for a bar, False for nothing, or None for a bar on a terminal if tqdm or rich is installed."""
TQDM = OptionalModule("tqdm", "anndata")
RICH = OptionalModule("rich.progress", "anndata")
Advance: TypeAlias = Callable[[int], None]
MIN_BAR_BYTES = 256 << 20
"""The size in bytes from which a read shows a bar on a terminal by default."""
PIECE_BYTES = 1 << 20
T = TypeVar("T")


class Answer(Protocol):
    """A readable stream, such as an HTTP answer; `read` and `readinto` return nothing at its end."""

    def read(self, size: int | None = None, /) -> bytes: ...

    def readinto(self, data: memoryview, /) -> int: ...


def ignore(nbytes: int) -> None:
    """Ignore progress."""


_RECEIVED: ContextVar[Advance] = ContextVar("received", default=ignore)


def is_visible(progress: Progress) -> bool:
    """Return whether progress is shown anywhere: to a function, or as a bar."""
    return callable(progress) or bool(progress) or (progress is None and sys.stderr.isatty())


@contextmanager
def show_progress(progress: Progress, title: str, total: int, unit: str = "B") -> Iterator[Advance]:
    """Yield a thread-safe function that takes the number of bytes, or of `unit`, just finished."""
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
    """Show the progress of reads in the context, out of `total()` bytes; that is called only if progress is shown.

    `most` is an upper bound of the total. With the default, reads of fewer than `MIN_BAR_BYTES` bytes show nothing.
    """
    if not is_visible(progress) or (progress is None and most < MIN_BAR_BYTES):
        yield
        return
    size = total()
    with show_progress(progress, title, size) as advance:
        token = _RECEIVED.set(advance)
        try:
            yield
        finally:
            _RECEIVED.reset(token)
        advance(size)  # compressed answers are smaller than their values


def received() -> Advance:
    """Return the function that takes counts of received bytes; any thread may call it."""
    return _RECEIVED.get()


def read_answer(answer: Answer) -> bytes:
    """Return the rest of an answer, read in pieces if progress is shown."""
    advance = received()
    if advance is ignore:
        return answer.read()
    pieces = []
    while piece := answer.read(PIECE_BYTES):
        pieces.append(piece)
        advance(len(piece))
    return b"".join(pieces)


def receive_into(answer: Answer, data: memoryview, advance: Advance = ignore) -> int:
    """Fill `data` from an answer and return the number of bytes, which is smaller than `data` only at the end."""
    at = 0
    while count := answer.readinto(data[at : at + PIECE_BYTES]):
        at += count
        advance(count)
    return at


def show_rows(
    items: Iterator[T], progress: Progress, title: str, total: int, rows: Callable[[T], int]
) -> Iterator[T]:
    """Yield items, which have `total` rows in all, and show how many rows are finished."""
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
    """Yield a function that moves a bar; raise `Misconfigured` if a bar is `needed`, but tqdm and rich are missing."""
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
