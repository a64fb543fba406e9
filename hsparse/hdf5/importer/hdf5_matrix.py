"""Read the elements of a sparse matrix that is a group of an HDF5 file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.messages.object_messages import FillValue
from hsparse.hdf5.format.parse.parsed_elements import check_readable
from hsparse.hdf5.format.parse.parsed_object import parse_object
from hsparse.hdf5.importer.file_data import InputData
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.matrix_chunks import Lines
from hsparse.hdf5.importer.matrix_forms import EVENTS, FramesForm, MatrixForm
from hsparse.hdf5.importer.object_body import fill_body, type_body
from hsparse.hdf5.importer.sparse_matrix import (
    ELEMENTS_PER_REQUEST,
    Matrix,
    MatrixElements,
    check_pointers,
    matrix_coordinates,
)
from hsparse.hdf5.importer.virtual_data import VirtualData, open_data
from hsparse.model.initial_values import chunk_of

Json = dict[str, Any]
Column = InputData | VirtualData
COUNT = {"class": "H5T_INTEGER", "base": "H5T_STD_U32LE"}
"""The datatype of event counts."""
MOST_IN_PULSE = 2**32 - 1


def open_matrix(objects: FileObjects, form: MatrixForm) -> Matrix:
    """Open the matrix that `form` describes; raises `Corrupt` if its values, indices and pointers contradict."""
    data = open_column(objects, form.values, "values")
    indices = [open_column(objects, address, "indices") for address in form.indices]
    count = indices[0].dims[0]
    if any(one.dims[0] != count for one in indices) or data.dims[0] != (1 if form.iso else count):
        raise Corrupt(f"The matrix has {data.dims[0]} values and {[one.dims[0] for one in indices]} indices.")
    pointers = None
    if form.pointers is not None:
        pointers = read_pointers(objects, form, count)
    chunk = chunk_of(form.shape, count, objects.matrix_chunk, by_chunks=pointers is not None)
    layout = data.dataset.layout
    stored = layout.dims[0] if isinstance(layout, ChunkedLayout) else 1
    matrix = Matrix(form.shape, data.dataset.type.item, data.size, count, chunk=chunk)
    if form.kind == EVENTS:
        matrix = replace(matrix, item=COUNT, itemsize=4)
    if pointers is not None:
        return replace(matrix, lines=_lines(form, data, indices[-1], pointers, stored))
    step = max(1, ELEMENTS_PER_REQUEST // stored) * stored  # whole chunks, so that few are decoded twice
    return replace(matrix, batches=_batches(form, data, indices, count, step), most=step)


def read_pointers(objects: FileObjects, form: MatrixForm, count: int) -> NDArray[np.int64]:
    """Return the number of each line's first element, and at the end the number of all elements: (lines + 1,) int64.

    A line is a row or a column. Raises `Corrupt`, or `Unsupported` if a pulse has too many events.
    """
    assert form.pointers is not None
    column = open_column(objects, form.pointers, "pointers")
    lines = form.shape[form.kind == "csc"]
    found = np.asarray(column.read((0,), column.dims)).astype(np.int64)
    if form.kind == EVENTS:
        # Some programs also write the end of the last pulse, or write -1 for pulses after the last event.
        found[found == -1] = count
        if len(found) < lines or (found[lines:] != count).any():
            raise Corrupt(
                f"event_index has {len(found)} entries, event_time_zero {lines}; entries beyond must be {count}."
            )
        found = np.append(found[:lines], count)
    check_pointers(found, lines, count)
    if form.kind == EVENTS and int(np.diff(found).max()) > MOST_IN_PULSE:
        raise Unsupported(f"A pulse has more than {MOST_IN_PULSE} events, the limit: omit --events.")
    return found


def values_body(objects: FileObjects, form: MatrixForm | FramesForm) -> Json:
    """Return the type and fill value of a matrix's dataset, for the request body that creates the dataset.

    The fill value is Binsparse's `fill_value`, or else the HDF5 fill value of the dataset of values. Raises
    `Unsupported` if the fill value's type differs from the values' type.
    """
    if isinstance(form, MatrixForm) and form.kind == EVENTS:
        return {"type": COUNT, "creationProperties": {}}
    dataset = open_column(objects, form.values, "values").dataset
    if isinstance(form, MatrixForm) and form.fill is not None:
        fill = open_column(objects, form.fill, "fill value")
        if fill.dataset.type != dataset.type or fill.dims != (1,):
            raise Unsupported(
                "The fill value of the matrix must be one value of the type of its values; use --as-is."
            )
        dataset = replace(dataset, fill=FillValue(np.asarray(fill.read((0,), (1,))).tobytes()))
    kind = type_body(objects, dataset.type, dataset.committed)
    return {"type": kind, "creationProperties": fill_body(objects, dataset)}


def open_column(objects: FileObjects, address: int, what: str) -> Column:
    """Open the column of a matrix at `address`; `what` is values, indices, pointers or fill value, also in errors."""
    stored = objects.source.run(parse_object(objects.file, address)).dataset
    if stored is None:
        raise Corrupt(f"The {what} of the matrix are no dataset.")
    check_readable(stored.type)
    column = open_data(objects, stored)
    if isinstance(column, VirtualData):
        column.find_sources()
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


def column_bytes(column: Column) -> int:
    """Return the number of bytes that a column takes in the file."""
    return column.dims[0] * column.size if column.records is None else int(column.records.size.sum())


def _lines(form: MatrixForm, data: Column, indices: Column, pointers: NDArray[np.int64], step: int) -> Lines:
    def read(begin: int, end: int) -> tuple[NDArray[Any], NDArray[Any]]:
        return _read(indices, begin, end), _values(form, data, begin, end)

    nbytes = column_bytes(data) + column_bytes(indices)
    return Lines(int(form.kind == "csc"), pointers, read, step, nbytes, adds_up=form.kind == EVENTS)


def _batches(
    form: MatrixForm, data: Column, indices: list[Column], count: int, step: int
) -> Iterator[tuple[int, Callable[[], MatrixElements]]]:
    nbytes = sum(map(column_bytes, (data, *indices)))
    for begin in range(0, count, step):
        end = min(begin + step, count)
        yield (
            nbytes * end // count - nbytes * begin // count,
            partial(_elements, form, data, indices, begin, end),
        )


def _elements(form: MatrixForm, data: Column, indices: list[Column], begin: int, end: int) -> MatrixElements:
    found = [_read(one, begin, end) for one in indices]
    return matrix_coordinates(found[0], found[-1], form.kind), _values(form, data, begin, end)


def _values(form: MatrixForm, data: Column, begin: int, end: int) -> NDArray[Any]:
    if form.kind == EVENTS:
        return np.ones(end - begin, "<u4")
    return np.repeat(_read(data, 0, 1), end - begin) if form.iso else _read(data, begin, end)


def _read(column: Column, begin: int, end: int) -> NDArray[Any]:
    return np.asarray(column.read((begin,), (end,)))
