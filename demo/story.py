"""The demo's output: chapters, remarks, progress, checks and a last table; a failed check stops the demo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hsparse.errors import HsparseError

PointElements: TypeAlias = tuple[NDArray[Any], NDArray[Any]]
"""Places, (n, rank), and values, (n,)."""


class WrongAnswer(HsparseError):
    """The server's answer differs from the result of scipy and numpy."""


class Story:
    """The demo's output; `checks` counts the correct answers."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.checks = 0

    def chapter(self, title: str) -> None:
        self.console.print()
        self.console.rule(f"[bold]{title}", align="left")

    def say(self, text: str) -> None:
        """Print a remark; the console breaks its lines."""
        self.console.print(text)

    def progress(self) -> Progress:
        """Return a progress display, a context; at its end the display disappears or becomes one line."""
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self.console)

    def require(self, what: str, got: Any, wanted: Any) -> None:
        """Raise a `WrongAnswer` that names `what` unless an answer, a number or an array, is the expected one."""
        difference = _difference(np.asarray(got), np.asarray(wanted))
        if difference is not None:
            raise WrongAnswer(f"{what}: {difference}.")
        self.checks += 1

    def same(self, what: str, got: Any, wanted: Any) -> None:
        """Check an answer as `require` does, and print the check."""
        self.require(what, got, wanted)
        self.right(what)

    def require_elements(self, what: str, got: PointElements, wanted: PointElements) -> None:
        """Check places and values against those of `wanted`, which are row-major, as `require` does.

        The elements in `got` may have any order, because servers answer chunk by chunk.
        """
        places, values = ordered(*got)
        self.require(f"{what}: how many", len(values), len(wanted[1]))
        self.require(f"{what}: places", places, wanted[0])
        self.require(f"{what}: values", values, wanted[1])

    def same_elements(self, what: str, got: PointElements, wanted: PointElements) -> None:
        """Check elements as `require_elements` does, and print the check."""
        self.require_elements(what, got, wanted)
        self.right(what)

    def same_places(self, what: str, got: NDArray[Any], wanted: NDArray[Any]) -> None:
        """Check places without values, and print the check."""
        self.require(f"{what}: how many", len(got), len(wanted))
        self.same(what, ordered(got, got)[0], wanted)

    def right(self, what: str) -> None:
        """Print what was checked, after a correct answer."""
        self.console.print(f"  [green]right[/]  {escape(what)}", soft_wrap=True)

    def wrong(self, error: HsparseError) -> None:
        """Print the error that stopped the demo."""
        self.console.print(f"[bold red]wrong[/]  [red]{escape(error.message)}[/]", soft_wrap=True)


def ordered(coords: NDArray[Any], values: NDArray[Any]) -> PointElements:
    """Return elements in row-major order."""
    order = np.lexsort(coords.T[::-1])
    return coords[order], values[order]


def _difference(got: NDArray[Any], wanted: NDArray[Any]) -> str | None:
    """Describe the difference of two arrays, None when they are equal; a NaN equals a NaN of the same bits."""
    if got.shape != wanted.shape:
        return f"the answer has shape {list(got.shape)}, not {list(wanted.shape)}"
    same = got == wanted
    if np.all(same) or (got.dtype == wanted.dtype and got.tobytes() == wanted.tobytes()):
        return None
    place = tuple(int(index) for index in np.argwhere(~np.asarray(same))[0])
    where = f" at {list(place)}" if place else ""
    return f"the answer{where} is {got[place]}, not {wanted[place]}"


TITLE = "What was stored, as loaded; written and read in millions of points a second"


@dataclass(frozen=True, slots=True)
class StoredSize:
    """The size of a loaded dataset: defined elements, bytes in the store and in dense form, seconds of requests.

    `read_seconds` is the time for reading all elements with their places, None if not measured. `write_seconds` is None
    for imported data.
    """

    name: str
    points: int
    nbytes: int
    dense_bytes: int
    write_seconds: float | None
    read_seconds: float | None = None


def report(lines: list[StoredSize]) -> Table:
    """Return the table with one row per dataset, and their sum."""
    table = Table(title=TITLE, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("dataset", no_wrap=True)
    for name in (
        "points",
        "MB if\ndense",
        "MB\nstored",
        "bytes a\npoint",
        "written",
        "read",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        rates = (_rate(line.points, line.write_seconds), _rate(line.points, line.read_seconds))
        table.add_row(line.name, *_sizes(line.points, line.dense_bytes, line.nbytes), *rates)
    table.add_section()
    sums = (sum(getattr(line, name) for line in lines) for name in ("points", "dense_bytes", "nbytes"))
    table.add_row("all", *_sizes(*sums))
    return table


def _sizes(points: int, dense_bytes: int, nbytes: int) -> tuple[str, ...]:
    sizes = (f"{count / 1e6:,.2f}" for count in (dense_bytes, nbytes))
    return (f"{points:,}", *sizes, f"{nbytes / max(points, 1):.2f}")


def _rate(points: int, seconds: float | None) -> str:
    """Return millions of points per second, an empty text if not measured."""
    return "" if seconds is None else f"{points / max(seconds, 1e-9) / 1e6:.2f}"
