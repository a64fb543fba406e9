"""The demo's last table: what it stored, how small, how fast."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table


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
    """Return the table, one row a dataset and the sum."""
    table = Table(title="What it stored, as loaded", title_justify="left", show_footer=False)
    table.add_column("dataset")
    for name in ("points", "dense, MB", "stored, MB", "bytes a point", "write, points/s", "read, points/s"):
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(*_cells(line))
    table.add_section()
    table.add_row(
        "all",
        f"{sum(line.points for line in lines):,}",
        _megabytes(sum(line.dense_bytes for line in lines)),
        _megabytes(sum(line.nbytes for line in lines)),
    )
    return table


def _cells(line: Stored) -> tuple[str, ...]:
    read = "" if line.read_seconds is None else _rate(line.points, line.read_seconds)
    return (
        line.name,
        f"{line.points:,}",
        _megabytes(line.dense_bytes),
        _megabytes(line.nbytes),
        f"{line.nbytes / max(line.points, 1):.2f}",
        _rate(line.points, line.write_seconds),
        read,
    )


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.2f}"


def _rate(points: int, seconds: float) -> str:
    return f"{points / max(seconds, 1e-9):,.0f}"
