"""The measurements of a run: samples by metric and side, in the order of the repeats.

A side is a program that is measured: hsparse, or one of its peers.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

OURS, OLDER = "hsparse", "older hsparse"
"""The names of this revision, and of the revision that `--against` names."""
CELL_LIBRARIES = ("TileDB-SOMA", "AnnData h5ad", "AnnData h5ad gzip", "AnnData zarr", "scDataset")
"""The peers of the workload `cells`."""
SIDES = (
    OURS,
    OLDER,
    "HSDS",
    "HSDS flushed",
    "h5pyd",
    "Tiled",
    "h5py",
    "TileDB",
    *CELL_LIBRARIES,
    "bare",
    "copy",
)


def number(value: float) -> str:
    """Format a figure with three or more significant digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class MeasuredMetric:
    """A measured quantity of a workload; `higher` tells whether larger values are better."""

    workload: str
    name: str
    unit: str
    higher: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, the least and the greatest of some samples."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: list[float]) -> Spread:
        return cls(statistics.median(samples), min(samples), max(samples))


@dataclass(slots=True)
class Report:
    """All samples of a run, in the order of the repeats, and remarks, for example on failures of a peer."""

    samples: dict[MeasuredMetric, dict[str, list[float]]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, metric: MeasuredMetric, side: str, value: float) -> None:
        """Add the value of one repeat; raise `ValueError` if `side` is not in `SIDES`."""
        if side not in SIDES:
            raise ValueError(f"{side!r} is no side; there are {', '.join(SIDES)}.")
        self.samples.setdefault(metric, {}).setdefault(side, []).append(value)

    def remark(self, text: str) -> None:
        """Add a remark for the reader; a repeated remark is kept once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def spread(self, metric: MeasuredMetric, side: str) -> Spread | None:
        """Return the spread of a side's samples, None if the side was not measured."""
        samples = self.samples.get(metric, {}).get(side)
        return Spread.of(samples) if samples else None

    def ratio(self, metric: MeasuredMetric, peer: str) -> Spread | None:
        """Return the ratios of hsparse to `peer` in each repeat (above 1: hsparse is better), None without samples."""
        sides = self.samples.get(metric, {})
        ours, theirs = sides.get(OURS), sides.get(peer)
        if not ours or not theirs:
            return None
        pairs = list(zip(ours, theirs, strict=False))
        return Spread.of([a / b if metric.higher else b / a for a, b in pairs])

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "figures": [
                {
                    "workload": metric.workload,
                    "metric": metric.name,
                    "unit": metric.unit,
                    "higher_is_better": metric.higher,
                    "samples": sides,
                }
                for metric, sides in self.samples.items()
            ],
            "remarks": self.remarks,
            "failures": self.failures,
        }
