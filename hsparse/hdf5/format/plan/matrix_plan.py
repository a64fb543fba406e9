"""Plan a sparse dataset that is written as a group with the arrays of a matrix.

The arrays have the matrix's elements in row-major or column-major order. Elements are sorted one band at a time: a band
is one row or one column of the chunk grid. In a file with compressed arrays, values are deflated; indices are
shuffled and deflated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Moved, TooLarge
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.chunk_map import sections_of
from hsparse.format.chunk_spec import ChunkSpec, chunk_spec
from hsparse.format.filters.filters_json import parse_filters
from hsparse.format.filters.pipeline import apply_filters
from hsparse.format.kinds.sparse import open_sparse
from hsparse.hdf5.format.file_fields import AddressOf, Key
from hsparse.hdf5.format.messages.file_type import FileType, file_type
from hsparse.hdf5.format.messages.layout_message import ContiguousLayout
from hsparse.hdf5.format.messages.object_messages import ZERO_FILL, FillValue
from hsparse.hdf5.format.plan.dataset_plan import plan_chunked
from hsparse.hdf5.format.plan.file_plan import FilePiece
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding, index_type
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm, ChunkRegion, PlannedChunks, Uint64Column
from hsparse.hdf5.format.plan.planned_object import (
    PlannedAttribute,
    PlannedDataset,
    PlannedGroup,
    PlannedLink,
    PlannedObject,
    PlannedTarget,
    plan_layout,
)
from hsparse.model.dataspace import dims_of

MAX_LINES = 2**32
"""The maximum number of rows or columns for which pointers are written."""


class MatrixPart(Enum):
    """The content of one array of a matrix."""

    VALUES = "values"
    ALONG = "along"
    """The lines of the elements: the coordinates in the dimension by which elements are sorted first."""
    ACROSS = "across"
    """The coordinates of the elements in the dimension by which elements are sorted second."""
    POINTERS = "pointers"
    """The number of elements before each line, and at the end the total number of elements."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class MatrixBands:
    """A matrix divided into bands. A band has all chunks with the same scaled coordinate in dimension `axis`.

    A line is a row if `axis` is 0, a column if it is 1. `chunks` are sorted by band, then by the other dimension. For
    each band, `lines: (b,) uint64` has its first line, `rows: (b + 1,) intp` its first chunk, `starts: (b + 1,) uint64`
    the number of elements before the band, and `weights: (b,) uint64` the bytes of memory that sorting it takes. Bands
    without defined elements are omitted.
    """

    spec: ChunkSpec
    shape: tuple[int, int]
    axis: int
    chunks: PlannedChunks
    lines: Uint64Column
    rows: NDArray[np.intp]
    starts: Uint64Column
    weights: Uint64Column

    @classmethod
    def of(cls, spec: ChunkSpec, shape: tuple[int, int], axis: int, chunks: PlannedChunks) -> MatrixBands:
        chunks = chunks.take(chunks.defined > 0)
        chunks = chunks.take(np.lexsort((chunks.scaled[:, 1 - axis], chunks.scaled[:, axis])))
        found, first = np.unique(chunks.scaled[:, axis], return_index=True)
        rows = np.append(first, len(chunks)).astype(np.intp)
        before = np.concatenate((np.zeros(1, np.uint64), np.cumsum(chunks.defined, dtype=np.uint64)))
        lines, starts = found * np.uint64(spec.dims[axis]), before[rows]
        none = np.zeros(0, np.uint64)
        bands = cls(spec, shape, axis, chunks, lines, rows, starts, none)
        return replace(bands, weights=_weights(bands))

    @property
    def count(self) -> int:
        """The number of defined elements in the matrix."""
        return int(self.starts[-1])

    @property
    def index(self) -> np.dtype[Any]:
        """The dtype of indices and pointers."""
        return index_type(self.shape, self.count)

    @property
    def nbytes(self) -> int:
        """The memory in bytes that the chunk list and band arrays take."""
        columns = (self.lines, self.rows, self.starts, self.weights)
        return self.chunks.nbytes + sum(column.nbytes for column in columns)

    def width(self, part: MatrixPart) -> int:
        """Return the size in bytes of one entry of the array `part`."""
        return self.spec.dtype.itemsize if part is MatrixPart.VALUES else self.index.itemsize

    def entries(self, part: MatrixPart) -> int:
        """Return the number of entries of the array `part`."""
        return self.shape[self.axis] + 1 if part is MatrixPart.POINTERS else self.count

    def bands_of(self, part: MatrixPart, first: int, last: int) -> range:
        """Return the bands whose chunks must be read for entries `first` to `last` (exclusive) of the array `part`."""
        if first >= last:
            return range(0)
        if part is MatrixPart.POINTERS:
            # The pointer of a band's first line is in `starts`; the band need not be read for it.
            step = self.spec.dims[self.axis]
            begin = int(np.searchsorted(self.lines, np.uint64(first - step), "right")) if first >= step else 0
            return range(begin, int(np.searchsorted(self.lines, np.uint64(last - 1))) if step > 1 else 0)
        begin = int(np.searchsorted(self.starts, np.uint64(first), "right")) - 1
        return range(begin, int(np.searchsorted(self.starts, np.uint64(last))))

    def memory(self, part: MatrixPart, first: int, last: int, page: int) -> int:
        """Return the bytes of memory for reading the entries from `first` to `last` (exclusive) of the array `part`.

        Several bands are sorted at once if they together take at most `page` bytes.
        """
        found = self.bands_of(part, first, last)
        weights = self.weights[found.start : found.stop]
        return max(int(weights.max(initial=0)), min(page, int(weights.sum())))


