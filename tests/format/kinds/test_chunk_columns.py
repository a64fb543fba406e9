"""Chunks read as columns against the same chunks as offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import encode_image
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.chunk_columns import ChunkColumns, read_columns
from hsparse.format.kinds.sparse_chunk import SparseChunk, decode_sparse, encode_sparse
from hsparse.format.selections.axis import Span
from hsparse.format.selections.extent import coordinate_columns
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.serialized_selection import encode_points
from hsparse.format.structured.container import METADATA_FIXED, build
from hsparse.format.structured.footer import seal
from tests.format.selection_strategies import extents, offset_sets, selections

PIPELINES = ((Filter(2, (4,)), Filter(1, (4,))), (Filter(2, (4,)), Filter(1, (4,))))
BARE: tuple[tuple[Filter, ...], ...] = ((), ())
DTYPE = np.dtype("<f4")


def shuffled(element: int) -> tuple[tuple[Filter, ...], ...]:
    """Return pipelines that shuffle the selection by elements of so many bytes."""
    return (Filter(2, (element,)), Filter(1, (4,))), PIPELINES[1]


def both(dims: tuple[int, ...], offsets: Any, pipelines: Any = PIPELINES) -> tuple[SparseChunk, ChunkColumns]:
    """Return a chunk of the values 0, 1, ... at offsets, read in both ways."""
    values = np.arange(len(offsets), dtype=DTYPE)
    data = encode_sparse(SparseChunk(dims, np.array(offsets, np.uint32), values), pipelines)
    return decode_sparse(data, dims, DTYPE, pipelines), read_columns(data, dims, DTYPE, pipelines)


def assert_same(found: ChunkColumns, expected: SparseChunk) -> None:
    columns = coordinate_columns(expected.offsets, expected.dims)
    assert [column.tolist() for column in found.columns] == [column.tolist() for column in columns]
    assert found.values.tolist() == expected.values.tolist()


@given(st.data())
def test_any_chunk_and_any_selection(data: st.DataObject) -> None:
    dims = data.draw(extents(1, 4))
    pipelines = data.draw(
        st.sampled_from((PIPELINES, BARE, shuffled(2 * len(dims)), shuffled(4 * len(dims))))
    )
    chunk, columns = both(dims, data.draw(offset_sets(dims)), pipelines)
    assert_same(columns, chunk)
    selection = data.draw(selections(dims))
    assert_same(columns.select(selection), chunk.select(selection.contains(chunk.offsets)))


@pytest.mark.parametrize("dims", [(300, 200), (70_000, 3), (3, 70_000)], ids=str)
def test_rows_by_search_by_table_and_as_a_slice(dims: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    chunk, columns = both(dims, np.flatnonzero(rng.random(dims).ravel() < 0.1))
    for size in (1, 2, 150):
        rows = np.unique(rng.integers(0, dims[0], size)).astype(np.uint64)
        for axis in (Span.range(0, dims[1]), Span(1, 2, dims[1] // 2), Span.range(1, 2)):
            selection = Orthogonal(dims, (rows, axis))
            assert_same(columns.select(selection), chunk.select(selection.contains(chunk.offsets)))
    box = Orthogonal.box(dims, (1, 0), (dims[0] - 1, dims[1]))
    assert_same(columns.select(box), chunk.select(box.contains(chunk.offsets)))


def test_damage_is_found() -> None:
    values = np.arange(3, dtype=DTYPE)
    data = encode_sparse(SparseChunk((4, 4), np.array([1, 5, 9], np.uint32), values), PIPELINES)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(Corrupt):
            read_columns(bytes(damaged), (4, 4), DTYPE, PIPELINES)


@pytest.mark.parametrize("dims", [(255, 300), (256, 256), (65_535, 3), (65_536, 3), (70_000, 3)], ids=str)
@pytest.mark.parametrize("element", [4, 8, 16])
def test_points_that_stay_shuffled(dims: tuple[int, int], element: int) -> None:
    rng = np.random.default_rng(8)
    for part in (0.001, 0.03):
        chunk, columns = both(dims, np.flatnonzero(rng.random(dims).ravel() < part), shuffled(element))
        assert_same(columns, chunk)
        rows = Orthogonal(dims, (Span.range(dims[0] - 1, dims[0]), Span.range(0, dims[1])))
        assert_same(columns.select(rows), chunk.select(rows.contains(chunk.offsets)))


def test_points_out_of_order_and_beyond_the_chunk() -> None:
    dims = (4, 300)
    for places, is_right in (
        ([[3, 1], [0, 299], [0, 7]], True),
        ([[0, 1], [0, 300]], False),
        ([[0, 1], [4, 0]], False),
    ):
        coords = np.array(places, np.uint16)
        selection = encode_image(dims, None, encode_points([coords[:, 0], coords[:, 1]]))
        values = np.arange(len(places), dtype=DTYPE)
        pipelines = shuffled(4)
        data = seal(build((selection, values.tobytes()), METADATA_FIXED, pipelines), len(places))
        if is_right:
            assert_same(
                read_columns(data, dims, DTYPE, pipelines), decode_sparse(data, dims, DTYPE, pipelines)
            )
        else:
            with pytest.raises(Corrupt, match="has coordinate"):
                read_columns(data, dims, DTYPE, pipelines)
