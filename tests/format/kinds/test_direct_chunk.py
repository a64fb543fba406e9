"""Given chunks: what the server makes is taken byte for byte, what it does not is told apart."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters import pipeline
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds import dense_vlen, vlen_chunk
from hsparse.format.kinds.chunk_kind import MAX_UNFILTERED, DirectWrite, open_direct_chunk
from hsparse.format.kinds.dense import encode_dense
from hsparse.format.kinds.registry import kind_of
from hsparse.format.kinds.sparse import SparseChunk, encode_sparse
from hsparse.format.structured.container import unseal
from tests.model.type_strategies import text

DIMS = (6, 7)
PIPELINES: list[tuple[tuple[Filter, ...], ...]] = [
    ((), ()),
    ((Filter(2, (4,)), Filter(1, (2,))), (Filter(32015, (3,)),)),
    ((Filter(3, ()),), (Filter(2, (4,)), Filter(1, (6,)), Filter(3, ()))),
]


def spec(sparse: bool, filters: tuple[tuple[Filter, ...], ...]) -> ChunkSpec:
    return ChunkSpec("d-00000000-00000001-0000-000000-000001", "H5T_STD_I32LE", DIMS, sparse, b"", filters)


def check_direct(about: ChunkSpec, data: bytes, table: np.ndarray, stop: tuple[int, ...]) -> DirectWrite[Any]:
    return open_direct_chunk(kind_of(about), data, table, (0, 0), stop)


def image(chunk: SparseChunk, filters: Any) -> tuple[bytes, bytes, np.ndarray]:
    """Return an object, the chunk's bytes in it, and the table of its sections."""
    data = encode_sparse(chunk, filters)
    content, footer = unseal(data)
    table = [[one.size, one.unfiltered, one.mask] for one in footer.sections]
    return data, bytes(content), np.array(table, np.uint64)


@given(st.sets(st.integers(0, 41)), st.sampled_from(PIPELINES))
def test_a_structured_chunk_becomes_the_same_object(offsets: set[int], filters: Any) -> None:
    columns = np.array(sorted(offsets), np.uint32)
    chunk = SparseChunk(DIMS, columns, columns.astype("<i4"))
    data, content, table = image(chunk, filters)
    given_chunk = check_direct(spec(True, filters), content, table, DIMS)
    assert given_chunk.data == data
    assert isinstance(given_chunk.chunk, SparseChunk)
    assert given_chunk.chunk.offsets.tolist() == columns.tolist()
    assert given_chunk.chunk.values.tolist() == columns.tolist()


@given(st.sets(st.integers(0, 41), min_size=1), st.integers(1, 6), st.integers(1, 7))
def test_elements_beyond_the_extent_are_refused(offsets: set[int], rows: int, columns: int) -> None:
    found = np.array(sorted(offsets), np.uint32)
    _, content, table = image(SparseChunk(DIMS, found, found.astype("<i4")), PIPELINES[0])
    inside = all(offset // 7 < rows and offset % 7 < columns for offset in offsets)
    if inside:
        check_direct(spec(True, PIPELINES[0]), content, table, (rows, columns))
    else:
        with pytest.raises(BadRequest, match="beyond the extent"):
            check_direct(spec(True, PIPELINES[0]), content, table, (rows, columns))


@given(st.binary(max_size=300), st.lists(st.integers(0, 200), min_size=6, max_size=6))
def test_any_bytes_are_a_chunk_or_refused(data: bytes, numbers: list[int]) -> None:
    table = np.array(numbers, np.uint64).reshape(2, 3)
    table[1, 0] = max(0, len(data) - int(table[0, 0]))
    for filters in PIPELINES:
        with pytest.raises(BadRequest):
            check_direct(spec(True, filters), data, table, DIMS)


def test_dense_bytes_are_kept_as_they_are() -> None:
    values = np.arange(42, dtype="<i4").reshape(DIMS)
    pipeline = (Filter(2, (4,)), Filter(1, (6,)))
    data = bytes(encode_dense(values, pipeline))
    found = check_direct(spec(False, (pipeline,)), data, np.array([[len(data), 0, 0]], np.uint64), DIMS)
    assert found.data == data
    assert np.array_equal(found.chunk, values)


@pytest.mark.parametrize("mask", [0, 1, 2])
@pytest.mark.parametrize("pipeline", [(Filter(2, (4,)), Filter(1, (6,))), (Filter(1, (6,)), Filter(3, ()))])
def test_dense_elements_beyond_the_extent_are_refused(pipeline: tuple[Filter, ...], mask: int) -> None:
    """Also where a filter decodes to an array that may be modified, as shuffle does."""
    values = np.arange(42, dtype="<i4").reshape(DIMS)
    used = tuple(one for place, one in enumerate(pipeline) if not mask >> place & 1)
    data = bytes(encode_dense(values, used))
    table = np.array([[len(data), 0, mask]], np.uint64)
    with pytest.raises(BadRequest, match="beyond the extent"):
        check_direct(spec(False, (pipeline,)), data, table, (6, 5))
    found = check_direct(spec(False, (pipeline,)), data, table, DIMS)
    assert np.array_equal(found.chunk, values)
    assert not found.chunk.flags.writeable, "it is committed, and may not be changed in place"


def test_sizes_that_nobody_could_check_are_refused() -> None:
    table = np.array([[1, 1, 0], [1, MAX_UNFILTERED + 1, 0]], np.uint64)
    with pytest.raises(TooLarge):
        check_direct(spec(True, PIPELINES[0]), b"xy", table, DIMS)
    with pytest.raises(BadRequest, match="sections"):
        check_direct(spec(True, PIPELINES[0]), b"xy", table[:1], DIMS)


@pytest.mark.parametrize("mask", [0, 1])
def test_text_that_inflates_beyond_the_limit_is_refused_before_it_is_whole(
    monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    """A body of 1 MB may claim one element of 1 GiB; a chunk of variable-length elements has at most 128 MiB."""
    limit = 1 << 20
    monkeypatch.setattr(dense_vlen, "MAX_CHUNK_BYTES", limit)
    asked: list[int | None] = []
    undo = pipeline.undo_filters

    def noted(*arguments: Any) -> Any:
        asked.append(arguments[4])
        return undo(*arguments)

    monkeypatch.setattr(dense_vlen, "undo_filters", noted)
    monkeypatch.setattr(vlen_chunk, "undo_filters", noted)
    filters = (Filter(2, (1,)), Filter(1, (1,)))
    kind = kind_of(ChunkSpec("d-1", text("H5T_VARIABLE"), (1,), False, b"", (filters,)))
    bomb = zlib.compress((2 * limit).to_bytes(4, "little") + bytes(2 * limit))
    with pytest.raises(BadRequest, match=r"at most|decode"):
        open_direct_chunk(kind, bomb, np.array([[0, 0, mask]], np.uint64), (0,), (1,))
    assert asked == [limit]
    assert kind.direct_bound(np.zeros((1, 3), np.uint64)) >= limit