def _weights(bands: MatrixBands) -> Uint64Column:
    """Return an array with the bytes of memory that sorting each band takes."""
    if not len(bands.lines):
        return np.zeros(0, np.uint64)
    size, index = bands.spec.dtype.itemsize, bands.index.itemsize
    # A band's lines, the sorting order, and the two other columns twice: unsorted and sorted.
    kept = (bands.starts[1:] - bands.starts[:-1]) * np.uint64(4 + 8 + 2 * (size + index))
    stored = np.add.reduceat(bands.chunks.size, bands.rows[:-1])
    largest = np.maximum.reduceat(bands.chunks.defined, bands.rows[:-1])
    # The largest chunk while it is decoded: selection, offsets, coordinates and values.
    decoded = largest * np.uint64(16 + 4 + 3 * 8 + 2 * size)
    return (kept + stored + decoded).astype(np.uint64)


def check_bands(bands: MatrixBands, most: int) -> None:
    """Raise `TooLarge` if sorting a band takes more than `most` bytes of memory."""
    heaviest = int(bands.weights.max(initial=0))
    if heaviest > most:
        what, other = (("rows", "columns"), ("columns", "rows"))[bands.axis]
        raise TooLarge(
            f"The elements of {bands.spec.dims[bands.axis]} {what} of {bands.spec.dataset} are sorted together, "
            f"which takes {heaviest} bytes of memory; the limit is {most} (answer_memory): ask for the form by "
            f"{other}, or for layout=stock, or make chunks with fewer {what}."
        )


def check_lines(bands: MatrixBands) -> None:
    """Raise `TooLarge` if the matrix has more lines than `MAX_LINES`."""
    if bands.shape[bands.axis] > MAX_LINES:
        what, other = (("rows", "columns"), ("columns", "rows"))[bands.axis]
        raise TooLarge(
            f"{bands.spec.dataset} has {bands.shape[bands.axis]} {what}, each with a pointer; the limit is "
            f"{MAX_LINES} {what}: request the encoding by {other}, or binsparse-coo."
        )


@dataclass(frozen=True, slots=True, eq=False)
class MatrixColumn:
    """One array, `part`, of a matrix that is divided into `bands`."""

    bands: MatrixBands
    part: MatrixPart

    @property
    def width(self) -> int:
        return self.bands.width(self.part)

    @property
    def entries(self) -> int:
        """The number of the array's entries."""
        return self.bands.entries(self.part)

    @property
    def size(self) -> int:
        """The array's size in bytes."""
        return self.entries * self.width

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of entries that overlap the array's bytes from `start` to `stop` (exclusive)."""
        return start // self.width, -(-stop // self.width)


