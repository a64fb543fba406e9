"""Read the elements of a file's virtual dataset from the source datasets of its mappings.

Elements of a missing source have the fill value, as in libhdf5. A source that cannot be read is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.bounded_cache import BoundedCache
from hsparse.errors import Corrupt
from hsparse.format.plan.virtual_plan import Ordered, is_product, mapped_part, ordered, overlaps
from hsparse.hdf5.format.messages.layout_message import VirtualLayoutMessage
from hsparse.hdf5.format.parse.parsed_elements import check_readable, parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedDataset
from hsparse.hdf5.format.parse.virtual_mapping import (
    THIS_FILE,
    block_name,
    parse_virtual_mappings,
    unlimited_dim,
)
from hsparse.hdf5.importer.convert_elements import convert_elements
from hsparse.hdf5.importer.file_data import DataFile, Dims, InputData, is_raw
from hsparse.hdf5.importer.mapped_sources import resolve_mappings
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.source_dataset import SourceFile, find_object, read_part
from hsparse.hdf5.importer.source_files import SharedSource
from hsparse.model.dataspace import dims_of
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray

MAX_NESTED = 16
"""The maximum number of levels of virtual datasets that are sources of virtual datasets."""
MAX_POINTS = 1 << 20
"""The maximum number of elements that are copied one by one at a time; equal hyperslabs are copied as boxes."""
MAX_ROWS = 1 << 20
"""The maximum number of cached rows of sources' chunk indexes; each row takes about 60 bytes."""
Name = tuple[str, str]
"""A pair: the name of a file, and the path of a dataset in the file."""
_nesting = local()


class RecentData(BoundedCache[Name, "InputData | VirtualData"]):
    """A cache of recently used sources, whose chunk indexes have at most `MAX_ROWS` rows in total."""

    def __init__(self) -> None:
        super().__init__(MAX_ROWS, sys.maxsize, entry_size=0)

    def first(self, name: Name, data: InputData | VirtualData) -> InputData | VirtualData:
        """Add a source unless it is cached already (another thread may have added it); return the cached source."""
        if (found := self.use(name)) is None:
            self.keep(name, data, _rows(data))
        return found or data


def _rows(data: InputData | VirtualData) -> int:
    return len(data.records) if isinstance(data, InputData) and data.records is not None else 0


def open_data(objects: DataFile, dataset: ParsedDataset) -> InputData | VirtualData:
    """Return the data of a dataset without structured chunks; raises the errors of `InputData` or `VirtualData`."""
    if isinstance(dataset.layout, VirtualLayoutMessage):
        return VirtualData(objects, dataset)
    return InputData(objects, dataset)


