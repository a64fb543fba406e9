"""Open an AnnData with dask arrays over the datasets of a domain; a block is read when dask computes it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hsparse.client.connection import Connection, Json
from hsparse.client.integrations.anndata.anndata_reader import PARTS, read_by_file
from hsparse.client.integrations.anndata.compressed_matrix import compressed_matrix
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_reader import ANNDATA, MATRICES, ElementReader
from hsparse.client.sources.elements import Elements
from hsparse.client.sources.value_batch import DatasetRead, read_datasets
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.optional_module import OptionalModule

DASK_ARRAY = OptionalModule("dask.array", "dask")
DASK_BASE = OptionalModule("dask.base", "dask")
ARRAYS = ("layers", "obsm", "varm", "obsp", "varp")
"""The parts whose elements are arrays."""
BLOCK_ELEMENTS = 1 << 25
"""The maximum number of elements, defined or not, in a block of more than one row or column of chunks."""


def read_lazy(tree: DomainTree) -> Any:
    """Return the AnnData of a domain with dask arrays; the blocks are csr, csc or dense, like the stored matrix.

    obs, var, uns and elements that are not numeric datasets are read immediately. A file of AnnData before 0.7 is read
    whole.
    """
    tree.require_anndata()
    if tree.is_legacy:
        return read_by_file(tree)
    reader = ElementReader(tree)
    lazy = {path: _lazy_array(tree, path) for path in _array_paths(tree) if _is_lazy(tree, path)}
    parts = [part for part in PARTS if part in tree]
    for part in parts:
        for path in _leaves(tree, part):
            if path not in lazy:
                reader.want(path)
    reader.fetch()
    found = {part: _assembled(tree, reader, lazy, part) for part in parts}
    return ANNDATA.load().AnnData(**found)


def _leaves(tree: DomainTree, part: str) -> list[str]:
    """Return the paths of the elements of a part, or the part itself if it is a single element."""
    inner = part in (*ARRAYS, "raw") or part == "raw/varm"
    if not inner:
        return [part]
    return [leaf for name in tree.children(part) for leaf in _leaves(tree, f"{part}/{name}")]


def _array_paths(tree: DomainTree) -> list[str]:
    return [path for part in ("X", *ARRAYS, "raw") if part in tree for path in _leaves(tree, part)]


def _is_lazy(tree: DomainTree, path: str) -> bool:
    """Return whether an element is a numeric dataset with at least one element; others are read immediately."""
    if not tree.is_dataset(path) or tree.encoding(path) not in ("array", *MATRICES, ""):
        return False
    dtype = Hdf5Type.parse(tree.record(path)["type"]).dtype
    return bool(prod(tree.shape(path))) and len(tree.shape(path)) > 0 and dtype.kind in "biufc"


def _assembled(tree: DomainTree, reader: ElementReader, lazy: dict[str, Any], path: str) -> Any:
    if path in lazy:
        return lazy[path]
    if path in (*ARRAYS, "raw", "raw/varm"):
        return {name: _assembled(tree, reader, lazy, f"{path}/{name}") for name in tree.children(path)}
    return reader.element(path)


def _lazy_array(tree: DomainTree, path: str) -> Any:
    record, shape = tree.record(path), tree.shape(path)
    dtype = Hdf5Type.parse(record["type"]).dtype
    kind = tree.encoding(path)[:3] if tree.is_sparse(path) else ""
    if not kind:
        meta: Any = np.zeros((0,) * len(shape), dtype)
    else:
        nothing = Elements((np.zeros(0, np.intp),) * 2, np.zeros(0, dtype))
        meta = compressed_matrix(nothing, (0, 0), kind)
    blocks = _block_lengths(shape, _chunk_of(record, shape), axis=int(kind == "csc"))
    block = _BlockReader(tree.connection, record, kind)
    name = f"{path.replace('/', '-')}-{DASK_BASE.load().tokenize(block, blocks)}"
    return DASK_ARRAY.load().map_blocks(block, name=name, chunks=blocks, dtype=meta.dtype, meta=meta)


def _chunk_of(record: Json, shape: tuple[int, ...]) -> tuple[int, ...]:
    layout = record.get("layout") or record.get("creationProperties", {}).get("layout") or {}
    return tuple(layout.get("dims") or shape)


def _block_lengths(shape: tuple[int, ...], chunk: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], ...]:
    """Return dask's block lengths: along `axis`, as many whole stored chunks as `BLOCK_ELEMENTS` allows."""
    line = prod(shape) // shape[axis]
    step = max(1, BLOCK_ELEMENTS // (max(1, line) * chunk[axis])) * chunk[axis]
    lengths: list[tuple[int, ...]] = [(length,) for length in shape]
    lengths[axis] = tuple(min(step, shape[axis] - start) for start in range(0, shape[axis], step))
    return tuple(lengths)


class _BlockReader:
    """Reads a block of a dataset for dask; a pickle of the reader contains the connection's credentials."""

    def __init__(self, connection: Connection, record: Json, kind: str) -> None:
        self._connection = connection
        self._record = record
        self._kind = kind

    def __dask_tokenize__(self) -> tuple[str, ...]:
        return str(self._connection.url), str(self._record["id"]), str(self._record.get("lastModified"))

    def __call__(self, block_info: Any = None) -> Any:
        places = block_info[None]["array-location"]
        axes = tuple(np.arange(first, last) for first, last in places)
        read = DatasetRead(self._record, axes, bool(self._kind))
        (found,) = read_datasets(self._connection, [read])
        return found if isinstance(found, np.ndarray) else compressed_matrix(found, read.shape, self._kind)
