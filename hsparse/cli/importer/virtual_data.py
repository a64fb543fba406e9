"""The data of a virtual dataset: its elements, copied from the datasets that it maps.

Without a source elements have the fill value, as libhdf5 reads them; a source that cannot be read is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.cli.importer.converted_elements import convert_elements
from hsparse.cli.importer.file_data import DataFile, Dims, FileData, is_raw
from hsparse.cli.importer.source import path_in_errors
from hsparse.cli.importer.source_dataset import FoundObject, SourceFile, find_object
from hsparse.cli.importer.source_files import SharedSource
from hsparse.cli.importer.source_parts import read_part
from hsparse.errors import Corrupt, TooLarge
from hsparse.format.hdf5.messages.layout_message import VirtualLayout
from hsparse.format.hdf5.parse.parsed_elements import check_readable, parse_elements
from hsparse.format.hdf5.parse.parsed_object import ParsedDataset
from hsparse.format.hdf5.parse.virtual_mapping import (
    THIS_FILE,
    VirtualMapping,
    block_name,
    parse_virtual_mappings,
    unlimited_dim,
)
from hsparse.format.plan.virtual_plan import (
    Ordered,
    block_of,
    bounds_of,
    clipped,
    end_of_slices,
    is_product,
    mapped_part,
    ordered,
    overlaps,
    slices_before,
)
from hsparse.format.selections.serialized_selection import Regular, Serialized
from hsparse.model.dataspace import dims_of
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray

MAX_NESTED = 16
"""Virtual datasets that are sources of each other."""
MAX_BLOCKS = 1 << 20
"""The most sources that a pattern may name."""
MAX_POINTS = 1 << 20
"""The most elements that are copied one by one at a time; hyperslabs of equal shapes are copied as such."""
_nesting = local()


@dataclass(frozen=True, slots=True)
class MappedSource:
    """The elements `virtual` of a virtual dataset are `source` of the dataset `dataset` in `file`."""

    file: str
    dataset: str
    virtual: Serialized
    source: Serialized


def open_data(objects: DataFile, dataset: ParsedDataset) -> FileData | VirtualData:
    """Return the data of a dataset without structured chunks; raise the errors of either class."""
    if isinstance(dataset.layout, VirtualLayout):
        return VirtualData(objects, dataset)
    return FileData(objects, dataset)


class VirtualData:
    """The elements of a virtual dataset, read as `FileData` is. `dataset` has the extent that the sources give it.

    Raises `Corrupt`, `Forbidden` and `TooLarge`, naming the source.
    """

    records = None
    is_whole = True

    def __init__(self, objects: DataFile, dataset: ParsedDataset) -> None:
        assert isinstance(dataset.layout, VirtualLayout)
        self.objects = objects
        self.size = dataset.type.size
        self.is_raw = is_raw(dataset.type)
        self._opened: dict[tuple[str, str], FileData | VirtualData | None] = {}
        mappings = objects.source.run(parse_virtual_mappings(objects.file, dataset.layout))
        stored = dims_of(dataset.shape) or ()
        with _nested():
            self.sources, self.dims = self._resolve(mappings, stored)
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
        """Whether there is any data; without it all elements have the fill value."""
        return 0 not in self.dims and bool(self.sources)

    @property
    def storage(self) -> ParsedDataset | None:
        """The first source that is there and is no virtual dataset: its chunks and filters suit the copy."""
        for one in self.sources:
            with _nested():
                found = self._open(one.file, one.dataset)
            if isinstance(found, FileData):
                return found.dataset
        return None

    def has_data(self, start: Dims, stop: Dims) -> bool:
        """Say whether elements of a box may have other values than the fill value."""
        with _nested():
            return any(
                overlaps(self._virtual[number], start, stop) and self._is_there(self.sources[number])
                for number in self._near(start, stop)
            )

    def read(self, start: Dims, stop: Dims) -> Values:
        """Return the elements of a box in the form of hsparse."""
        shape = tuple(b - a for a, b in zip(start, stop, strict=True))
        fill = self._fill()
        result = np.empty(shape, fill.dtype)
        result[...] = fill
        with _nested():
            for number in self._near(start, stop):
                one = self.sources[number]
                with path_in_errors(f"source {one.dataset} in {one.file}"):
                    self._copy(number, start, stop, result)
        if result.dtype.hasobject:
            return VlenArray.of(result.ravel().tolist(), shape)
        return result

    def _fill(self) -> NDArray[Any]:
        """Return the fill value, an array of no dimensions; of objects if its size varies."""
        kind = self.dataset.type
        data = self.dataset.fill.value or bytes(kind.size)
        if len(data) != kind.size:
            raise Corrupt(f"The fill value has {len(data)} bytes, an element {kind.size}.")
        objects = self.objects
        return elements(objects.source.run(parse_elements(objects.file, kind, data, (), objects.find)))

    def _near(self, start: Dims, stop: Dims) -> list[int]:
        """Return the numbers of the sources that may have elements in a box, in their order."""
        near = (self._low < np.array(stop, np.int64)) & (self._high > np.array(start, np.int64))
        numbers: list[int] = np.flatnonzero(near.all(1)).tolist()
        return numbers

    def _copy(self, number: int, start: Dims, stop: Dims, result: NDArray[Any]) -> None:
        one, virtual = self.sources[number], self._virtual[number]
        if not overlaps(virtual, start, stop) or not self._is_there(one):
            return
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

    def _is_there(self, one: MappedSource) -> bool:
        """Say whether a source exists; note one that does not."""
        if self._open(one.file, one.dataset) is not None:
            return True
        self.objects.files.missing.add(f"{one.dataset} in {one.file}")
        return False

    def _open(self, name: str, path: str) -> FileData | VirtualData | None:
        """Return the data of a source, None if its file or the dataset in it is missing."""
        key = (name, path)
        if key not in self._opened:
            with path_in_errors(f"source {path} in {name}"):
                found = self._found(name, path)
                dataset = None if found is None else found.object.dataset
                if found is not None and dataset is None:
                    raise Corrupt(f"{path} is no dataset.")
                if found is None or dataset is None:
                    self._opened[key] = None
                else:
                    check_readable(dataset.type)
                    is_own = found.source is self.objects.source
                    files = self.objects.files
                    file = self.objects if is_own else SourceFile(found.source, found.file, files)
                    self._opened[key] = open_data(file, dataset)
        return self._opened[key]

    def _found(self, name: str, path: str) -> FoundObject | None:
        objects, files = self.objects, self.objects.files
        if name == THIS_FILE:
            return find_object(objects.source, objects.file, files, path)
        location = files.find(name, objects.source.name)
        if location is None:
            return None
        source = SharedSource(files, location)
        return find_object(source, SourceFile.of(source, files).file, files, path)

    def _resolve(self, mappings: tuple[VirtualMapping, ...], stored: Dims) -> tuple[list[MappedSource], Dims]:
        """Return the sources of all mappings, without those that have no end, and the extent that follows."""
        ends: dict[int, int] = {}
        least = [0] * len(stored)
        sources: list[MappedSource] = []
        for one in mappings:
            dim = unlimited_dim(one.virtual)
            for place, end in enumerate(bounds_of(one.virtual, len(stored))):
                least[place] = max(least[place], 0 if place == dim else end)
            if dim is None:
                names = block_name(one.file, 0), block_name(one.dataset, 0)
                sources.append(MappedSource(*names, one.virtual, one.source))
                continue
            found, end = self._blocks(one, dim) if one.by_blocks else self._endless(one, dim)
            sources += found
            ends[dim] = max(ends.get(dim, 0), end)
        dims = (max(least[dim], ends[dim]) if dim in ends else length for dim, length in enumerate(stored))
        return sources, tuple(dims)

    def _blocks(self, one: VirtualMapping, dim: int) -> tuple[list[MappedSource], int]:
        """Return the sources that a pattern names, up to the first missing one, and the end of their blocks."""
        assert isinstance(one.virtual, Regular)
        found: list[MappedSource] = []
        while True:
            names = block_name(one.file, len(found)), block_name(one.dataset, len(found))
            if self._open(*names) is None:
                break
            found.append(MappedSource(*names, block_of(one.virtual, dim, len(found)), one.source))
            if len(found) > MAX_BLOCKS:
                raise TooLarge(f"{one.dataset} in {one.file} names more than {MAX_BLOCKS} sources.")
        span = one.virtual.spans[dim]
        return found, end_of_slices(span, len(found) * span.block)

    def _endless(self, one: VirtualMapping, dim: int) -> tuple[list[MappedSource], int]:
        """Return what of a mapping without end its source has, and the end of that."""
        names = block_name(one.file, 0), block_name(one.dataset, 0)
        data, end = self._open(*names), unlimited_dim(one.source)
        assert isinstance(one.virtual, Regular)
        assert isinstance(one.source, Regular)
        assert end is not None
        if data is None:
            return [], 0
        if len(data.dims) != len(one.source.spans):
            raise Corrupt(f"{one.dataset} in {one.file} has {len(data.dims)} dimensions, its mapping others.")
        slices = slices_before(one.source.spans[end], data.dims[end])
        stop = end_of_slices(one.virtual.spans[dim], slices)
        virtual, source = clipped(one.virtual, dim, slices), clipped(one.source, end, slices)
        return [MappedSource(*names, virtual, source)], stop


def elements(values: Values) -> NDArray[Any]:
    """Return values as an array, of objects if their size varies."""
    if not isinstance(values, VlenArray):
        return values
    found = np.empty(values.size, object)
    found[:] = list(values)
    return found.reshape(values.shape)


@contextmanager
def _nested() -> Iterator[None]:
    """Count virtual datasets that are read for each other; `Corrupt` for too many, as of one that maps itself."""
    depth = getattr(_nesting, "depth", 0)
    if depth > MAX_NESTED:
        raise Corrupt(f"More than {MAX_NESTED} virtual datasets are sources of each other.")
    _nesting.depth = depth + 1
    try:
        yield
    finally:
        _nesting.depth = depth
