"""Read sparse arrays from `.npz` files, written by `scipy.sparse.save_npz` or pydata's `sparse.save_npz`."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.types.datatype import type_item
from hsparse.errors import Corrupt, Unsupported
from hsparse.hdf5.importer.matrix_chunks import Lines
from hsparse.hdf5.importer.matrix_market import COMPLEX
from hsparse.hdf5.importer.source import InputFile
from hsparse.hdf5.importer.sparse_matrix import (
    ELEMENTS_PER_REQUEST,
    Matrix,
    MatrixElements,
    check_pointers,
    row_of,
)

Arrays = dict[str, NDArray[Any]]


def open_npz(source: InputFile) -> Matrix:
    """Load the sparse array of a file, without unpickling objects; raises `Corrupt` and `Unsupported`."""
    path = source.name
    try:
        with source.file() as file, np.load(file, allow_pickle=False) as found:
            arrays: Arrays = {name: found[name] for name in found.files}
    except (ValueError, TypeError, KeyError, OSError, EOFError, MemoryError) as error:
        raise Corrupt(f"{path} is no .npz file of plain arrays: {error}.") from error
    except (zipfile.BadZipFile, zlib.error) as error:
        raise Corrupt(f"{path} is no .npz file of plain arrays: {error}.") from error
    try:
        return _matrix(path, arrays)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise Corrupt(f"{path} has no sparse array of scipy or pydata: {error}.") from error


def _matrix(path: str, arrays: Arrays) -> Matrix:
    shape = tuple(map(int, arrays["shape"]))
    fill = arrays["fill_value"].item() if "fill_value" in arrays else 0
    kind = _kind(arrays)
    if kind in ("csr", "csc"):
        return _compressed(arrays, shape, kind)
    if "coords" in arrays:
        coords, values = arrays["coords"].T, arrays["data"]
    elif "compressed_axes" in arrays:
        coords, values = _from_gcxs(arrays, shape)
    else:
        coords, values = _from_scipy(path, arrays, kind, shape)
    if values.dtype.kind == "c":
        fill = [fill.real, fill.imag] if isinstance(fill, complex) else [float(fill), 0.0]
        values = _values(values)
    item = _item(values.dtype)
    if values.ndim != 1 or coords.shape != (len(values), len(shape)) or coords.dtype.kind not in "iu":
        raise ValueError(f"coordinates {coords.shape} and values {values.shape} of an array {shape}")
    if len(coords) and (int(coords.min()) < 0 or (coords >= np.array(shape)).any()):
        raise Corrupt(f"{path} has elements outside of its shape {list(shape)}.")
    return Matrix(
        shape,
        item,
        values.dtype.itemsize,
        len(values),
        _batches(coords, values),
        fill if np.any(fill) else None,
    )


def _item(dtype: np.dtype[Any]) -> Any:
    if dtype.kind != "c":
        return type_item(dtype)
    name = f"H5T_IEEE_F{dtype.itemsize * 4}LE"
    return COMPLEX | {"fields": [{"name": part, "type": name} for part in "ri"]}


def _batches(
    coords: NDArray[Any], values: NDArray[Any]
) -> Iterator[tuple[int, Callable[[], MatrixElements]]]:
    for at in range(0, len(values), ELEMENTS_PER_REQUEST):
        part = values[at : at + ELEMENTS_PER_REQUEST]
        yield part.nbytes, partial(_take, coords[at : at + ELEMENTS_PER_REQUEST], part)


def _take(coords: NDArray[Any], values: NDArray[Any]) -> MatrixElements:
    return np.ascontiguousarray(coords, np.uint64), values


def _kind(arrays: Arrays) -> str:
    """Return scipy's name of the array's format, or an empty text for an array of pydata."""
    kind: str | bytes = arrays["format"].item() if "format" in arrays else ""
    return kind.decode() if isinstance(kind, bytes) else kind


def _compressed(arrays: Arrays, shape: tuple[int, ...], kind: str) -> Matrix:
    pointers, indices, values = arrays["indptr"].astype(np.int64), arrays["indices"], _values(arrays["data"])
    check_pointers(pointers, shape[kind == "csc"], len(values))
    if indices.shape != values.shape or values.ndim != 1 or indices.dtype.kind not in "iu":
        raise ValueError(f"indices {indices.shape} and values {values.shape}")

    def read(begin: int, end: int) -> tuple[NDArray[Any], NDArray[Any]]:
        return indices[begin:end], values[begin:end]

    lines = Lines(int(kind == "csc"), pointers, read, 1, indices.nbytes + values.nbytes)
    return Matrix(shape, _item(values.dtype), values.dtype.itemsize, len(values), lines=lines)


def _values(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values; complex values are converted to little-endian complex64 or complex128."""
    if values.dtype.kind != "c":
        return values
    return values.astype("<c8" if values.dtype.itemsize == 8 else "<c16")


def _from_scipy(
    path: str, arrays: Arrays, kind: str, shape: tuple[int, ...]
) -> tuple[NDArray[Any], NDArray[Any]]:
    data = arrays["data"]
    if kind == "coo":
        names = ("row", "col") if "row" in arrays else tuple(f"coords_{dim}" for dim in range(len(shape)))
        if "coords" in arrays:
            return arrays["coords"].T, data
        return np.stack([arrays[name] for name in names], axis=1), data
    if kind == "bsr":
        return _from_bsr(arrays, shape)
    if kind == "dia":
        return _from_dia(arrays, shape)
    raise Unsupported(f"{path} has a sparse array of format {kind}: save it as coo, csr, csc, bsr or dia.")


def _lines(arrays: Arrays, lines: int, count: int) -> NDArray[np.int64]:
    pointers = arrays["indptr"].astype(np.int64)
    check_pointers(pointers, lines, count)
    return row_of(pointers, 0, count) if count else np.zeros(0, np.int64)


def _from_bsr(arrays: Arrays, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    data = arrays["data"]
    count, high, wide = data.shape
    lines = _lines(arrays, shape[0] // high, count)
    rows = (lines * high)[:, None, None] + np.arange(high)[None, :, None]
    places = (arrays["indices"].astype(np.int64) * wide)[:, None, None] + np.arange(wide)[None, None, :]
    pair = np.broadcast_arrays(rows, places)
    return np.stack([one.reshape(-1) for one in pair], axis=1), data.reshape(-1)


def _from_dia(arrays: Arrays, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    data, offsets = arrays["data"], arrays["offsets"].astype(np.int64)
    column = np.broadcast_to(np.arange(data.shape[1]), data.shape)
    row = column - offsets[:, None]
    inside = (row >= 0) & (row < shape[0]) & (column < shape[1]) & (data != 0)
    return np.stack((row[inside], column[inside]), axis=1), data[inside]


def _from_gcxs(arrays: Arrays, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the coordinates and values of an array in pydata's format GCXS, which has two linearized axes."""
    data, indices = arrays["data"], arrays["indices"].astype(np.int64)
    compressed = [int(axis) for axis in np.atleast_1d(arrays["compressed_axes"])]
    others = [axis for axis in range(len(shape)) if axis not in compressed]
    first, second = ([shape[axis] for axis in some] for some in (compressed, others))
    lines = _lines(arrays, prod(first), len(data))
    coords = np.empty((len(data), len(shape)), np.int64)
    coords[:, compressed] = np.stack(np.unravel_index(lines, first), axis=1)
    coords[:, others] = np.stack(np.unravel_index(indices, second), axis=1)
    return coords, data
