"""Import dense datasets of a file as sparse datasets, which define only the elements that the user wants to keep.

Tests: tests/cli/importer/test_sparsified_upload.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import product
from math import prod
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Unsupported
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.points import Points
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.parse.parsed_elements import parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedObject
from hsparse.hdf5.importer.convert_elements import NUMBERS
from hsparse.hdf5.importer.dense_upload import ValueUpload
from hsparse.hdf5.importer.file_data import Dims, InputData
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.object_body import dataset_body
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.virtual_data import VirtualData, open_data
from hsparse.model.initial_values import chunk_of, matrix_filters
from hsparse.model.layout import MAX_CHUNK_ELEMENTS

CHUNK = 1 << 20
"""The number of elements of a chunk, including undefined elements, unless the file's chunks have more."""
ELEMENTS_AT_ONCE = 1 << 21
"""The number of elements that are tested at a time."""


@dataclass(frozen=True, slots=True)
class Sparsify:
    """Which dense datasets become sparse, and which of their elements are dropped.

    `patterns` match paths; `*` stands for any text. `drop_fill` drops elements with the bytes of the fill value, and
    `threshold` drops elements at or below it, but not NaN.
    """

    patterns: tuple[str, ...]
    drop_fill: bool
    threshold: int | float | None

    @classmethod
    def parse(cls, patterns: Collection[str], drop_fill: bool, threshold: str | None) -> Sparsify | None:
        """Return the rules of command-line flags, or None without patterns; raises `BadRequest` if flags contradict."""
        if not patterns:
            if drop_fill or threshold is not None:
                raise BadRequest("--drop-fill and --threshold are for the datasets that --sparse names.")
            return None
        if not drop_fill and threshold is None:
            raise BadRequest("--sparse needs --drop-fill or --threshold N, which say what is left out.")
        absolute = tuple(f"/{one.lstrip('/')}" for one in patterns)
        return cls(absolute, drop_fill, None if threshold is None else _number(threshold))

    def is_meant(self, path: str) -> bool:
        """Return whether the dataset at `path` becomes sparse."""
        return any(fnmatchcase(path, one) for one in self.patterns)

    def check_all(self, paths: Collection[str]) -> None:
        """Raise `BadRequest` if a pattern matches none of the paths of datasets."""
        for one in self.patterns:
            if not any(fnmatchcase(path, one) for path in paths):
                raise BadRequest(f"No dataset matches --sparse {one}: use a path or pattern of datasets.")

    def kept(self, values: NDArray[Any], fill: NDArray[Any]) -> NDArray[np.intp]:
        """Return the indices of the elements to keep of `values: (n,)`; `fill: ()` is the fill value."""
        kept = np.ones(len(values), np.bool_)
        if self.drop_fill:
            raw = values.view(np.uint8).reshape(len(values), -1)
            kept &= (raw != np.frombuffer(fill.tobytes(), np.uint8)).any(1)
        if self.threshold is not None:
            is_float = values.dtype.kind == "f"
            limit = float(self.threshold) if is_float else math.floor(self.threshold)
            kept &= ~((values.astype(np.float64) if is_float else values) <= limit)
        return np.flatnonzero(kept)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise BadRequest(f"--threshold {text} is no number.")
    return found


