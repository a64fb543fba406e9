"""How far a command is, shown to whoever looks on: a bar on a terminal, or lines of JSON for a program.

The lines are objects: `{"done": bytes, "total": bytes}`, at most one a second; `{"message": text}`; and at the end
of a command that failed `{"error": {"kind": ..., "message": ...}}`.

Ctrl-C in a program of several threads.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from hsparse.clock import Clock, SystemClock
from hsparse.errors import HsparseError

LINE_SECONDS = 1.0
Run = Callable[[argparse.Namespace], int]


class ProgressForm(StrEnum):
    """How progress is shown."""

    BAR = "bar"
    JSON = "json"
    NONE = "none"


class ProgressDisplay(Protocol):
    """What is told how far the command is; by any of its threads."""

    def advance(self, nbytes: int) -> None:
        """So many bytes more are done."""
        ...

    def update(self, done: int, total: int) -> None:
        """So many bytes are done, of so many."""
        ...


class ProgressBar:
    """A bar of rich's."""

    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def advance(self, nbytes: int) -> None:
        self._bars.advance(self._task, nbytes)

    def update(self, done: int, total: int) -> None:
        self._bars.update(self._task, completed=done, total=total)


class JsonLines:
    """Lines of JSON on standard output."""

    def __init__(self, total: int | None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._done = 0
        self._total = total
        self._next = self._clock.monotonic()

    def advance(self, nbytes: int) -> None:
        with self._lock:
            self._done += nbytes
            self._tell()

    def update(self, done: int, total: int) -> None:
        with self._lock:
            self._done, self._total = done, total
            self._tell()

    def finish(self) -> None:
        """Tell that all is done, also of what is not counted on the way."""
        with self._lock:
            self._done = self._done if self._total is None else self._total
            _write({"done": self._done, "total": self._total})

    def _tell(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next:
            self._next = now + LINE_SECONDS
            _write({"done": self._done, "total": self._total})


def add_progress_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--progress` to a command whose `run` goes through `reports_failure`."""
    parser.add_argument(
        "--progress",
        type=ProgressForm,
        choices=list(ProgressForm),
        default=ProgressForm.BAR,
        help="a bar, where standard error is a terminal (default), JSON lines on standard output, or none",
    )


def reports_failure(run: Run) -> Run:
    """Return `run` so that with `--progress json` its failure is a line too."""

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
    """Show how much of `name` is done, of `total` bytes where they are known by now."""
    if form is ProgressForm.JSON:
        lines = JsonLines(total)
        yield lines
        lines.finish()
        return
    console = Console(stderr=True)
    parts = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    rest = (TransferSpeedColumn(), TimeRemainingColumn())
    hidden = form is ProgressForm.NONE or not console.is_terminal
    with Progress(*parts, *rest, console=console, transient=True, disable=hidden) as bars:
        yield ProgressBar(bars, bars.add_task(name, total=total))


def print_message(form: ProgressForm, text: str, file: TextIO | None = None) -> None:
    """Print a sentence on standard output or, where lines of JSON are not asked for, to `file`."""
    if form is ProgressForm.JSON:
        _write({"message": text})
    else:
        print(text, file=file or sys.stdout)


def _write(line: dict[str, Any]) -> None:
    print(json.dumps(line), file=sys.stdout, flush=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C be a `KeyboardInterrupt` wherever it hits.

    In the code of Python's own locks it leaves one that is not locked any more, and ends as a `RuntimeError`.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
