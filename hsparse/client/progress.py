"""Progress of long reads and writes: a bar of tqdm or rich on a terminal, or a function of the caller.

Reads pass through many functions, some in threads. A context variable has the function that counts bytes. `show_read`
sets the variable, and code that receives bytes calls the function that `received()` returns.
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
"""A function that is called with two numbers: the finished and all bytes or, in an iteration, rows."""
Progress: TypeAlias = "Report | bool | None"
"""A function; or True to show a bar; False to show nothing; None to show a bar on a terminal, with tqdm or rich."""
TQDM = OptionalModule("tqdm", "anndata")
RICH = OptionalModule("rich.progress", "anndata")
Advance: TypeAlias = Callable[[int], None]
MIN_BAR_BYTES = 256 << 20
"""The minimum size, in bytes, of a read that shows a bar on a terminal if `progress` is None."""
PIECE_BYTES = 1 << 20
T = TypeVar("T")


class Answer(Protocol):
    """A stream that can be read, such as an HTTP answer; at its end `read` returns b"" and `readinto` returns 0."""

    def read(self, size: int | None = None, /) -> bytes: ...

    def readinto(self, data: memoryview, /) -> int: ...


def ignore(nbytes: int) -> None:
    """Do nothing; the default of the function that counts received bytes."""


_RECEIVED: ContextVar[Advance] = ContextVar("received", default=ignore)


def is_visible(progress: Progress) -> bool:
    """Return whether progress is reported to a function or shown as a bar."""
    return callable(progress) or bool(progress) or (progress is None and sys.stderr.isatty())


@contextmanager
def show_progress(progress: Progress, title: str, total: int, unit: str = "B") -> Iterator[Advance]:
    """Show progress in the context; yield a thread-safe function to call with each number of units just finished."""
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
    """Show the progress of all reads in the context; `total()` returns their bytes, and is called only if needed.

    `most` is an upper bound of the bytes; if it is less than `MIN_BAR_BYTES` and `progress` is None, show nothing.
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
    """Return the function of the current context to call with each number of received bytes; it is thread-safe."""
    return _RECEIVED.get()


def read_answer(answer: Answer) -> bytes:
    """Read and return the rest of an answer; if progress is shown, read `PIECE_BYTES` bytes at a time."""
    advance = received()
    if advance is ignore:
        return answer.read()
    pieces = []
    while piece := answer.read(PIECE_BYTES):
        pieces.append(piece)
        advance(len(piece))
    return b"".join(pieces)


def receive_into(answer: Answer, data: memoryview, advance: Advance = ignore) -> int:
    """Read from an answer into `data` until `data` is full or the answer ends; return the number of bytes read."""
    at = 0
    while count := answer.readinto(data[at : at + PIECE_BYTES]):
        at += count
        advance(count)
    return at


def show_rows(
    items: Iterator[T], progress: Progress, title: str, total: int, rows: Callable[[T], int]
) -> Iterator[T]:
    """Yield the items, which together have `total` rows, and show how many rows the caller has finished."""
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
    """Yield a function that updates a bar; without tqdm and rich it does nothing or, if `needed`, `Misconfigured`."""
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
