"""Datasets as dask arrays, which are read block by block.

Needs the extra `dask`. A task contains its dataset, so the task runs in threads, processes and on other machines that
reach the server; the pickle of a task has the credentials of the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue
from hsparse.client.indexing.places import key_at_places
from hsparse.client.sparse.sparse_result import in_native_order
from hsparse.client.types.hdf5_type import Hdf5Type, take_inner
from hsparse.clock import SystemClock
from hsparse.optional_module import OptionalModule

Format: TypeAlias = Literal["coo", "csr"]
Blocks: TypeAlias = int | str | tuple[Any, ...] | Mapping[int, Any] | None
"""The lengths of blocks, as `dask.array.from_array` takes them, or None for blocks of about 100 MB."""
DASK = OptionalModule("dask.array", "dask")
CLOCK = SystemClock()
DASK_BASE = OptionalModule("dask.base", "dask")
SPARSE = OptionalModule("sparse", "dask")
SCIPY = OptionalModule("scipy.sparse", "dask")
BLOCK_BYTES = 100_000_000
"""Bytes of a block in memory, if the defined elements are evenly distributed."""


class ArraySource(Protocol):
    """A dataset, with the members that its blocks use."""

    connection: Connection
    id: str
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def chunks(self) -> tuple[int, ...] | None: ...
    @property
    def type(self) -> Hdf5Type: ...
    def check_extent(self, extent: Sequence[int]) -> None: ...
    def __getitem__(self, key: Any) -> Any: ...


class SparseSource(ArraySource, Protocol):
    """A sparse dataset, with the members that its blocks use."""

    @property
    def fillvalue(self) -> Any: ...
    @property
    def density(self) -> float: ...
    def to_coo(self, key: Any = ...) -> Any: ...
    def to_scipy(self, format: str = "csr", key: Any = ...) -> Any: ...


@dataclass(frozen=True, slots=True)
class DatasetBlocks:
    """A dataset that dask slices, with its `extent` at creation; reads raise `Conflict` if it was shrunk since then.

    `shape` ends with the dimensions of an array type. Keys count from 0, also if the extent has lower bounds.
    """

    dataset: ArraySource
    extent: tuple[int, ...]
    shape: tuple[int, ...]
    read: Callable[[Any], Any]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.dataset.dtype.base

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, key: Any) -> Any:
        rank = self.dataset.ndim
        found = self.read(key_at_places(key[:rank], self.extent))
        self.dataset.check_extent(self.extent)
        return take_inner(found, key[rank:])


def dense_to_dask(dataset: ArraySource, chunks: Blocks = None) -> Any:
    """Return a dense dataset as a `dask.array.Array` of numpy blocks; `chunks` is as in `sparse_to_dask`."""
    blocks = _blocks(dataset, chunks, BLOCK_BYTES // dataset.dtype.itemsize)
    meta = np.empty((0,) * len(blocks), dataset.dtype.base)
    source = DatasetBlocks(dataset, dataset.shape, _shape(dataset), dataset.__getitem__)
    return DASK.load().from_array(
        source, blocks, name=_name(dataset, blocks, "dense"), meta=meta, inline_array=True
    )


def sparse_to_dask(dataset: SparseSource, chunks: Blocks = None, format: Format = "coo") -> Any:
    """Return a sparse dataset, with its current extent, as a `dask.array.Array` of sparse blocks.

    `chunks` is as in `dask.array.from_array`; by default blocks of about 100 MB are made from stored chunks. "coo"
    blocks are `sparse.COO`, which dask's functions support in any number of dimensions and which are read only as far
    as slices of the array need. "csr" blocks are `scipy.sparse.csr_array`, which AnnData needs.
    """
    dask = DASK.load()
    if format not in ("coo", "csr"):
        raise InvalidValue(f"There is no format {format!r}: give 'coo' or 'csr'.")
    blocks = _blocks(dataset, chunks, 0 if chunks is not None else _block_elements(dataset))
    name = _name(dataset, blocks, format)
    dtype = dataset.dtype.base.newbyteorder("=")
    if format == "coo":
        fill = in_native_order(np.asarray(dataset.fillvalue))[()]
        meta = SPARSE.load().COO(np.empty((0,) * len(blocks), dtype), fill_value=np.ravel(fill)[0])
        return dask.from_array(
            DatasetBlocks(dataset, dataset.shape, _shape(dataset), dataset.to_coo),
            blocks,
            name=name,
            asarray=False,
            meta=meta,
            inline_array=True,
        )
    if len(blocks) != 2 or dataset.type.inner or dataset.fillvalue != 0:
        raise InvalidValue("A csr_array needs 2 dimensions and the fill value 0: give format='coo'.")
    source = DatasetBlocks(dataset, dataset.shape, dataset.shape, partial(dataset.to_scipy, "csr"))
    spans = [_spans(lengths) for lengths in blocks]
    graph = {
        (name, *place): (
            source.__getitem__,
            tuple(axis[at] for axis, at in zip(spans, place, strict=True)),
        )
        for place in product(*(range(len(axis)) for axis in spans))
    }
    return dask.Array(graph, name, blocks, meta=SCIPY.load().csr_array((0, 0), dtype=dtype))


def _blocks(dataset: ArraySource, chunks: Blocks, limit: int) -> tuple[tuple[int, ...], ...]:
    """Return block lengths per dimension: as `chunks` says, or whole stored chunks up to about `limit` elements."""
    normalize = OptionalModule("dask.array.core", "dask").load().normalize_chunks
    stored, inner = dataset.chunks or dataset.shape, dataset.type.inner
    wanted = _enlarged(stored, dataset.shape, limit) if chunks is None else chunks
    found: tuple[tuple[int, ...], ...] = normalize(
        (*wanted, *inner) if isinstance(wanted, tuple | list) and len(wanted) == dataset.ndim else wanted,
        shape=_shape(dataset),
        dtype=dataset.dtype.base,
        previous_chunks=(*stored, *inner),
    )
    return found


def _shape(dataset: ArraySource) -> tuple[int, ...]:
    """Return the shape of the values: the extent, then the dimensions of an array type."""
    return (*dataset.shape, *dataset.type.inner)


def _enlarged(chunk: tuple[int, ...], shape: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """Enlarge a chunk shape to at most `limit` elements, at most to the whole shape; the last dimensions grow first."""
    block = list(chunk[: len(shape)])  # a scalar may have a chunk
    for dim in reversed(range(len(block))):
        block[dim] *= max(1, min(limit // max(1, prod(block)), -(-shape[dim] // max(1, block[dim]))))
    return tuple(block)


def _block_elements(dataset: SparseSource) -> int:
    """Return the number of elements, defined or not, in a block of `BLOCK_BYTES`."""
    density = max(dataset.density, 1 / max(dataset.size, 1))
    return int(BLOCK_BYTES / (dataset.dtype.itemsize + 8 * dataset.ndim) / density)


def _name(dataset: ArraySource, blocks: Any, format: str) -> str:
    """Return a unique name: dask treats blocks of the same name as equal, but a dataset's values may change."""
    place = dataset.id, dataset.shape, CLOCK.token(8).hex()
    return f"hsparse-{DASK_BASE.load().tokenize(place, blocks, format)}"


def _spans(lengths: tuple[int, ...]) -> list[slice]:
    stops = np.cumsum(lengths).tolist()
    return [slice(stop - length, stop) for length, stop in zip(lengths, stops, strict=True)]
