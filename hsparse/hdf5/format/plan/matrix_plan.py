"""The plan of a sparse dataset that becomes a group with the arrays of a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hsparse.format.chunk_spec import chunk_spec
from hsparse.hdf5.format.file_fields import AddressOf, Key
from hsparse.hdf5.format.messages.file_type import FileType, file_type
from hsparse.hdf5.format.messages.layout_message import ContiguousLayout
from hsparse.hdf5.format.messages.object_messages import ZERO_FILL, FillValue
from hsparse.hdf5.format.plan.dataset_plan import plan_chunked
from hsparse.hdf5.format.plan.file_plan import FilePiece
from hsparse.hdf5.format.plan.matrix_bands import (
    MatrixBands,
    MatrixColumn,
    MatrixPart,
    check_lines,
    column_region,
)
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from hsparse.hdf5.format.plan.planned_chunks import ChunkRegion, PlannedChunks, Uint64Column
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
    """What a matrix adds to a file: objects, pieces behind all headers, and by their keys the columns in them."""

    objects: tuple[PlannedObject, ...]
    pieces: tuple[FilePiece, ...]
    columns: dict[Key, MatrixColumn]
    regions: dict[Key, ChunkRegion]
    """The chunks of those columns that are compressed."""


@dataclass(frozen=True, slots=True, eq=False)
class CompressedMatrix:
    """The elements of a matrix, and the sizes in bytes of the compressed chunks of each array."""

    bands: MatrixBands
    sizes: Mapping[MatrixPart, Uint64Column]


def plan_bands(record: Json, chunks: PlannedChunks, encoding: MatrixEncoding) -> MatrixBands:
    """Return the elements of a dataset that `encoding` fits, in the order that it has them in.

    `TooLarge` where it would have too many pointers.
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
    """Plan the group of a matrix; it has the dataset's key. With `sizes` its arrays are compressed."""
    key, spec = record["id"], bands.spec
    values = file_type(spec.datatype.item)
    index = file_type("H5T_STD_I32LE" if bands.index.itemsize == 4 else "H5T_STD_I64LE")
    # Readers of matrices ignore the fill value; an import restores it.
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
    """Return a dataset of `count` elements in one piece at `place`."""
    size = count * datatype.size
    shape = {"class": "H5S_SIMPLE", "dims": [count]}
    layout = plan_layout(ContiguousLayout(None, size), place if size else None)
    return PlannedDataset(key, datatype, shape, layout, fill, committed=committed)


def array_names(encoding: MatrixEncoding) -> dict[MatrixPart, str]:
    """Return the names of the arrays of a matrix."""
    if not encoding.is_binsparse:
        return ANNDATA_NAMES
    return LISTED_NAMES if encoding.kind == "coo" else COMPRESSED_NAMES


def _constant(data: bytes, address_of: AddressOf) -> bytes:
    return data
