"""Write dask arrays as datasets, block by block.

Needs the extra `dask`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hsparse.client.connection import Json
from hsparse.client.creation import SPARSE, Filter
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import InvalidValue, WrongType
from hsparse.client.group import Group, make_member
from hsparse.client.late_links import unlinked_dataset
from hsparse.client.progress import Advance, Progress, ignore, show_progress
from hsparse.client.sparse.sparse_values import sparse_values
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.model.dataspace import auto_chunk
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from dask.array import Array

DASK = OptionalModule("dask.array", "dask")
CHUNK_BYTES = 4 << 20, 32 << 20
"""The least and the most bytes of a stored chunk with all of its elements defined."""


def from_dask(
    group: Group,
    path: str,
    array: Array,
    *,
    chunks: tuple[int, ...] | None = None,
    filters: Sequence[Filter] = (),
    overwrite: bool = False,
    progress: Progress = None,
) -> SparseDataset | DenseDataset:
    """Create a dataset from a dask array, and write each block as soon as it is computed.

    Memory holds as many blocks as dask's scheduler runs tasks at a time. Blocks of `sparse` or `scipy.sparse` make a
    sparse dataset with the elements of the blocks; numpy blocks make a dense dataset. `chunks` is the shape of the
    stored chunks. The dataset is linked when all blocks are stored; with `overwrite` it then replaces the old object;
    if a block fails, the dataset is deleted. `progress` is as in `from_scipy`, in bytes of blocks as if dense; it does
    not include blocks that other processes write.

    >>> import dask.array
    >>> made = hsparse.from_dask(f, "ones", dask.array.ones((4, 6), chunks=(2, 6)))
    >>> type(made).__name__, made.shape, made.sum()
    ('DenseDataset', (4, 6), np.float64(24.0))
    """
    if any(np.isnan(length) for lengths in array.chunks for length in lengths):
        raise InvalidValue("The array has blocks of unknown lengths: call its compute_chunk_sizes first.")
    body = _body(array, chunks, filters)
    with (
        unlinked_dataset(group, path, body, overwrite=overwrite) as made,
        show_progress(progress, path, int(array.nbytes)) as advance,
    ):
        target = make_member(made.connection, made.record, made.path)
        assert isinstance(target, SparseDataset | DenseDataset)
        stored_in: Any = SparseTarget(target) if isinstance(target, SparseDataset) else target
        shown = stored_in if advance is ignore else WatchedTarget(stored_in, advance)
        DASK.load().store([array], [shown], lock=False)
    return target


def _body(array: Array, chunks: tuple[int, ...] | None, filters: Sequence[Filter]) -> Json:
    """Return the request body that creates the dataset of an array; raise `WrongType` for unsupported blocks."""
    empty = sparse_values(array._meta)
    if empty is None and not isinstance(array._meta, np.ndarray):
        raise WrongType(
            f"Blocks of {type(array._meta)} are neither numpy arrays nor sparse arrays: convert them first."
        )
    properties: Json = {"filters": list(filters)} if filters else {}
    if empty is not None:
        dims = chunks or auto_chunk(array.shape, array.dtype.itemsize, *CHUNK_BYTES)
        properties |= {"layout": SPARSE | {"dims": list(dims)}, "fillValue": empty.fill_value.tolist()}
    elif chunks is not None:
        properties["layout"] = {"class": "H5D_CHUNKED", "dims": list(chunks)}
    body: Json = {"type": Hdf5Type.of(np.zeros(0, array.dtype)).item, "creationProperties": properties}
    return body | ({"shape": list(array.shape)} if array.shape else {})


@dataclass(frozen=True, slots=True)
class WatchedTarget:
    """A target of `dask.array.store` that reports progress; its copy in another process does not report it."""

    target: Any
    advance: Advance

    def __setitem__(self, key: tuple[slice, ...], block: Any) -> None:
        self.target[key] = block
        self.advance(prod(block.shape) * block.dtype.itemsize)

    def __reduce__(self) -> tuple[Any, ...]:
        return WatchedTarget, (self.target, ignore)


@dataclass(frozen=True, slots=True)
class SparseTarget:
    """A target of `dask.array.store` that writes blocks to a sparse dataset."""

    dataset: SparseDataset

    def __setitem__(self, key: tuple[slice, ...], block: Any) -> None:
        found = sparse_values(block)
        if found is None:
            self.dataset.write_region(key, block, drop_fill=True)
        elif len(found.values):
            columns = [column + one.start for column, one in zip(found.columns, key, strict=True)]
            self.dataset.write(np.array(columns, np.uint64).T, found.values)
