"""The elements of a matrix that is a group of an HDF5 file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.cli.importer.file_data import FileData
from hsparse.cli.importer.file_objects import FileObjects, MatrixForm
from hsparse.cli.importer.object_body import fill_body, type_body
from hsparse.cli.importer.sparse_matrix import (
    BATCH,
    Matrix,
    MatrixElements,
    check_pointers,
    matrix_coordinates,
    row_of,
)
from hsparse.cli.importer.virtual_data import VirtualData, open_data
from hsparse.errors import Corrupt, Unsupported
from hsparse.format.hdf5.messages.fill_value_message import FillValue
from hsparse.format.hdf5.messages.layout_message import ChunkedLayout
from hsparse.format.hdf5.parse.parsed_elements import check_readable
from hsparse.format.hdf5.parse.parsed_object import parse_object
from hsparse.model.matrix_chunk import LARGEST_BATCH, chunk_of

Json = dict[str, Any]
Column = FileData | VirtualData


def open_matrix(objects: FileObjects, form: MatrixForm) -> Matrix:
    """Open a matrix; raise `Corrupt` if its parts do not fit together."""
    data = _column(objects, form.values, "values")
    indices = [_column(objects, address, "indices") for address in form.indices]
    count = indices[0].dims[0]
    if any(one.dims[0] != count for one in indices) or data.dims[0] != (1 if form.iso else count):
        raise Corrupt(f"The matrix has {data.dims[0]} values and {[one.dims[0] for one in indices]} indices.")
    pointers = None
    if form.pointers is not None:
        found = _column(objects, form.pointers, "pointers")
        pointers = np.asarray(found.read((0,), found.dims)).astype(np.int64)
        check_pointers(pointers, form.shape[form.kind == "csc"], count)
    chunk = chunk_of(form.shape, count, objects.matrix_chunk)
    cuts = _cuts(form, data, pointers, count, chunk)
    most = max((end - begin for begin, end in pairwise(cuts)), default=0)
    batches = _batches(form, data, indices, pointers, cuts)
    return Matrix(form.shape, data.dataset.type.item, data.size, count, batches, most=most, chunk=chunk)


def values_body(objects: FileObjects, form: MatrixForm) -> Json:
    """Return the type and the fill value of a matrix's dataset.

    The fill value is Binsparse's `fill_value`, or else HDF5's of the dataset of values. `Unsupported` if its type is
    not that of the values.
    """
    dataset = _column(objects, form.values, "values").dataset
    if form.fill is not None:
        fill = _column(objects, form.fill, "fill value")
        if fill.dataset.type != dataset.type or fill.dims != (1,):
            raise Unsupported("The fill value of the matrix is not one value of their type; use --as-is.")
        dataset = replace(dataset, fill=FillValue(np.asarray(fill.read((0,), (1,))).tobytes()))
    kind = type_body(objects, dataset.type, dataset.committed)
    return {"type": kind, "creationProperties": fill_body(objects, dataset)}


def _column(objects: FileObjects, address: int, what: str) -> Column:
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


def _cuts(
    form: MatrixForm,
    data: Column,
    pointers: NDArray[np.int64] | None,
    count: int,
    chunk_dims: tuple[int, ...],
) -> list[int]:
    """Return the starts of batches of elements, and the end.

    A batch of a compressed matrix has all lines of some chunks, unless these are too many.
    """
    layout = data.dataset.layout
    chunk = layout.dims[0] if isinstance(layout, ChunkedLayout) else 1
    step = max(1, BATCH // chunk) * chunk  # so that hardly any chunk is decoded twice
    if pointers is None:
        return [*range(0, count, step), count]
    lines = chunk_dims[form.kind == "csc"]
    cuts, last = [0], 0
    for end in [*pointers[lines::lines].tolist(), count]:
        if end - cuts[-1] > BATCH and last > cuts[-1]:
            cuts.append(last)
        while end - cuts[-1] > LARGEST_BATCH:
            cuts.append(cuts[-1] + step)
        last = end
    return [*cuts, count] if count > cuts[-1] else cuts


def _batches(
    form: MatrixForm,
    data: Column,
    indices: list[Column],
    pointers: NDArray[np.int64] | None,
    cuts: list[int],
) -> Iterator[tuple[int, Callable[[], MatrixElements]]]:
    for begin, end in pairwise(cuts):
        nbytes = (end - begin) * (data.size + sum(one.size for one in indices))
        yield nbytes, partial(_read, form, data, indices, pointers, begin, end)


def _read(
    form: MatrixForm,
    data: Column,
    indices: list[Column],
    pointers: NDArray[np.int64] | None,
    begin: int,
    end: int,
) -> MatrixElements:
    values = np.asarray(data.read((0,), (1,)) if form.iso else data.read((begin,), (end,)))
    if form.iso:
        values = np.repeat(values, end - begin)
    found = [np.asarray(one.read((begin,), (end,))) for one in indices]
    first = found[0] if pointers is None else row_of(pointers, begin, end)
    return matrix_coordinates(first, found[-1], form.kind), values