@dataclass(frozen=True, slots=True, eq=False)
class SortedBand:
    """The elements of one band, sorted by line and then by the coordinate across lines.

    `lines: (n,)` are relative to the band's first line. `across: (n,)` are coordinates in the matrix. `values: (n,)`
    are opaque items with the bytes that elements have in files.
    """

    lines: NDArray[Any]
    across: NDArray[Any]
    values: NDArray[Any]

    @property
    def nbytes(self) -> int:
        """The memory in bytes that the sorted band takes."""
        return self.lines.nbytes + self.across.nbytes + self.values.nbytes


class BandSorter:
    """Sorts the elements of one band. First call `add` with the stored bytes of each chunk in order, then `finish`."""

    def __init__(self, bands: MatrixBands, band: int) -> None:
        self._bands = bands
        self._row = int(bands.rows[band])
        self._first = int(bands.lines[band])
        count = int(bands.starts[band + 1] - bands.starts[band])
        # The smallest dtype: numpy sorts integers of up to 16 bits in linear time.
        self._lines = np.empty(count, np.min_scalar_type(bands.spec.dims[bands.axis] - 1))
        self._across = np.empty(count, bands.index)
        self._values = np.empty(count, f"V{bands.spec.dtype.itemsize}")
        self._have = 0

    def add(self, data: Buffer) -> None:
        """Add the next chunk; raises `Corrupt` if it cannot be decoded, `Moved` if it exceeds the dataset's extent."""
        bands, row = self._bands, self._row
        spec, axis, shape = bands.spec, bands.axis, bands.shape
        try:
            chunk = open_sparse(
                data, sections_of(bands.chunks.sections[row]), spec.dims, spec.dtype, spec.filters
            )
        except Corrupt as error:
            raise Corrupt(f"A chunk of {spec.dataset} is corrupt: {error.message}") from error
        stop = self._have + len(chunk.offsets)
        if len(chunk.offsets) != int(bands.chunks.defined[row]):
            raise AssertionError(
                f"A chunk of {spec.dataset} has {len(chunk.offsets)} elements, not as planned."
            )
        places = np.divmod(chunk.offsets, np.uint32(spec.dims[1]))
        begin = int(bands.chunks.scaled[row, 1 - axis]) * spec.dims[1 - axis]
        lines, across = places[axis], places[1 - axis].astype(np.int64) + begin
        if self._first + int(lines.max()) >= shape[axis] or int(across.max()) >= shape[1 - axis]:
            raise Moved(f"{spec.dataset} has elements outside of its extent: it is being made smaller.")
        self._lines[self._have : stop] = lines
        self._across[self._have : stop] = across
        self._values[self._have : stop] = np.frombuffer(byte_view(chunk.values), self._values.dtype)
        self._row, self._have = row + 1, stop

    def finish(self) -> SortedBand:
        """Return the sorted band, after all chunks have been added."""
        # Chunks and their elements are already sorted by the other coordinate; a stable sort keeps that order.
        order = np.argsort(self._lines, kind="stable")
        lines, self._lines = self._lines[order], self._lines[:0]
        across, self._across = self._across[order], self._across[:0]
        values, self._values = self._values[order], self._values[:0]
        return SortedBand(lines, across, values)


def encode_entries(
    bands: MatrixBands, band: int, band_elements: SortedBand, part: MatrixPart, first: int, last: int
) -> Buffer:
    """Return the bytes that a band has of the entries `first` to `last` (exclusive) of an array, except `POINTERS`.

    Entries are numbered in the whole matrix; entries outside of the band are omitted.
    """
    begin = int(bands.starts[band])
    inside = slice(max(0, first - begin), max(0, last - begin))
    if part is MatrixPart.VALUES:
        return byte_view(band_elements.values[inside])
    if part is MatrixPart.ACROSS:
        return byte_view(band_elements.across[inside])
    along = band_elements.lines[inside].astype(bands.index) + bands.index.type(int(bands.lines[band]))
    return byte_view(along)


def known_pointers(bands: MatrixBands, first: int, last: int) -> NDArray[np.int64]:
    """Return the pointers of lines `first` to `last` (exclusive), not counting elements in the same band as a line.

    `add_pointers` adds the elements of the same band.
    """
    numbers = np.arange(first, last, dtype=np.uint64)
    band = np.searchsorted(bands.lines, numbers, "right").astype(np.int64) - 1
    step = np.uint64(bands.spec.dims[bands.axis])
    behind = np.zeros(len(numbers), np.int64)
    found = band >= 0
    behind[found] = numbers[found] - bands.lines[band[found]] >= step
    return bands.starts[np.maximum(band, 0) + behind].astype(np.int64)


