"""Read the arrays of a Zarr store: dense arrays in boxes of whole chunks, and AnnData's sparse matrices."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.format.plan.grid import Grid
from hsparse.hdf5.importer.dense_upload import MAX_REQUEST_BYTES, box_bands
from hsparse.hdf5.importer.formats.domain_parts import Bodies, BoxedArray, Dims
from hsparse.hdf5.importer.formats.zarr_store import LARGEST_CHUNK, library_errors
from hsparse.hdf5.importer.matrix_chunks import Lines
from hsparse.hdf5.importer.object_body import MAX_KEPT
from hsparse.hdf5.importer.sparse_matrix import Matrix, check_pointers
from hsparse.model.initial_values import LARGEST_BAND, chunk_of
from hsparse.model.layout import MAX_CHUNK_BYTES

TEXT_SIZE = 64
"""The estimated number of bytes of a vlen element."""
MOST_POINTERS = 1 << 29
FILTERS = [{"id": 2}, {"id": 1, "level": 4}]
"""The filters shuffle and deflate, which replace any compressor of the store."""
Sizes = Mapping[str, int]
"""Maps keys of chunks to sizes in bytes."""


class ZarrArray:
    """The array at `path`; `keys` maps relative keys of stored chunks or shards to their sizes in bytes."""

    def __init__(self, path: str, array: zarr.Array, keys: Sizes) -> None:
        """Open an array; raises `Unsupported` if HDF5 has no such type, or if chunks are too large to be read."""
        self.path = path
        self.keys = keys
        self._array = array
        with library_errors(f"/{path}"):
            self.shape: Dims = tuple(map(int, array.shape))
            self.chunk: Dims = tuple(map(int, array.chunks))
            self._stored_by: Dims = tuple(map(int, array.shards or array.chunks))
            self._dtype = np.dtype(array.dtype)
            self._fill = array.fill_value
            self._is_compressed = bool(array.compressors)
        self._form = _form_of(self._dtype)
        self.kind = Hdf5Type.of(np.empty(0, self._form))
        self.itemsize = TEXT_SIZE if self.kind.is_vlen else self._dtype.itemsize
        if prod(self.chunk) * self.itemsize > LARGEST_CHUNK:
            raise Unsupported(
                f"It has chunks of more than {LARGEST_CHUNK} bytes; write it with smaller ones."
            )

    @property
    def stored(self) -> int:
        """The number of bytes of all stored chunks."""
        return sum(self.keys.values())

    def read(self, start: Dims, stop: Dims) -> NDArray[Any]:
        """Return the elements of the box `start:stop`, text as objects. Error messages do not name the array's path."""
        with library_errors("It is damaged"):
            found = np.asarray(self._array[tuple(map(slice, start, stop))])
            shape = tuple(b - a for a, b in zip(start, stop, strict=True))
            return found.astype(self._form, copy=False).reshape(shape)

    def boxed(self) -> BoxedArray:
        """Return the array as a `BoxedArray`, for a dense dataset."""
        boxes = list(self._boxes())
        largest = max((prod(map(int.__sub__, stop, start)) for _, start, stop in boxes), default=1)
        return BoxedArray(
            self.shape, self.kind, self._properties(), boxes, self.read, 3 * largest * self.itemsize
        )

    def chunks(self) -> dict[Dims, int]:
        """Return a dict of scaled coordinates to size in bytes for all stored chunks or shards inside the extent."""
        grid, found = Grid(self.shape, self._stored_by), {}
        for key, size in self.keys.items():
            place = tuple(map(int, re.findall(r"[0-9]{1,20}", key)))
            if grid.holds(place) and self._array.metadata.encode_chunk_key(place) == key:
                found[place] = size
        return found

    def _boxes(self) -> Iterator[tuple[int, Dims, Dims]]:
        if 0 in self.shape:
            return
        if not self.shape:  # a scalar gets no fill value, so it is read even if it is not stored
            yield self.stored, (), ()
            return
        grid, chunks = Grid(self.shape, self._stored_by), self.chunks()
        size = prod(self._stored_by) * self.itemsize
        if 1 < len(chunks) == grid.size:
            for first, last in box_bands(grid.counts, size):
                start, stop = grid.origin(first), tuple(map(min, self.shape, grid.origin(last)))
                share = prod(map(int.__sub__, stop, start)) / prod(self.shape)
                yield from self._pieces(int(self.stored * share), start, stop)
        else:
            for place, nbytes in sorted(chunks.items()):
                yield from self._pieces(nbytes, *grid.bounds(place))

    def _pieces(self, nbytes: int, start: Dims, stop: Dims) -> Iterator[tuple[int, Dims, Dims]]:
        """Yield (bytes, start, stop) of boxes that divide a box at chunk boundaries, to fit `MAX_REQUEST_BYTES`."""
        if prod(map(int.__sub__, stop, start)) * self.itemsize > MAX_REQUEST_BYTES:
            for axis, (a, b, length) in enumerate(zip(start, stop, self.chunk, strict=True)):
                first, last = a // length, -(-b // length)
                if last - first > 1:
                    middle = (first + last) // 2 * length
                    yield from self._pieces(nbytes // 2, start, (*stop[:axis], middle, *stop[axis + 1 :]))
                    yield from self._pieces(nbytes // 2, (*start[:axis], middle, *start[axis + 1 :]), stop)
                    return
        yield nbytes, start, stop

    def _properties(self) -> Bodies:
        if not self.shape:
            return {}
        properties: Bodies = {}
        dims = tuple(max(1, min(pair)) for pair in zip(self.chunk, self.shape, strict=True))
        layout: Bodies = {"class": "H5D_CHUNKED"}
        if 0 not in self.shape and prod(dims) * self.itemsize <= MAX_CHUNK_BYTES:
            layout["dims"] = list(dims)
            if Grid(self.shape, dims).size <= MAX_KEPT:
                layout["enlarge"] = False
        properties["layout"] = layout
        if self._is_compressed and not self.kind.is_vlen:
            properties["filters"] = FILTERS
        return properties | self._fill_value()

    def _fill_value(self) -> Bodies:
        if self._fill is None or self._dtype.kind in "TU":
            return {"fillValue": str(self._fill)} if self._fill else {}
        data = np.asarray(self._fill, self._dtype).tobytes()
        if not any(data):
            return {}
        if self.kind.is_vlen:
            if len(self.chunks()) < Grid(self.shape, self._stored_by).size:
                raise Unsupported("The array has compounds with text, and missing chunks: write all chunks.")
            return {}
        try:
            return {"fillValue": self.kind.to_json(np.frombuffer(data, self._dtype).reshape(()))}
        except BadRequest:
            return {"fillValue": b64encode(data).decode(), "fillValue_encoding": "base64"}


def _form_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype that `Hdf5Type` supports, with objects for text, even in compounds; raises `Unsupported`."""
    if dtype.kind in "TU":
        return np.dtype(object)
    if dtype.names is not None:
        return np.dtype([(name, _form_of(dtype[name])) for name in dtype.names])
    if dtype.kind in "OMm":
        raise Unsupported(f"HDF5 has no type like {dtype}: store the array as numbers or text.")
    return dtype


def sparse_matrix(kind: str, shape: tuple[int, int], parts: Mapping[str, ZarrArray]) -> Matrix:
    """Return the matrix of the arrays data, indices and indptr; raises `Corrupt` if they contradict each other."""
    data, indices, pointers = (parts[name] for name in ("data", "indices", "indptr"))
    for name, one in parts.items():
        if len(one.shape) != 1:
            raise Corrupt(f"The {name} of the matrix have {len(one.shape)} dimensions, not 1.")
        if name != "data" and one.kind.dtype.kind not in "iu":
            raise Corrupt(f"The {name} of the matrix are no integers.")
    if data.kind.is_vlen:
        raise Unsupported("A matrix whose values have no fixed size cannot be imported; use --as-is.")
    (count,), lines = indices.shape, shape[kind == "csc"]
    if data.shape != indices.shape:
        raise Corrupt(f"The matrix has {data.shape[0]} values, but {count} indices.")
    if pointers.shape[0] > MOST_POINTERS:
        raise Unsupported(f"The matrix has more than {MOST_POINTERS} rows or columns; use --as-is.")
    found = pointers.read((0,), pointers.shape).astype(np.int64)
    check_pointers(found, lines, count)
    if count - len(indices.chunks()) * prod(indices._stored_by) > lines:  # missing chunks read as 0
        raise Corrupt("Some indices of the matrix are missing.")
    step = min(LARGEST_BAND, max(*data.chunk, *indices.chunk))
    nbytes = data.stored + indices.stored
    stored = Lines(int(kind == "csc"), found, partial(_read_both, indices, data), step, nbytes)
    return Matrix(shape, data.kind.item, data.itemsize, count, chunk=chunk_of(shape, count), lines=stored)


def _read_both(one: ZarrArray, other: ZarrArray, begin: int, end: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return one.read((begin,), (end,)), other.read((begin,), (end,))
