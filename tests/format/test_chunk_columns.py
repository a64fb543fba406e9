"""What is read of chunks: columns, against the same chunks as offsets, and how little memory it keeps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.byte_planes import BytePlanes
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.dataspace_message import encode_image
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.transforms import Shuffle
from hsparse.format.kinds.chunk_columns import ChunkColumns, read_columns
from hsparse.format.kinds.chunk_kind import ChunkKind, Search
from hsparse.format.kinds.registry import kind_of
from hsparse.format.kinds.sparse import SparseChunk, decode_sparse, encode_sparse
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.query import bind_query
from hsparse.format.selections.extent import coordinate_columns
from hsparse.format.selections.orthogonal import Orthogonal, StridedSpan
from hsparse.format.selections.planar import planar_blocks
from hsparse.format.selections.points import Selection
from hsparse.format.selections.selection_encoding import encode_blocks, encode_offsets
from hsparse.format.structured.container import METADATA_FIXED, build, seal
from hsparse.model.vlen_array import VlenArray
from tests.format.selection_strategies import extents, offset_sets, selections
from tests.model.type_strategies import text

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
        for axis in (StridedSpan.range(0, dims[1]), StridedSpan(1, 2, dims[1] // 2), StridedSpan.range(1, 2)):
            selection = Orthogonal(dims, (rows, axis))
            assert_same(columns.select(selection), chunk.select(selection.contains(chunk.offsets)))
    box = Orthogonal.box(dims, (1, 0), (dims[0] - 1, dims[1]))
    assert_same(columns.select(box), chunk.select(box.contains(chunk.offsets)))


@pytest.mark.parametrize("dims", [(255, 300), (256, 256), (65_535, 3), (65_536, 3), (70_000, 3)], ids=str)
@pytest.mark.parametrize("element", [4, 8, 16])
def test_points_that_stay_shuffled(dims: tuple[int, int], element: int) -> None:
    rng = np.random.default_rng(8)
    for part in (0.001, 0.03):
        chunk, columns = both(dims, np.flatnonzero(rng.random(dims).ravel() < part), shuffled(element))
        assert_same(columns, chunk)
        rows = Orthogonal(dims, (StridedSpan.range(dims[0] - 1, dims[0]), StridedSpan.range(0, dims[1])))
        assert_same(columns.select(rows), chunk.select(rows.contains(chunk.offsets)))


@pytest.mark.parametrize("dims", [(200, 66), (16_384, 66), (300, 300), (90_000, 20)], ids=str)
@pytest.mark.parametrize("element", [2, 4, 8, 16])
def test_blocks_that_stay_shuffled(dims: tuple[int, int], element: int) -> None:
    rng = np.random.default_rng(9)
    for heights, widths in ((4, 1), (1, 4), (5, 4)):
        offsets = some_blocks(rng, dims, heights, widths)
        chunk, columns = both(dims, offsets, shuffled(element))
        assert chunk.offsets.tolist() == offsets.tolist()
        assert_same(columns, chunk)
        image = encode_offsets(offsets, dims)
        planes = BytePlanes(bytes(Shuffle().encode((element,), image)), element, len(image))
        found = planar_blocks(planes, dims)
        assert found is not None
        starts, ends = found
        lengths = [end.astype(int) - start + 1 for start, end in zip(starts, ends, strict=True)]
        assert int((lengths[0] * lengths[1]).sum()) == len(offsets)


def some_blocks(rng: np.random.Generator, dims: tuple[int, int], heights: int, widths: int) -> Any:
    """Return the offsets of blocks of up to so many rows and columns, with room between them."""
    defined = np.zeros(dims, np.bool_)
    for row in range(0, min(dims[0], 400) - heights, heights + 1):
        for column in range(0, dims[1] - widths + 1, widths + 1):
            height, width = rng.integers(1, heights + 1), rng.integers(1, widths + 1)
            defined[row : row + height, column : column + width] = True
    return np.flatnonzero(defined).astype(np.uint32)


@pytest.mark.parametrize(
    ("starts", "ends", "words"),
    [
        ([[0, 1], [2, 2], [5, 5]], [[1, 2], [2, 3], [5, 6]], None),
        ([[2, 2], [0, 1], [5, 5]], [[2, 3], [1, 2], [5, 6]], None),
        ([[0, 1], [1, 2], [5, 5]], [[1, 2], [2, 3], [5, 6]], "overlap at offset 302"),
        ([[0, 1], [2, 2], [5, 5]], [[1, 2], [2, 300], [5, 6]], "has coordinate 300"),
        ([[0, 1], [3, 2], [5, 5]], [[1, 2], [2, 3], [5, 6]], "ends before it starts"),
    ],
)
def test_blocks_in_any_order_and_wrong_ones(starts: Any, ends: Any, words: str | None) -> None:
    dims, pipelines = (8, 300), shuffled(4)
    bounds = np.array(starts, np.uint64), np.array(ends, np.uint64)
    selection = encode_image(dims, None, encode_blocks(*bounds))
    lengths = (bounds[1] + np.uint64(1) - bounds[0]).astype(np.int64)
    count = max(1, int(lengths.prod(axis=1).sum()))
    values = np.arange(count, dtype=DTYPE)
    data = seal(build((selection, values.tobytes()), METADATA_FIXED, pipelines), count)
    if words is None:
        found = read_columns(data, dims, DTYPE, pipelines)
        assert_same(found, decode_sparse(data, dims, DTYPE, pipelines))
        assert [column.tolist() for column in found.columns] == [
            [0, 0, 1, 1, 2, 2, 5, 5],
            [1, 2, 1, 2, 2, 3, 5, 6],
        ]
        return
    for read in (read_columns, decode_sparse):
        with pytest.raises(Corrupt, match=words):
            read(data, dims, DTYPE, pipelines)


DIMS = (64, 256)
COUNT = math.prod(DIMS)
WHOLE = Orthogonal.all(DIMS)
PLAIN: tuple[Filter, ...] = ()
NO_LIMIT = 2**63 - 1
MOST = 8192
"""Bytes that may be kept of a chunk of 128 KiB or more for one column of it."""
EVERY = StridedSpan.range(0, 64)
SMALL = {
    "a column": Orthogonal(DIMS, (EVERY, StridedSpan(5))),
    "every 16th column": Orthogonal(DIMS, (StridedSpan(0, 4, 16), StridedSpan(0, 16, 16))),
    "a row": Orthogonal(DIMS, (StridedSpan(3), StridedSpan.range(0, 256))),
    "one element": Orthogonal(DIMS, (StridedSpan(3), StridedSpan(9))),
    "a list of columns": Orthogonal(DIMS, (StridedSpan(3), np.array([1, 7, 9], np.uint64))),
}


def spec(vlen: bool, sparse: bool, *filters: tuple[Filter, ...]) -> ChunkSpec:
    if vlen:
        return ChunkSpec("d-1", text("H5T_VARIABLE"), DIMS, sparse, b"\0" * 4, filters)
    return ChunkSpec("d-1", "H5T_STD_I64LE", DIMS, sparse, b"\0" * 8, filters)


SPECS = {
    "dense": spec(False, False, PLAIN),
    "dense, filtered": spec(False, False, (Filter(1, (6,)),)),
    "sparse": spec(False, True, PLAIN, PLAIN),
    "dense vlen": spec(True, False, PLAIN),
    "sparse vlen": spec(True, True, PLAIN, PLAIN, PLAIN),
}
every_kind = pytest.mark.parametrize("about", SPECS.values(), ids=SPECS)
sparse_kinds = pytest.mark.parametrize("about", [SPECS["sparse"], SPECS["sparse vlen"]])
fixed_kinds = pytest.mark.parametrize("about", [SPECS["dense"], SPECS["sparse"]])


def kept(values: Any) -> int:
    """Return the bytes of memory that arrays keep, their own or those of what they are views of."""
    if isinstance(values, VlenArray):
        return kept(values.offsets) + kept(values.heap)
    found: NDArray[Any] = values
    while isinstance(found.base, np.ndarray):
        found = found.base
    return found.nbytes if found.base is None else memoryview(found.base).nbytes


def stored(about: ChunkSpec) -> tuple[ChunkKind[Any], Any]:
    """Return a chunk with all elements set, as it is read from the store."""
    kind: ChunkKind[Any] = kind_of(about)
    values: Any = np.arange(1, COUNT + 1, dtype="<i8").reshape(DIMS)
    if about.datatype.is_vlen:
        values = VlenArray.of([b"\x04\0\0\0%04x" % n for n in range(COUNT)], DIMS)
    chunk, _ = kind.write(ChunkSelection((0, 0), WHOLE, True), values, (), False)(None)
    return kind, kind.decode(bytes(kind.encode(chunk)))


@every_kind
@pytest.mark.parametrize("selection", SMALL.values(), ids=SMALL)
def test_a_read_keeps_what_was_selected(about: ChunkSpec, selection: Selection) -> None:
    kind, chunk = stored(about)
    values = kind.read(chunk, selection, (), NO_LIMIT)
    assert values is not None
    assert kept(values) <= MOST < kind.nbytes(chunk)


def test_a_read_of_generated_values_keeps_what_was_selected() -> None:
    about = ChunkSpec("d-1", "H5T_STD_I64LE", (COUNT,), False, b"\0" * 8, (PLAIN,), arange=(0.0, 1.0))
    kind: ChunkKind[Any] = kind_of(about)
    chunk = kind.missing((3,))
    values = kind.read(chunk, Orthogonal((COUNT,), (StridedSpan(0, COUNT // 2, 2),)), (), NO_LIMIT)
    assert isinstance(values, np.ndarray)
    assert values.tolist() == [3 * COUNT, 3 * COUNT + COUNT // 2]
    assert kept(values) <= MOST


def test_a_large_part_is_not_copied() -> None:
    kind, chunk = stored(SPECS["dense"])
    values = kind.read(chunk, Orthogonal(DIMS, (EVERY, StridedSpan.range(0, 200))), (), NO_LIMIT)
    assert np.shares_memory(values, chunk)


@sparse_kinds
@pytest.mark.parametrize("places_only", [True, False])
@pytest.mark.parametrize("selection", SMALL.values(), ids=SMALL)
def test_defined_elements_keep_what_was_selected(
    about: ChunkSpec, selection: Selection, places_only: bool
) -> None:
    kind, chunk = stored(about)
    found = kind.defined(chunk, selection, places_only, NO_LIMIT, False)
    assert found is not None
    assert not isinstance(found, int)
    assert kept(found.offsets) + kept(found.values) <= MOST


@sparse_kinds
def test_places_alone_keep_no_values(about: ChunkSpec) -> None:
    kind, chunk = stored(about)
    found = kind.defined(chunk, WHOLE, True, NO_LIMIT, False)
    assert found is not None
    assert not isinstance(found, int)
    assert kept(found.values) <= MOST


@fixed_kinds
@pytest.mark.parametrize("places_only", [True, False])
def test_a_query_keeps_what_its_limit_lets_through(about: ChunkSpec, places_only: bool) -> None:
    kind, chunk = stored(about)
    query = bind_query("_ > 0", about.dtype)
    found = kind.find(chunk, WHOLE, Search(query, limit=3, places_only=places_only))
    assert found.positions.tolist() == [0, 1, 2]
    assert kept(found.positions) + kept(found.values) <= MOST
    found = kind.find(chunk, WHOLE, Search(query, places_only=True))
    assert len(found.positions) == COUNT
    assert kept(found.values) <= MOST
