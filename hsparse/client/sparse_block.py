"""Rectangular parts of sparse datasets as arrays of `sparse` and `scipy.sparse`, and back."""

from __future__ import annotations

from operator import index
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.optional_module import OptionalModule

SPARSE = OptionalModule("sparse", "scipy")
SCIPY = OptionalModule("scipy.sparse", "scipy")


class ElementReader(Protocol):
    """A sparse dataset that is read."""

    shape: tuple[int, ...]

    @property
    def ndim(self) -> int: ...
    @property
    def fill_value(self) -> Any: ...
    def read(self, select: Any = None) -> tuple[NDArray[np.uint64], NDArray[Any]]: ...


def coo_block(dataset: ElementReader, key: Any) -> Any:
    """Return the `sparse.COO` that a key of slices, with positive steps, and integers selects."""
    columns, values, shape = _columns(dataset, key)
    if not shape:
        return values[0] if len(values) else dataset.fill_value
    return SPARSE.load().COO(
        np.array(columns, np.intp).reshape(len(shape), -1),
        values,
        shape=shape,
        has_duplicates=False,
        fill_value=dataset.fill_value,
    )


def csr_block(dataset: ElementReader, key: Any) -> Any:
    """Return the `scipy.sparse.csr_array` of a key of two slices, with sorted indices."""
    (rows, columns), values, shape = _columns(dataset, key)
    found = SCIPY.load().csr_array((values, (rows, columns)), shape=shape)
    found.sort_indices()
    return found


def is_sparse_array(block: Any) -> bool:
    """Say whether an array is one of `scipy.sparse` or `sparse`, without importing these."""
    return type(block).__module__.partition(".")[0] in ("scipy", "sparse")


def sparse_elements(block: Any) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Return the elements that an array of `sparse` or `scipy.sparse` has: coordinates (n, rank) and values (n,)."""
    found = block.tocoo() if hasattr(block, "tocoo") else block.asformat("coo")
    if not getattr(found, "has_canonical_format", True):
        found.sum_duplicates()
    return np.array(found.coords).T.astype(np.uint64), found.data


def _columns(dataset: ElementReader, key: Any) -> tuple[list[NDArray[Any]], NDArray[Any], tuple[int, ...]]:
    """Return the coordinates of a key's elements in its result, their values, and the result's shape."""
    items = key if isinstance(key, tuple) else (key,)
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items = (*items[:at], *(slice(None),) * (dataset.ndim - len(items) + 1), *items[at + 1 :])
    items += (slice(None),) * (dataset.ndim - len(items))
    cuts = [
        range(length)[item] if isinstance(item, slice) else index(item)
        for item, length in zip(items, dataset.shape, strict=True)
    ]
    coords, values = dataset.read(
        tuple(slice(one.start, one.stop, one.step) if isinstance(one, range) else one for one in cuts)
    )
    columns = [
        (coords[:, dim].astype(np.intp) - one.start) // one.step
        for dim, one in enumerate(cuts)
        if isinstance(one, range)
    ]
    return columns, values, tuple(len(one) for one in cuts if isinstance(one, range))