def add_pointers(
    bands: MatrixBands, band: int, band_elements: SortedBand, pointers: NDArray[np.int64], first: int
) -> None:
    """Count the elements of one band in the pointers of its lines; `pointers[0]` is the pointer of line `first`."""
    begin, step = int(bands.lines[band]), bands.spec.dims[bands.axis]
    low, high = max(first, begin + 1), min(first + len(pointers), begin + step)
    if low < high:
        lines = np.arange(low - begin, high - begin, dtype=band_elements.lines.dtype)
        pointers[low - first : high - first] += np.searchsorted(band_elements.lines, lines)


ENTRIES = 1 << 16
"""The maximum number of entries in a chunk of a compressed array."""
VALUE_FILTERS = [{"id": 1, "level": 1}]
INDEX_FILTERS = [{"id": 2}, *VALUE_FILTERS]
"""The filters of values (deflate) and indices (shuffle and deflate); every HDF5 library has these filters."""
# MB/s and compression ratio for chunks of 65,536 values and indices of pbmc68k_reduced, on one core:
#             level 1           level 1, shuffle   level 4           level 4, shuffle
#   values    300, 4.74         151, 2.17          125, 5.03         41, 2.40
#   indices   139, 3.71         98, 5.92           80, 4.77          178, 6.30
# Few values are distinct. Deflate finds whole repeated values, which shuffle would split into separate bytes.


def index_item(column: MatrixColumn) -> str:
    """Return the HDF5 type name of an array's indices or pointers."""
    return "H5T_STD_I32LE" if column.bands.index.itemsize == 4 else "H5T_STD_I64LE"


def column_spec(column: MatrixColumn) -> ChunkSpec:
    """Return the chunk spec of a compressed array that has entries."""
    spec, dims = column.bands.spec, (min(column.entries, ENTRIES),)
    item: Any = spec.datatype.item if column.part is MatrixPart.VALUES else index_item(column)
    nbytes = prod(dims) * column.width
    filters = VALUE_FILTERS if column.part is MatrixPart.VALUES else INDEX_FILTERS
    (pipeline,) = parse_filters(filters, column.width, sparse=False, chunk_bytes=nbytes)
    # Filters are mandatory: an optional filter could be skipped, and would need a filter mask for each chunk.
    pipeline = tuple(replace(one, optional=False) for one in pipeline)
    return ChunkSpec(spec.dataset, item, dims, False, b"", (pipeline,))


def column_region(key: Key, column: MatrixColumn, sizes: Uint64Column) -> ChunkRegion:
    """Return the layout of a compressed array's chunks, of `sizes: (n,)` bytes, in the piece `key` of the file."""
    count = len(sizes)
    none = np.zeros(count, np.uint64)
    chunks = PlannedChunks(
        np.arange(count, dtype=np.uint64).reshape(count, 1),
        none,
        sizes,
        np.zeros((count, 0, 3), np.uint64),
        none,
        np.ones(count, np.bool_),
    )
    return ChunkRegion.of(key, column_spec(column), ChunkForm.COMPRESSED, chunks)


def encode_column_chunk(spec: ChunkSpec, data: Buffer) -> Buffer:
    """Return the filtered bytes of a chunk of entries; a last chunk with fewer entries is padded with zeros."""
    missing = prod(spec.dims) * spec.dtype.itemsize - len(data)
    encoded, _ = apply_filters(spec.filters[0], bytes(data) + bytes(missing) if missing else data)
    return encoded


ANNDATA_NAMES = {
    MatrixPart.VALUES: "data",
    MatrixPart.ACROSS: "indices",
    MatrixPart.POINTERS: "indptr",
}
COMPRESSED_NAMES = {
    MatrixPart.VALUES: "values",
    MatrixPart.ACROSS: "indices_1",
    MatrixPart.POINTERS: "pointers_to_1",
}
LISTED_NAMES = {
    MatrixPart.VALUES: "values",
    MatrixPart.ALONG: "indices_0",
    MatrixPart.ACROSS: "indices_1",
}
FILL = "fill_value"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """The objects of one matrix in a file, and the pieces that follow the headers of all objects.

    `columns` maps the key of a piece to the array in the piece.
    """

    objects: tuple[PlannedObject, ...]
    pieces: tuple[FilePiece, ...]
    columns: dict[Key, MatrixColumn]
    regions: dict[Key, ChunkRegion]
    """Maps the key of a piece to the chunks of the compressed array in the piece."""


