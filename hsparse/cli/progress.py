"""Progress of a command: a bar on a terminal, or JSON lines for a program.

Each line is an object: `{"done": bytes, "total": bytes, "rate": bytes per second, "left": seconds}`, at most once per
second, with `"elements": count` if elements are counted; `{"message": text}` for a message; or, as the last line of a
command that fails, `{"error": {"kind": ..., "message": ...}}`.

`interruptible` makes Ctrl-C reliable in a program with several threads.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol, TextIO

from hsparse.cli.terminal_text import terminal_text
from hsparse.clock import Clock, SystemClock
from hsparse.errors import HsparseError

LINE_SECONDS = 1.0
BAR_SECONDS = 0.1
"""Seconds between updates of the bar."""
BAR_WIDTH = 30
MB = 1e6
WIPE = "\r\x1b[K"
"""Control characters that move the cursor to the start of the terminal's line and clear the line (ECMA-48)."""
Run = Callable[[argparse.Namespace], int]


class ProgressForm(StrEnum):
    """The form in which progress is shown."""

    BAR = "bar"
    JSON = "json"
    NONE = "none"
    QUIET = "quiet"


class Advance(Protocol):
    """A function that is called with the number of bytes that were just finished and, if counted, of elements.

    `before` is True if an earlier command that was interrupted had already finished these bytes.
    """

    def __call__(self, nbytes: int, elements: int = 0, *, before: bool = False) -> object: ...


class ProgressDisplay:
    """Counts finished bytes, from any thread, and shows nothing; subclasses show progress at most every `seconds`."""

    def __init__(self, total: int | None, clock: Clock | None, seconds: float) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._done = self._before = self._elements = 0
        self._total = total
        self._seconds = seconds
        self._started = self._next = self._clock.monotonic()

    def advance(self, nbytes: int, elements: int = 0, *, before: bool = False) -> None:
        """Add to the numbers of finished bytes and elements; see `Advance` for the arguments."""
        with self._lock:
            self._done += nbytes
            if before:
                self._before += nbytes
            else:
                self._elements += elements
            self._show_when_due()

    def update(self, done: int, total: int) -> None:
        """Set the number of finished bytes and the total number of bytes."""
        with self._lock:
            self._done, self._total = done, total
            self._show_when_due()

    def finish(self) -> None:
        """End the display of a command that succeeded."""

    def close(self) -> None:
        """End the display, whether the command succeeded or failed."""

    def _show_when_due(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next:
            self._next = now + self._seconds
            self._show(now)

    def _speed(self, now: float) -> tuple[float, float, float | None]:
        """Return a triple: bytes per second, elements per second, and the remaining seconds, or None if unknown."""
        seconds = now - self._started
        if seconds <= 0:
            return 0.0, 0.0, None
        rate = max(0, self._done - self._before) / seconds
        left = None if self._total is None or not rate else max(0, self._total - self._done) / rate
        return rate, self._elements / seconds, left

    def _show(self, now: float) -> None:
        """Show `_done` and `_total`; called with the lock held."""


class ProgressBar(ProgressDisplay):
    """Displays progress as a bar in one line of a terminal, and clears the line at the end."""

    def __init__(self, name: str, total: int | None, file: TextIO, clock: Clock | None = None) -> None:
        super().__init__(total, clock, BAR_SECONDS)
        self._name = "".join(one if one.isprintable() else "?" for one in name)
        self._file = file

    def close(self) -> None:
        self._file.write(WIPE)
        self._file.flush()

    def _show(self, now: float) -> None:
        rate, elements, left = self._speed(now)
        bar, total = "", ""
        if self._total:
            bar = f"[{'=' * round(min(self._done / self._total, 1.0) * BAR_WIDTH):{BAR_WIDTH}}] "
            total = f"/{self._total / MB:.1f}"
        line = f"{self._name} {bar}{self._done / MB:.1f}{total} MB, {rate / MB:.1f} MB/s"
        line += f", {elements / MB:.1f} M elements/s" if elements else ""
        line += f", {timedelta(seconds=round(left))} left" if left else ""
        self._file.write(WIPE + line[: shutil.get_terminal_size().columns - 1])
        self._file.flush()


class JsonLines(ProgressDisplay):
    """Displays progress as JSON lines on standard output."""

    def __init__(self, total: int | None, clock: Clock | None = None) -> None:
        super().__init__(total, clock, LINE_SECONDS)

    def finish(self) -> None:
        """Print a last line with all bytes finished."""
        with self._lock:
            self._done = self._done if self._total is None else self._total
            self._show(self._clock.monotonic())

    def _show(self, now: float) -> None:
        rate, _, left = self._speed(now)
        seconds = None if left is None else round(left, 1)
        line = {"done": self._done, "total": self._total, "rate": round(rate), "left": seconds}
        _write(line | ({"elements": self._elements} if self._elements else {}))


def add_progress_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flags `--progress` and `--quiet` to a command whose `run` is wrapped by `reports_failure`."""
    parser.add_argument(
        "--progress",
        type=ProgressForm,
        choices=list(ProgressForm),
        default=ProgressForm.BAR,
        help="bar: on standard error, if it is a terminal (default); json: JSON lines on standard output; none; "
        "quiet: no messages on standard output either",
    )
    parser.add_argument(
        "--quiet",
        action="store_const",
        const=ProgressForm.QUIET,
        dest="progress",
        help="the same as --progress quiet: print only errors, on standard error",
    )


def reports_failure(run: Run) -> Run:
    """Wrap `run` so that, with `--progress json`, an error is printed as a JSON line before the error is raised."""

    def wrapped(args: argparse.Namespace) -> int:
        try:
            return run(args)
        except HsparseError as error:
            if args.progress is ProgressForm.JSON:
                _write({"error": {"kind": error.kind.value, "message": error.message}})
            raise

    return wrapped


@contextmanager
def show_progress(form: ProgressForm, name: str, total: int | None = None) -> Iterator[ProgressDisplay]:
    """Display the progress of the work `name` in the context; `total` is its bytes if known. Yield the display."""
    display = ProgressDisplay(total, None, math.inf)
    if form is ProgressForm.JSON:
        display = JsonLines(total)
    elif form is ProgressForm.BAR and sys.stderr.isatty():
        display = ProgressBar(name, total, sys.stderr)
    try:
        yield display
        display.finish()
    finally:
        display.close()


def print_message(form: ProgressForm, text: str, file: TextIO | None = None) -> None:
    """Print a message as a JSON line on standard output, or as text to `file`; QUIET prints only to a given `file`."""
    if form is ProgressForm.JSON:
        _write({"message": text})
    elif form is not ProgressForm.QUIET or file is not None:
        file = file or sys.stdout
        if form is ProgressForm.BAR and sys.stderr.isatty():
            print(WIPE, end="", file=sys.stderr, flush=True)  # other threads will redraw the bar
        print(terminal_text(text, file), file=file)


def _write(line: dict[str, Any]) -> None:
    print(json.dumps(line), file=sys.stdout, flush=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `KeyboardInterrupt` after Ctrl-C, even if Ctrl-C interrupts Python's code of locks.

    Without this context, such an interrupt would release a lock twice and raise a `RuntimeError`.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
