"""The elements of a matrix that is a group of an HDF5 file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.messages.object_messages import FillValue
from hsparse.hdf5.format.parse.parsed_elements import check_readable
from hsparse.hdf5.format.parse.parsed_object import parse_object
from hsparse.hdf5.importer.file_data import FileData
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.matrix_forms import MatrixForm
from hsparse.hdf5.importer.object_body import fill_body, type_body
from hsparse.hdf5.importer.sparse_matrix import (
    BATCH,
    Matrix,
    MatrixElements,
    check_pointers,
    matrix_coordinates,
    row_of,
)
from hsparse.hdf5.importer.virtual_data import VirtualData, open_data
from hsparse.model.initial_values import LARGEST_BAND, LARGEST_BATCH, chunk_of

FILLED = 0.8
"""The part of a batch's elements that one of several batches of the same lines has, which may be filled unevenly."""
READ_DIVISOR = 8
"""How many stored elements take the memory of one in a request."""
Json = dict[str, Any]
Column = FileData | VirtualData


def open_matrix(objects: FileObjects, form: MatrixForm) -> Matrix:
    """Open a matrix; raise `Corrupt` if its parts do not fit together."""
    data = open_column(objects, form.values, "values")
    indices = [open_column(objects, address, "indices") for address in form.indices]
    count = indices[0].dims[0]
    if any(one.dims[0] != count for one in indices) or data.dims[0] != (1 if form.iso else count):
        raise Corrupt(f"The matrix has {data.dims[0]} values and {[one.dims[0] for one in indices]} indices.")
    pointers = None
    if form.pointers is not None:
        found = open_column(objects, form.pointers, "pointers")
        pointers = np.asarray(found.read((0,), found.dims)).astype(np.int64)
        check_pointers(pointers, form.shape[form.kind == "csc"], count)
    chunk = chunk_of(form.shape, count, objects.matrix_chunk, by_chunks=pointers is not None)
    parts = _parts(form, data, pointers, count, chunk)
    most = max((part.memory for part in parts), default=0)
    batches = _batches(form, data, indices, pointers, parts)
    return Matrix(form.shape, data.dataset.type.item, data.size, count, batches, most=most, chunk=chunk)


def values_body(objects: FileObjects, form: MatrixForm) -> Json:
    """Return the type and the fill value of a matrix's dataset.

    The fill value is Binsparse's `fill_value`, or else HDF5's of the dataset of values. `Unsupported` if its type is
    not that of the values.
    """
    dataset = open_column(objects, form.values, "values").dataset
    if form.fill is not None:
        fill = open_column(objects, form.fill, "fill value")
        if fill.dataset.type != dataset.type or fill.dims != (1,):
            raise Unsupported("The fill value of the matrix is not one value of their type; use --as-is.")
        dataset = replace(dataset, fill=FillValue(np.asarray(fill.read((0,), (1,))).tobytes()))
    kind = type_body(objects, dataset.type, dataset.committed)
    return {"type": kind, "creationProperties": fill_body(objects, dataset)}