class VirtualData:
    """The elements of a virtual dataset, with the interface of `InputData`. `dataset` has the resolved extent.

    Raises `Corrupt`, `Forbidden` and `TooLarge`; the messages name the source.
    """

    records = None
    is_whole = True

    def __init__(self, objects: DataFile, dataset: ParsedDataset) -> None:
        assert isinstance(dataset.layout, VirtualLayoutMessage)
        self.objects = objects
        self.size = dataset.type.size
        self.is_raw = is_raw(dataset.type)
        self._known: dict[Name, tuple[DataFile, ParsedDataset] | None] = {}
        self._recent = RecentData()
        mappings = objects.source.run(parse_virtual_mappings(objects.file, dataset.layout))
        stored = dims_of(dataset.shape) or ()
        with _nested():
            self.sources, self.dims = resolve_mappings(mappings, stored, self._dims_of)
            for one in mappings:
                if unlimited_dim(one.virtual) is not None:
                    # Report a missing source: the extent then has no elements for it, not even fill values.
                    self._is_there(block_name(one.file, 0), block_name(one.dataset, 0))
        self.dataset = dataset
        if self.dims != stored:
            self.dataset = replace(dataset, shape={**dataset.shape, "dims": list(self.dims)})
        self._virtual = [ordered(one.virtual, self.dims) for one in self.sources]
        self._selected: dict[int, Ordered] = {}
        bounds = [one.bounds for one in self._virtual]
        shape = len(bounds), len(self.dims)
        self._low, self._high = (
            np.array([one[end] for one in bounds], np.int64).reshape(shape) for end in (0, 1)
        )

    @property
    def is_allocated(self) -> bool:
        """Whether the dataset has elements and mappings; without mappings, all elements have the fill value."""
        return 0 not in self.dims and bool(self.sources)

    def find_sources(self) -> None:
        """Look up all sources, so that `SourceFiles` records all files that the dataset depends on."""
        with _nested():
            for one in self.sources:
                self._is_there(one.file, one.dataset)

    @property
    def storage(self) -> ParsedDataset | None:
        """The first existing source that is not virtual, or None; a copy may use this source's chunks and filters."""
        for one in self.sources:
            with _nested():
                found = self._open(one.file, one.dataset)
            if isinstance(found, InputData):
                return found.dataset
        return None

    def has_data(self, start: Dims, stop: Dims) -> bool:
        """Return whether an existing source covers elements of a box; such elements may differ from the fill value."""
        with _nested():
            return any(
                overlaps(self._virtual[number], start, stop)
                and self._is_there(self.sources[number].file, self.sources[number].dataset)
                for number in self._near(start, stop)
            )

    def read(self, start: Dims, stop: Dims) -> Values:
        """Return the elements of the box `start:stop` in hsparse's encoding."""
        shape = tuple(b - a for a, b in zip(start, stop, strict=True))
        fill = self._fill()
        # numpy appends the dimensions of an array type to the shape.
        result = np.empty(shape + fill.shape, fill.dtype)
        result[...] = fill
        with _nested():
            for number in self._near(start, stop):
                one = self.sources[number]
                if overlaps(self._virtual[number], start, stop) and self._is_there(one.file, one.dataset):
                    with path_in_errors(f"source {one.dataset} in {one.file}"):
                        self._copy(number, start, stop, result)
        if result.dtype.hasobject:
            return VlenArray.of(result.ravel().tolist(), shape)
        return result

    def _fill(self) -> NDArray[Any]:
        """Return the fill value as an array of shape (), or of an array type's shape; a vlen value is an object."""
        kind = self.dataset.type
        data = self.dataset.fill.value or bytes(kind.size)
        if len(data) != kind.size:
            raise Corrupt(f"The fill value has {len(data)} bytes; an element has {kind.size}.")
        objects = self.objects
        return elements(objects.source.run(parse_elements(objects.file, kind, data, (), objects.find)))

    def _near(self, start: Dims, stop: Dims) -> list[int]:
        """Return the numbers of the sources that may have elements in a box, in the order of the mappings."""
        near = (self._low < np.array(stop, np.int64)) & (self._high > np.array(start, np.int64))
        numbers: list[int] = np.flatnonzero(near.all(1)).tolist()
        return numbers

    def _copy(self, number: int, start: Dims, stop: Dims, result: NDArray[Any]) -> None:
        """Copy to `result` the elements of a box that source `number`, which exists, covers."""
        one, virtual = self.sources[number], self._virtual[number]
        data = self._open(one.file, one.dataset)
        assert data is not None
        if number not in self._selected:
            self._selected[number] = ordered(one.source, data.dims)
        source = self._selected[number]
        if source.size != virtual.size:
            raise Corrupt(f"{virtual.size} elements are mapped to {source.size}.")
        shape = tuple(b - a for a, b in zip(start, stop, strict=True))
        if not is_product(virtual, source) and prod(shape) > MAX_POINTS:
            dim = shape.index(max(shape))
            middle = start[dim] + shape[dim] // 2
            first, last = slice(0, middle - start[dim]), slice(middle - start[dim], None)
            before = (slice(None),) * dim
            self._copy(number, start, (*stop[:dim], middle, *stop[dim + 1 :]), result[(*before, first)])
            self._copy(number, (*start[:dim], middle, *start[dim + 1 :]), stop, result[(*before, last)])
            return
        part = mapped_part(virtual, source, start, stop)
        if part is None:
            return
        read = read_part(lambda low, high: elements(data.read(low, high)), part, data.size)
        values = convert_elements(read, data.dataset.type.item, self.dataset.type.item)
        if part.products:
            lengths = tuple(map(len, part.target))
            result[np.ix_(*part.target)] = values.reshape(lengths + values.shape[len(part.source) :])
        else:
            result[part.target] = values

    def _dims_of(self, name: str, path: str) -> Dims | None:
        """Return the extent of a source, or None if the source is missing."""
        data = self._open(name, path)
        return None if data is None else data.dims

    def _is_there(self, name: str, path: str) -> bool:
        """Return whether a source exists; add a missing source to `SourceFiles.missing`."""
        if self._open(name, path) is not None:
            return True
        looked = self.objects.files.looked_at(name, self.objects.source.name)
        self.objects.files.missing.add(f"{path} in {name}" + (f" (looked at {looked})" if looked else ""))
        return False

    def _open(self, name: str, path: str) -> InputData | VirtualData | None:
        """Return the data of a source, or None if the file or the dataset is missing."""
        key = (name, path)
        if (recent := self._recent.use(key)) is not None:
            return recent
        if key not in self._known:
            with path_in_errors(f"source {path} in {name}"):
                self._known[key] = self._found(name, path)
        known = self._known[key]
        if known is None:
            return None
        with path_in_errors(f"source {path} in {name}"):
            return self._recent.first(key, open_data(*known))

    def _found(self, name: str, path: str) -> tuple[DataFile, ParsedDataset] | None:
        objects, files = self.objects, self.objects.files
        if name == THIS_FILE:
            found = find_object(objects.source, objects.file, files, path)
        else:
            location = files.find(name, objects.source.name)
            if location is None:
                return None
            source = SharedSource(files, location)
            found = find_object(source, SourceFile.of(source, files).file, files, path)
        if found is None:
            return None
        dataset = found.object.dataset
        if dataset is None:
            raise Corrupt(f"{path} is no dataset.")
        check_readable(dataset.type)
        is_own = found.source is objects.source
        return objects if is_own else SourceFile(found.source, found.file, files), dataset


def elements(values: Values) -> NDArray[Any]:
    """Return values as an array; vlen elements become objects."""
    if not isinstance(values, VlenArray):
        return values
    found = np.empty(values.size, object)
    found[:] = list(values)
    return found.reshape(values.shape)


@contextmanager
def _nested() -> Iterator[None]:
    """Count nested reads of virtual datasets in this thread; raises `Corrupt` beyond `MAX_NESTED`, as in a cycle."""
    depth = getattr(_nesting, "depth", 0)
    if depth > MAX_NESTED:
        raise Corrupt(f"More than {MAX_NESTED} virtual datasets are sources of each other.")
    _nesting.depth = depth + 1
    try:
        yield
    finally:
        _nesting.depth = depth
