"""Read pixels of detector frames, which an HDF5 file stores as columns of values and indices, as a sparse matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.hdf5_matrix import Column, open_column
from hsparse.hdf5.importer.matrix_forms import FramesForm
from hsparse.hdf5.importer.sparse_matrix import (
    ELEMENTS_PER_REQUEST,
    Matrix,
    MatrixElements,
    check_pointers,
    row_of,
)
from hsparse.model.initial_values import IN_CHUNK, LARGEST_BATCH, chunk_of
from hsparse.model.layout import MAX_CHUNK_ELEMENTS


def open_frames(objects: FileObjects, form: FramesForm) -> Matrix:
    """Open the pixels as a matrix; raises `Corrupt` if columns have different lengths or pointers are wrong."""
    values = open_column(objects, form.values, "values")
    indices = [open_column(objects, address, "indices") for address in form.indices]
    count = values.dims[0]
    if any(one.dims[0] != count for one in indices):
        raise Corrupt(f"The frames have {count} values, but {[one.dims[0] for one in indices]} indices.")
    pointers = _pointers(objects, form, count)
    chunk = objects.matrix_chunk or _chunk_of(form.shape, count)
    chunk = chunk_of(form.shape, count, chunk)
    width = chunk[0] if len(form.shape) == 3 else 1
    ranges = list(_ranges(pointers, width, count))
    most = max((end - begin for begin, end in ranges), default=0)
    batches = _batches(form, values, indices, pointers, ranges)
    return Matrix(form.shape, values.dataset.type.item, values.size, count, batches, most=most, chunk=chunk)


def _pointers(objects: FileObjects, form: FramesForm, count: int) -> NDArray[np.int64]:
    """Return the number of each frame's first pixel, and the number of all pixels at the end: (frames + 1,) int64."""
    if form.pointers is None and form.counts is None:
        return np.array([0, count])
    frames = form.shape[0]
    address = form.counts if form.pointers is None else form.pointers
    assert address is not None
    column = open_column(objects, address, "pointers")
    found = np.asarray(column.read((0,), column.dims)).astype(np.int64)
    if form.pointers is None:
        if len(found) != frames or (found < 0).any() or (found > count).any():
            raise Corrupt(
                f"The {len(found)} pixel counts do not fit {frames} frames with {count} pixels in total."
            )
        found = np.concatenate(([0], np.cumsum(found)))
    check_pointers(found, frames, count)
    return found


def _chunk_of(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return dimensions of chunks of whole frames, or of some rows of large frames; () if `chunk_of` must choose."""
    if len(shape) == 2 or 0 in shape:
        return ()
    frames, rows, columns = shape
    each = max(1, count // frames)
    wide = min(columns, MAX_CHUNK_ELEMENTS)
    high = max(1, min(rows, rows * IN_CHUNK // each, MAX_CHUNK_ELEMENTS // wide))
    return max(1, min(frames, IN_CHUNK // each, MAX_CHUNK_ELEMENTS // (high * wide))), high, wide


def _ranges(pointers: NDArray[np.int64], width: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of about `ELEMENTS_PER_REQUEST` pixels. If possible, ranges end at multiples of `width` frames."""
    begin = last = 0
    for end in [*pointers[width::width].tolist(), count]:
        if end - begin > ELEMENTS_PER_REQUEST and last > begin:
            yield begin, last
            begin = last
        while end - begin > LARGEST_BATCH:
            yield begin, begin + ELEMENTS_PER_REQUEST
            begin += ELEMENTS_PER_REQUEST
        last = end
    if count > begin:
        yield begin, count


def _batches(
    form: FramesForm,
    values: Column,
    indices: list[Column],
    pointers: NDArray[np.int64],
    ranges: list[tuple[int, int]],
) -> Iterator[tuple[int, Callable[[], MatrixElements]]]:
    size = values.size + sum(one.size for one in indices)
    for begin, end in ranges:
        yield size * (end - begin), partial(_read, form, values, indices, pointers, begin, end)


def _read(
    form: FramesForm,
    values: Column,
    indices: list[Column],
    pointers: NDArray[np.int64],
    begin: int,
    end: int,
) -> MatrixElements:
    found = [np.asarray(one.read((begin,), (end,))) for one in indices]
    if any(len(one) and int(one.min()) < 0 for one in found):
        raise Corrupt("An index of a pixel is negative.")
    rows, columns = form.shape[-2:]
    if len(found) == 1:
        if len(found[0]) and int(found[0].max()) >= rows * columns:
            raise Corrupt(f"An index of a pixel is beyond the frame of {rows} x {columns}.")
        found = [found[0] // columns, found[0] % columns]
    coords = np.empty((end - begin, len(form.shape)), np.uint64)
    if len(form.shape) == 3:
        coords[:, 0] = row_of(pointers, begin, end)
    coords[:, -2], coords[:, -1] = found
    return coords, np.asarray(values.read((begin,), (end,)))