class SparsifiedData:
    """A dense dataset of a file that becomes sparse; `rule` chooses the elements to keep."""

    def __init__(self, objects: FileObjects, stored: ParsedObject, path: str, rule: Sparsify) -> None:
        """Raise `Unsupported` unless the dataset's elements are numbers."""
        assert stored.dataset is not None
        kind = stored.dataset.type
        if kind.item["class"] not in NUMBERS:
            raise Unsupported(
                f"It has elements of the class {kind.item['class']}; --sparse is for integers and floats: "
                "narrow the pattern."
            )
        self._objects = objects
        self._stored = stored
        self._path = path
        self._rule = rule
        self._lock = Lock()
        self.data = open_data(objects, stored.dataset)
        self.records = self.data.records
        self.grid = Grid(self.data.dims, self._chunk())
        fill = stored.dataset.fill.value or bytes(kind.size)
        reads = parse_elements(objects.file, kind, fill, (), objects.find)
        self._fill = np.asarray(objects.source.run(reads))

    def body(self) -> dict[str, Any]:
        """Return the request body that creates the sparse dataset."""
        storage = self.data.storage if isinstance(self.data, VirtualData) else None
        body = dataset_body(
            self._objects, replace(self._stored, dataset=self.data.dataset), self._path, storage
        )
        chunk = self.grid.chunk
        body["creationProperties"] |= {
            "layout": {"class": "H5D_STRUCT_CHUNK", "dims": list(chunk), "flags": ["H5D_SPARSE_DATA"]},
            "filters": matrix_filters(chunk),
        }
        return body

    def chunks(self) -> Iterator[tuple[Dims, int]]:
        """Yield, for each chunk that may have elements to keep, its scaled coordinates and its bytes in the file."""
        data = self.data
        if not data.is_allocated:
            return
        if isinstance(data, InputData) and data.records is not None:
            for scaled, rows in data.chunks_by_grid(self.grid.chunk):
                yield scaled, data.stored_size(rows)
            return
        for scaled in product(*map(range, self.grid.counts)):
            start, stop = self.grid.bounds(scaled)
            if data.has_data(start, stop):
                yield scaled, prod(map(int.__sub__, stop, start)) * data.size

    def read(self, scaled: Dims) -> Iterator[tuple[NDArray[np.uint64], NDArray[Any]]]:
        """Yield pieces of the kept elements of a chunk: pairs of coordinates (n, rank) uint64 and values (n,)."""
        start, stop = self.grid.bounds(scaled)
        values = np.ascontiguousarray(self.data.read(start, stop)).reshape(-1)
        shape = tuple(map(int.__sub__, stop, start))
        for first in range(0, len(values), ELEMENTS_AT_ONCE):
            places = self._rule.kept(values[first : first + ELEMENTS_AT_ONCE], self._fill) + first
            inside = np.unravel_index(places, shape)
            yield np.stack(inside, axis=1).astype(np.uint64) + np.array(start, np.uint64), values[places]

    def count(self, kept: int) -> None:
        """Add `kept` to the dataset's number of kept elements, `FileObjects.kept`, which the command reports."""
        with self._lock:
            before, _ = self._objects.kept.get(self._path, (0, 0))
            self._objects.kept[self._path] = before + kept, prod(self.data.dims)

    def _chunk(self) -> Dims:
        """Return the user's chunk dimensions or, by default, those of the file, enlarged to `CHUNK` elements."""
        dims, layout = self.data.dims, self.data.dataset.layout
        if self._objects.matrix_chunk:
            return chunk_of(dims, 1, self._objects.matrix_chunk)
        chunk = list(layout.dims if isinstance(layout, ChunkedLayout) else [1] * len(dims))
        for dim in reversed(range(len(dims))):
            times = max(1, min(-(-dims[dim] // chunk[dim]), CHUNK // prod(chunk)))
            chunk[dim] = min(dims[dim], chunk[dim] * times, MAX_CHUNK_ELEMENTS)
        return tuple(chunk)


class SparsifiedUpload(ValueUpload[SparsifiedData]):
    """Uploads the kept elements of a dataset."""

    def submit(self, stored: Collection[Dims]) -> None:
        """Submit all chunks. The chunks in `stored` are submitted too, because they may be incomplete on the server."""
        data, count = self._data.data, prod(self._data.grid.chunk)
        row = 2 * data.size + 8 * len(data.dims)
        self._data.count(0)
        for scaled, size in self._data.chunks():
            self._uploads.submit(
                2 * data.size * count + row * min(count, ELEMENTS_AT_ONCE),
                partial(self._send_chunk, scaled, size),
            )

    def _send_chunk(self, scaled: Dims, size: int) -> None:
        with path_in_errors(self._path):
            for coords, values in self._data.read(scaled):
                self._put_elements(Points(self._data.data.dims, coords), values)
                self._data.count(len(values))
        self._advance(size)
