"""Sparse chunks of variable-length types against a dict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.kinds.vlen_chunk import SparseVlenChunk
from hsparse.model.vlen_array import VlenArray

DIMS = (4, 6)
WRITES = st.lists(st.tuples(st.integers(0, 23), st.binary(max_size=9)), max_size=12)


def as_dict(chunk: SparseVlenChunk) -> dict[int, bytes]:
    assert (chunk.offsets[1:] > chunk.offsets[:-1]).all()
    return dict(zip(chunk.offsets.tolist(), chunk.values, strict=True))


def written(chunk: SparseVlenChunk, pairs: list[tuple[int, bytes]]) -> SparseVlenChunk:
    offsets = np.array([offset for offset, _ in pairs], np.uint32)
    return chunk.merge(offsets, VlenArray.of([value for _, value in pairs]))


@given(st.lists(WRITES, max_size=4), st.sets(st.integers(0, 23)))
def test_merging_and_selecting(writes: list[list[tuple[int, bytes]]], gone: set[int]) -> None:
    chunk, model = SparseVlenChunk.empty(DIMS), dict[int, bytes]()
    for pairs in writes:
        chunk = written(chunk, pairs)
        model |= dict(pairs)
        assert as_dict(chunk) == model
        assert len(chunk.values.heap) == sum(map(len, model.values())), "nothing old stays"
    kept = chunk.select(~np.isin(chunk.offsets, list(gone)))
    assert as_dict(kept) == {offset: value for offset, value in model.items() if offset not in gone}
    assert as_dict(chunk) == model, "a chunk is not modified"


def test_what_does_not_fit() -> None:
    empty = SparseVlenChunk.empty(DIMS)
    with pytest.raises(BadRequest, match="inside"):
        written(empty, [(24, b"")])
    with pytest.raises(TooLarge, match="smaller"):
        empty.merge(np.arange(24), VlenArray.of([bytes(6 << 20)]))
    with pytest.raises(TooLarge, match="4194305 strings"):
        SparseVlenChunk.empty((2**23,)).merge(np.arange(2**22 + 1), VlenArray.of([bytes(4)]))
    with pytest.raises(TooLarge, match="strings"):
        empty.merge(np.arange(24), VlenArray.of([bytes(4)]), references=2**20)
