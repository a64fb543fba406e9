"""The demo's last table: what it stored, how small, how fast."""

from __future__ import annotations

from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

TITLE = "What was stored, as loaded; written and read in millions of points a second"


@dataclass(frozen=True, slots=True)
class Stored:
    """A dataset as loaded: defined elements, bytes in the store and if it were dense, seconds of requests.

    `read` is for reading back all its elements with their places; None where that was not done.
    """

    name: str
    points: int
    nbytes: int
    dense_bytes: int
    write_seconds: float
    read_seconds: float | None = None


def report(lines: list[Stored]) -> Table:
    """Return the table, one row a dataset and their sum."""
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
    """Return millions of points a second; nothing where it was not measured."""
    return "" if seconds is None else f"{points / max(seconds, 1e-9) / 1e6:.2f}"