@dataclass(frozen=True, slots=True, eq=False)
class CompressedMatrix:
    """The bands of a matrix, and a dict that maps each array to the sizes in bytes of its compressed chunks."""

    bands: MatrixBands
    sizes: Mapping[MatrixPart, Uint64Column]


def plan_bands(record: Json, chunks: PlannedChunks, encoding: MatrixEncoding) -> MatrixBands:
    """Return the bands of a dataset in the order of `encoding`, which must fit the dataset.

    Raises `TooLarge` if the matrix would have too many pointers.
    """
    rows, columns = dims_of(record["shape"]) or ()
    bands = MatrixBands.of(chunk_spec(record), (rows, columns), encoding.axis, chunks)
    if encoding.kind != "coo":
        check_lines(bands)
    return bands


def plan_matrix(
    record: Json,
    bands: MatrixBands,
    encoding: MatrixEncoding,
    attributes: Sequence[PlannedAttribute],
    committed: Key | None = None,
    *,
    ordered: bool = False,
    sizes: Mapping[MatrixPart, Uint64Column] | None = None,
) -> MatrixPlan:
    """Plan the group of a matrix; the key of the group is the dataset's id.

    `sizes` maps each array to the sizes of its compressed chunks, or is None if the arrays are not compressed.
    """
    key, spec = record["id"], bands.spec
    values = file_type(spec.datatype.item)
    index = file_type("H5T_STD_I32LE" if bands.index.itemsize == 4 else "H5T_STD_I64LE")
    # Readers of matrices ignore the fill value; imports to hsparse restore it.
    fill = FillValue(spec.fill) if spec.fill else ZERO_FILL
    arrays: list[PlannedDataset] = []
    pieces: list[FilePiece] = []
    columns: dict[Key, MatrixColumn] = {}
    regions: dict[Key, ChunkRegion] = {}
    names = array_names(encoding)
    for part, name in names.items():
        column, place = MatrixColumn(bands, part), (key, name, "data")
        if part is MatrixPart.VALUES:
            array = _array((key, name), values, column.entries, place, fill, committed)
        else:
            array = _array((key, name), index, column.entries, place)
        if column.size:
            columns[place] = column
        if sizes is not None and column.size:
            found = plan_chunked(array, column_region(place, column, sizes[part]))
            assert found.region is not None
            array, regions[place] = found.planned, found.region
            pieces += found.pieces
        elif column.size:
            pieces.append(FilePiece(place, column.size))
        arrays.append(array)
    titles = list(names.values())
    if encoding.is_binsparse and any(spec.fill):
        titles.append(FILL)
        place = (key, FILL, "data")
        arrays.append(_array((key, FILL), values, 1, place, committed=committed))
        pieces.append(FilePiece(place, len(spec.fill), partial(_constant, spec.fill)))
    links = [PlannedLink(title, PlannedTarget(one.key)) for title, one in zip(titles, arrays, strict=True)]
    group = PlannedGroup(key, links, attributes, ordered)
    return MatrixPlan((group, *arrays), tuple(pieces), columns, regions)


def _array(
    key: Key,
    datatype: FileType,
    count: int,
    place: Key,
    fill: FillValue = ZERO_FILL,
    committed: Key | None = None,
) -> PlannedDataset:
    """Plan a contiguous dataset of `count` elements, whose data is the piece `place`."""
    size = count * datatype.size
    shape = {"class": "H5S_SIMPLE", "dims": [count]}
    layout = plan_layout(ContiguousLayout(None, size), place if size else None)
    return PlannedDataset(key, datatype, shape, layout, fill, committed=committed)


def array_names(encoding: MatrixEncoding) -> dict[MatrixPart, str]:
    """Return a dict that maps each array of a matrix to its name in the group."""
    if not encoding.is_binsparse:
        return ANNDATA_NAMES
    return LISTED_NAMES if encoding.kind == "coo" else COMPRESSED_NAMES


def _constant(data: bytes, address_of: AddressOf) -> bytes:
    return data
