"""What queries find in chunks and change of them, without a store: that nothing committed is modified."""

from __future__ import annotations

from typing import Any

import numpy as np

from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.chunk_kind import ChunkChange, FoundElements, Search
from hsparse.format.kinds.registry import kind_of
from hsparse.format.kinds.sparse import SparseChunk
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.query import Query, bind_query
from hsparse.format.selections.points import Orthogonal, Selection

DIMS = (2**16, 2**16 - 1)
WHOLE = Orthogonal.all(DIMS)


def spec(*, sparse: bool, dims: tuple[int, ...] = DIMS, fill: bytes = b"") -> ChunkSpec:
    return ChunkSpec("d-1", "H5T_STD_I32LE", dims, sparse, fill, ((), ()))


def update(about: ChunkSpec, query: Query, selection: Selection) -> ChunkChange[Any, FoundElements]:
    at = ChunkSelection((0,) * len(about.dims), selection)
    return kind_of(about).update(at, Search(query), np.array(9, "<i4"))


def chunk() -> SparseChunk:
    offsets = np.array([3, 70_000, 2**32 - 2**16 - 1], np.uint32)
    return SparseChunk(DIMS, offsets, np.array([5, 6, 7], "<i4"))


def test_of_a_vast_sparse_chunk_only_what_is_defined_is_looked_at() -> None:
    about, value = spec(sparse=True), chunk()
    query = bind_query("_ > 5", about.dtype)
    found = kind_of(about).find(value, WHOLE, Search(query))
    assert found.positions.tolist() == [70_000, 2**32 - 2**16 - 1]
    assert found.values.tolist() == [6, 7]
    changed, found = update(about, query, WHOLE)(value)
    assert isinstance(changed, SparseChunk)
    assert changed.values.tolist() == [5, 9, 9]
    assert value.values.tolist() == [5, 6, 7], "what is committed stays"
    assert found.values.tolist() == [9, 9]


def test_a_dense_chunk_is_copied_before_it_is_changed() -> None:
    about = spec(sparse=False, dims=(4,))
    value = np.arange(4, dtype="<i4")
    value.flags.writeable = False
    query = bind_query("_ >= 2", about.dtype)
    changed, _ = update(about, query, Orthogonal.all((4,)))(value)
    assert isinstance(changed, np.ndarray)
    assert changed.tolist() == [0, 1, 9, 9]
    assert value.tolist() == [0, 1, 2, 3]
