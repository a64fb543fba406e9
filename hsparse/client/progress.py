"""Progress of long work: a bar of tqdm or rich on a terminal, or a function of the caller."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from hsparse.errors import Misconfigured
from hsparse.optional_module import OptionalModule

Report: TypeAlias = Callable[[int, int], None]
"""Called with the bytes that are done, and their total."""
Progress: TypeAlias = "Report | bool | None"
"""A function; True for a bar; None for a bar on a terminal, if tqdm or rich is installed; False for none."""
TQDM = OptionalModule("tqdm", "anndata")
RICH = OptionalModule("rich.progress", "anndata")
Advance: TypeAlias = Callable[[int], None]


@contextmanager
def show_progress(progress: Progress, title: str, total: int) -> Iterator[Advance]:
    """Yield a function that any thread calls with the number of bytes that it has done."""
    done = 0
    lock = threading.Lock()
    with _report(progress, title, total) as report:

        def advance(nbytes: int) -> None:
            nonlocal done
            with lock:
                done += nbytes
                report(done, total)

        yield advance


@contextmanager
def _report(progress: Progress, title: str, total: int) -> Iterator[Report]:
    if callable(progress):
        yield progress
    elif progress or (progress is None and sys.stderr.isatty()):
        with _bar(title, total, needed=bool(progress)) as report:
            yield report
    else:
        yield _ignore


@contextmanager
def _bar(title: str, total: int, *, needed: bool) -> Iterator[Report]:
    """Yield what moves a bar; `Misconfigured` if one is needed and there is neither tqdm nor rich."""
    try:
        tqdm = TQDM.load().tqdm
    except Misconfigured:
        tqdm = None
    if tqdm is not None:
        with tqdm(total=total, desc=title, unit="B", unit_scale=True, file=sys.stderr) as bar:
            yield lambda done, _: bar.update(done - bar.n) and None
        return
    try:
        rich = RICH.load()
    except Misconfigured:
        if needed:
            raise
        yield _ignore
        return
    with rich.Progress(transient=True) as shown:
        task = shown.add_task(title, total=total)
        yield lambda done, _: shown.update(task, completed=done)


def _ignore(done: int, total: int) -> None:
    """Show nothing."""