def open_column(objects: FileObjects, address: int, what: str) -> Column:
    """Return a part of a matrix, whole numbers if it is no values; `Corrupt` and `Unsupported` if it cannot be one."""
    stored = objects.source.run(parse_object(objects.file, address)).dataset
    if stored is None:
        raise Corrupt(f"The {what} of the matrix are no dataset.")
    check_readable(stored.type)
    column = open_data(objects, stored)
    if len(column.dims) != 1:
        raise Corrupt(f"The {what} of the matrix have {len(column.dims)} dimensions, not 1.")
    if what in ("indices", "pointers") and stored.type.item["class"] != "H5T_INTEGER":
        raise Corrupt(f"The {what} of the matrix are no integers.")
    layout = column.dataset.layout
    if isinstance(layout, ChunkedLayout):
        is_whole = column.records is not None and len(column.records) == -(-column.dims[0] // layout.dims[0])
    else:
        is_whole = column.is_allocated or not column.dims[0]
    if not is_whole:
        raise Corrupt(f"Not all {what} of the matrix were written; --as-is imports them as they are.")
    if not column.is_raw:
        raise Unsupported("A matrix whose values have no fixed size cannot be imported; use --as-is.")
    return column


@dataclass(frozen=True, slots=True)
class _Part:
    """Stored elements from `begin` to `end`, of a compressed matrix maybe only those with indices from `low` to `high`.

    `fraction` is about which part of the elements these are. An index beyond the matrix is in the first or the last
    part, and refused there.
    """

    begin: int
    end: int
    low: int = 0
    high: int | None = None
    fraction: float = 1.0

    @property
    def memory(self) -> int:
        """As many elements as have the memory that reading the part takes."""
        count = self.end - self.begin
        return max(int(count * self.fraction), count // READ_DIVISOR)


def _parts(
    form: MatrixForm,
    data: Column,
    pointers: NDArray[np.int64] | None,
    count: int,
    chunk_dims: tuple[int, ...],
) -> list[_Part]:
    """Return the parts of which each is a batch.

    A batch of a compressed matrix has all lines of some chunks or, where these are too many, all elements of some of
    these chunks; unless the lines are too many to be read for each of several batches.
    """
    layout = data.dataset.layout
    chunk = layout.dims[0] if isinstance(layout, ChunkedLayout) else 1
    step = max(1, BATCH // chunk) * chunk  # so that hardly any chunk is decoded twice
    if pointers is None:
        return [_Part(begin, min(begin + step, count)) for begin in range(0, count, step)]
    axis = int(form.kind == "csc")
    lines, width, length = chunk_dims[axis], chunk_dims[1 - axis], form.shape[1 - axis]
    parts, begin, last = [], 0, 0
    for end in [*pointers[lines::lines].tolist(), count]:
        if end - begin > BATCH and last > begin:
            parts.append(_Part(begin, last))
            begin = last
        if LARGEST_BATCH < end - begin <= LARGEST_BAND:
            parts += _divided(begin, end, width, length)
            begin = end
        while end - begin > LARGEST_BATCH:
            parts.append(_Part(begin, begin + step))
            begin += step
        last = end
    return [*parts, _Part(begin, count)] if count > begin else parts


def _divided(begin: int, end: int, width: int, length: int) -> list[_Part]:
    """Return parts of lines, each of whole chunks of `width` indices below `length`, below a batch if evenly filled."""
    chunks = -(-length // width)
    some = width * max(1, int(FILLED * LARGEST_BATCH) * chunks // (end - begin))
    return [
        _Part(begin, end, low, low + some if low + some < length else None, min(some, length - low) / length)
        for low in range(0, length, some)
    ]


def _batches(
    form: MatrixForm,
    data: Column,
    indices: list[Column],
    pointers: NDArray[np.int64] | None,
    parts: list[_Part],
) -> Iterator[tuple[int, Callable[[], MatrixElements]]]:
    for part in parts:
        nbytes = int((part.end - part.begin) * part.fraction) * (data.size + sum(one.size for one in indices))
        yield nbytes, partial(_read, form, data, indices, pointers, part)


def _read(
    form: MatrixForm,
    data: Column,
    indices: list[Column],
    pointers: NDArray[np.int64] | None,
    part: _Part,
) -> MatrixElements:
    begin, end = part.begin, part.end
    found = [np.asarray(one.read((begin,), (end,))) for one in indices]
    values = np.asarray(data.read((0,), (1,)) if form.iso else data.read((begin,), (end,)))
    if form.iso:
        values = np.repeat(values, end - begin)
    if pointers is None:
        return matrix_coordinates(found[0], found[-1], form.kind), values
    if not part.low and part.high is None:
        return matrix_coordinates(row_of(pointers, begin, end), found[-1], form.kind), values
    inside = found[-1] >= part.low if part.low else np.ones(end - begin, np.bool_)
    if part.high is not None:
        inside &= found[-1] < part.high
    places = np.flatnonzero(inside)
    lines = np.searchsorted(pointers, places + begin, "right") - 1
    return matrix_coordinates(lines, found[-1][places], form.kind), values[places]
