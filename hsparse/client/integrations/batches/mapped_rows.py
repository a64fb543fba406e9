"""Read the rows of a virtual matrix that stacks whole rows of other matrices, from each matrix separately."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Json
from hsparse.client.group import Group
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import HsparseError

MAX_READERS = 4
"""The number of sources that are read concurrently; 1 with direct reads, whose threads wait for Python's lock."""


@dataclass(frozen=True, slots=True)
class MappedRows:
    """The source matrices: rows `starts[i]` to `starts[i + 1] - 1` are the rows of `parts[i]` from `firsts[i]` on."""

    parts: Sequence[SparseDataset]
    firsts: Sequence[int]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, dataset: SparseDataset) -> MappedRows | None:
        """Return the sources of a virtual dataset, or None if only the server can read the dataset."""
        layout = dataset.record.get("creationProperties", {}).get("layout") or {}
        if layout.get("class") != "H5D_VIRTUAL":
            return None
        try:
            return cls._of_mappings(dataset, layout["mappings"])
        except (HsparseError, KeyError):
            return None  # the server reports the error to a reader

    @classmethod
    def _of_mappings(cls, dataset: SparseDataset, mappings: Sequence[Json]) -> MappedRows | None:
        parts: list[SparseDataset] = []
        firsts, starts, width = [], [0], dataset.shape[1]
        for one in mappings:
            file, path = (one[name].replace("%%", "%") for name in ("file", "dataset"))
            virtual, source = _band(one["virtual"], width), _band(one["source"], width)
            if not file.startswith("/") or virtual is None or source is None:
                return None
            first, count = source
            if virtual != (starts[-1], count):
                return None
            found = _opened(dataset, file, path)
            if (
                found is None
                or found.dtype != dataset.dtype
                or found.shape[1] != width
                or found.fillvalue != 0
            ):
                return None
            if first + count > found.shape[0]:
                return None
            parts.append(found)
            firsts.append(first)
            starts.append(starts[-1] + count)
        return cls(parts, firsts, np.array(starts)) if starts[-1] == dataset.shape[0] else None

    def read(self, rows: NDArray[np.int64]) -> list[Any]:
        """Return ascending rows, as a `csr_array` for each source matrix that has some of them."""
        edges = np.searchsorted(rows, self.starts)
        wanted = [
            (part, rows[a:b] - start + first)
            for part, first, start, a, b in zip(
                self.parts, self.firsts, self.starts[:-1], edges[:-1], edges[1:], strict=True
            )
            if a < b
        ]
        readers = MAX_READERS if self.parts[0].connection.direct is False else 1
        with ThreadPoolExecutor(readers, "hsparse-rows") as pool:
            return list(pool.map(lambda one: one[0][one[1]], wanted))


def _band(selection: Json, width: int) -> tuple[int, int] | None:
    """Return the first row and the number of rows of a selection, or None if it is not of consecutive whole rows."""
    if "start" not in selection or len(selection["start"]) != 2:
        return None
    ones = [1, 1]
    numbers = [selection["start"], *(selection.get(name, ones) for name in ("stride", "count", "block"))]
    if any(type(one) is not int for some in numbers for one in some):
        return None  # an unlimited count
    (first, *rows), (left, *columns) = zip(*numbers, strict=True)
    lengths = [count * block for stride, count, block in (rows, columns) if count == 1 or stride == block]
    return (first, lengths[0]) if left == 0 and lengths[1:] == [width] else None


def _opened(dataset: SparseDataset, domain: str, path: str) -> SparseDataset | None:
    connection = dataset.connection.for_domain(domain)
    connection.direct = dataset.connection.direct
    root = Group(connection, {"id": connection.json("GET", "/")["root"]}, "/")
    found: Any = root[path]
    is_counted_from_0 = "lower" not in found.record["shape"] and "minlower" not in found.record["shape"]
    return found if isinstance(found, SparseDataset) and is_counted_from_0 else None
