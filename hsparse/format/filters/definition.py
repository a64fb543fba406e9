"""A filter of a pipeline, as HDF5 knows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Filter:
    """A registered filter id, its client data values, and whether its failure to encode is allowed."""

    id: int
    values: tuple[int, ...] = ()
    optional: bool = True
