"""What data nodes answer to queries of chunks and of elements."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from hsparse.errors import BadRequest, Gone, Moved
from hsparse.format.chunk_map import SIZE, UNFILTERED
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.chunk_kind import QueryRequest
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal, Points, StridedSpan, gather, scatter
from hsparse.model.ids import map_key, new_id, new_root_id, tree_prefix
from hsparse.wire.chunk_info_message import (
    CountChunks,
    FindChunk,
    ListChunks,
    ReadDirect,
    ReadObjectBytes,
    WriteDirect,
)
from hsparse.wire.chunk_message import (
    FenceDeleted,
    FindElements,
    ReadChunks,
    TrimChunks,
    UpdateElements,
    WriteChunks,
)
from hsparse.wire.message import DataNode
from hsparse.wire.record_message import DeleteTree, ListKeys
from tests.testing.chunk_conformance import CLOCK, COMPOUND, DIMS, ROW, SELECTIONS, spec, written

EXTENT = (60, 100)
STORED = [(2, 9), (0, 1), (9, 12), (2, 0), (2, 10)]
BY_KEY = [(0, 1), (2, 0), (2, 10), (2, 9), (9, 12)]


async def stored(node: DataNode, *, sparse: bool) -> ChunkSpec:
    """Write one element into each chunk in `STORED`; return the specification of the chunks."""
    about = spec(sparse=sparse)
    first = Orthogonal.box(DIMS, (0, 0), (1, 2))
    parts = tuple(ChunkSelection(scaled, first) for scaled in STORED)
    await node.send(WriteChunks(about, parts, (np.array([[1.0, 2.0]]),) * len(parts)))
    return about


async def listed_scaled(node: DataNode, about: ChunkSpec, message: ListChunks) -> list[tuple[int, ...]]:
    """Send a listing until its last page; return the scaled coordinates of all listed chunks."""
    found: list[tuple[int, ...]] = []
    while True:
        page = await node.send(replace(message, after=found[-1] if found else ()))
        found += [tuple(scaled) for scaled in page.rows.scaled.tolist()]
        if not page.marker:
            return found
        assert page.marker == found[-1]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("limit", [1, 2, 5, 1000])
async def test_stored_chunks_are_listed_in_both_orders(node: DataNode, sparse: bool, limit: int) -> None:
    about = await stored(node, sparse=sparse)
    message = ListChunks(about, EXTENT, limit=limit)
    assert await listed_scaled(node, about, message) == BY_KEY
    assert await listed_scaled(node, about, replace(message, by_coords=True)) == sorted(STORED)
    assert await node.send(CountChunks(about, EXTENT)) == len(STORED)


@pytest.mark.parametrize("sparse", [True, False])
async def test_rows_say_what_the_object_is(node: DataNode, sparse: bool) -> None:
    about = await stored(node, sparse=sparse)
    page = await node.send(ListChunks(about, EXTENT, skip=3, limit=1))
    assert page.marker
    (one,) = page.rows.scaled.tolist()
    found = await node.send(FindChunk(about, tuple(one)))
    listing = await node.send(ListKeys(tree_prefix(about.dataset)))
    assert (found.scaled.tolist(), found.etags) == ([one], page.rows.etags)
    assert (
        found.size.tolist()
        == page.rows.size.tolist()
        == [listing.sizes[listing.keys.index(_key(about, one))]]
    )
    assert found.sections.tolist() == page.rows.sections.tolist()
    assert found.defined.tolist() == page.rows.defined.tolist() == [2 if sparse else 0]
    assert found.sections.shape == (1, 2 if sparse else 0, 3)
    if sparse:
        assert found.sections[0, 1, SIZE] == found.sections[0, 1, UNFILTERED] == 16
    assert len(await node.send(FindChunk(about, (5, 5)))) == 0


def _key(about: ChunkSpec, scaled: list[int]) -> str:
    return tree_prefix(about.dataset) + "_".join(map(str, scaled))


async def test_a_selection_and_an_extent_choose(node: DataNode) -> None:
    about = await stored(node, sparse=True)
    box = Orthogonal.box(EXTENT, (12, 0), (18, 75))
    message = ListChunks(about, EXTENT, box, limit=1)
    assert await listed_scaled(node, about, message) == [(2, 0), (2, 9)]
    assert await node.send(CountChunks(about, EXTENT, box)) == 2
    points = Points(EXTENT, np.array([[0, 8], [59, 99], [1, 1]], np.uint64))
    assert await listed_scaled(node, about, ListChunks(about, EXTENT, points, by_coords=True)) == [
        (0, 1),
        (9, 12),
    ]
    smaller = (18, 80)
    assert await listed_scaled(node, about, ListChunks(about, smaller)) == [(0, 1), (2, 0), (2, 9)]
    assert await node.send(CountChunks(about, smaller)) == 3


@pytest.mark.parametrize("sparse", [True, False])
async def test_a_chunk_is_moved_as_it_is(node: DataNode, sparse: bool) -> None:
    about, other = await stored(node, sparse=sparse), spec(sparse=sparse)
    found = await node.send(ReadDirect(about, (2, 9)))
    assert found is not None
    sections = found.row.sections[0] if sparse else np.array([[len(found.data), 0, 0]], np.uint64)
    await node.send(WriteDirect(other, EXTENT, (3, 3), found.data, sections))
    again = await node.send(ReadDirect(other, (3, 3)))
    assert again is not None
    assert again.data.tobytes() == found.data.tobytes()
    whole = Orthogonal.all(DIMS)
    (one,) = await node.send(ReadChunks(about, (ChunkSelection((2, 9), whole),)))
    (two,) = await node.send(ReadChunks(other, (ChunkSelection((3, 3), whole),)))
    assert one is not None
    assert two is not None
    assert one.tobytes() == two.tobytes()
    assert await node.send(ReadDirect(about, (5, 5))) is None
    with pytest.raises(BadRequest):
        await node.send(WriteDirect(other, EXTENT, (3, 3), found.data[:-1], sections))
    with pytest.raises(BadRequest, match="outside the grid"):
        await node.send(WriteDirect(other, EXTENT, (10, 0), found.data, sections))


@pytest.mark.parametrize("sparse", [True, False])
async def test_objects_are_read_by_their_etags(node: DataNode, sparse: bool) -> None:
    about = await stored(node, sparse=sparse)
    rows = (await node.send(ListChunks(about, EXTENT))).rows
    content = rows.sections[:, :, SIZE].sum(axis=1) if sparse else rows.size
    message = ReadObjectBytes(about, rows.scaled, rows.etags, content)
    found = await node.send(message)
    for scaled, size, data in zip(rows.scaled.tolist(), rows.size.tolist(), found, strict=True):
        direct = await node.send(ReadDirect(about, tuple(scaled)))
        assert direct is not None
        assert data is not None
        assert len(data) == size
        assert data.tobytes().startswith(direct.data.tobytes())
    await node.send(WriteChunks(about, (ChunkSelection(BY_KEY[1], Orthogonal.all(DIMS)),), (np.array(7.0),)))
    absent = replace(message, scaled=rows.scaled + np.uint64(100))
    assert [data is None for data in await node.send(message)] == [False, True, False, False, False]
    assert await node.send(absent) == (None,) * len(rows)
    await node.send(FenceDeleted(about.dataset))
    with pytest.raises(Gone):
        await node.send(message)


async def test_queries_about_a_larger_extent_have_moved(node: DataNode) -> None:
    old = await stored(node, sparse=True)
    found = await node.send(ReadDirect(old, (2, 9)))
    assert found is not None
    new = replace(old, generation=1)
    await node.send(TrimChunks(new, EXTENT, ()))
    for message in (
        ListChunks(old, EXTENT),
        CountChunks(old, EXTENT),
        FindChunk(old, (2, 9)),
        ReadDirect(old, (2, 9)),
        ReadObjectBytes(old, found.row.scaled, found.row.etags, found.row.size),
        WriteDirect(old, EXTENT, (2, 9), found.data, found.row.sections[0]),
    ):
        with pytest.raises(Moved):
            await node.send(message)
    assert await node.send(CountChunks(new, EXTENT)) == len(STORED)


async def test_a_map_goes_with_the_chunks(node: DataNode) -> None:
    about = spec(sparse=True)
    one = Orthogonal.box(DIMS, (0, 0), (1, 1))
    parts = tuple(ChunkSelection((number, 0), one) for number in range(100))
    await node.send(WriteChunks(about, parts, (np.ones((1, 1)),) * 100))
    assert len((await node.send(ListChunks(about, (600, 8)))).rows) == 100
    assert map_key(about.dataset) in (await node.send(ListKeys(tree_prefix(about.dataset)))).keys
    await node.send(FenceDeleted(about.dataset))
    assert await node.send(DeleteTree(about.dataset)) == 101
    assert (await node.send(ListKeys(tree_prefix(about.dataset)))).keys == ()
    with pytest.raises(Gone):
        await node.send(ListChunks(about, (600, 8)))


async def test_pages_have_a_limit(node: DataNode) -> None:
    about = await stored(node, sparse=True)
    for limit in (0, 100_001):
        with pytest.raises(BadRequest):
            await node.send(ListChunks(about, EXTENT, limit=limit))


QUERIES = {
    "a > 3 & s == b'xyz'": lambda rows: (rows["a"] > 3) & (rows["s"] == b"xyz"),
    "a <= 3": lambda rows: rows["a"] <= 3,
    "s != b'xyz'": lambda rows: rows["s"] != b"xyz",
    "a > 1000": lambda rows: rows["a"] > 1000,
}
ASCENDING = [SELECTIONS[0], SELECTIONS[1], SELECTIONS[2], SELECTIONS[5]]
ASCENDING += [
    Orthogonal(DIMS, (np.array([0, 3, 5], np.uint64), StridedSpan.range(2, 5))),
    Points(DIMS, np.array([[0, 0], [3, 3], [5, 7]], np.uint64)),
]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("query", QUERIES)
async def test_queries_find_what_numpy_finds(node: DataNode, sparse: bool, query: str) -> None:
    about = spec(sparse=sparse, kind=COMPOUND, fill=np.array((-7, b"f"), ROW).tobytes())
    model = await written(node, about, (0, 0))
    for selection in ASCENDING:
        part = ChunkSelection((0, 0), selection)
        rows = gather(model, selection).reshape(-1)
        places = np.flatnonzero(QUERIES[query](rows))
        (found,) = await node.send(FindElements(about, (part,), QueryRequest(query)))
        assert found is not None
        assert found.positions.tolist() == places.tolist()
        np.testing.assert_array_equal(found.values.view(ROW), rows[places])
        (some,) = await node.send(FindElements(about, (part,), QueryRequest(query, limit=2, fields=("s",))))
        assert some is not None
        assert some.values.view("S3").tolist() == rows["s"][places[:2]].tolist()
        (none,) = await node.send(FindElements(about, (part,), QueryRequest(query, places_only=True)))
        assert none is not None
        assert (none.positions.tolist(), len(none.values)) == (places.tolist(), 0)


async def test_a_query_with_a_limit_looks_no_further(node: DataNode) -> None:
    about = spec(sparse=False)
    whole = Orthogonal.all(DIMS)
    parts = tuple(ChunkSelection((i, 0), whole) for i in range(40))
    await node.send(WriteChunks(about, parts[1:], (np.ones(DIMS),) * 39))
    found = await node.send(FindElements(about, parts, QueryRequest("_ == 1", limit=50, in_order=True)))
    assert found[0] is None
    sizes = [len(item.positions) for item in found if item is not None]
    assert (sizes[:2], sizes[-1]) == ([48, 48], 0)
    found = await node.send(FindElements(about, parts, QueryRequest("_ == 1", limit=50)))
    assert [len(item.positions) for item in found if item is not None] == [48] * 39
    with pytest.raises(BadRequest):
        await node.send(FindElements(about, parts, QueryRequest("_ == exit()")))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("query", QUERIES)
async def test_updates_change_what_the_query_finds(node: DataNode, sparse: bool, query: str) -> None:
    about = spec(sparse=sparse, kind=COMPOUND, fill=np.array((-7, b"f"), ROW).tobytes())
    for selection in ASCENDING:
        models = [await written(node, about, (0, 0)), np.full(DIMS, about.fill_value, ROW)]
        parts = (ChunkSelection((0, 0), selection), ChunkSelection((1, 1), selection))
        value = np.array((b"new",), [("s", "S3")])
        changed = await node.send(UpdateElements(about, parts, query, value, ("s",)))
        for part, model, item in zip(parts, models, changed, strict=True):
            rows = gather(model, selection).reshape(-1).copy()
            places = np.flatnonzero(QUERIES[query](rows))
            rows["s"][places] = b"new"
            scatter(model, selection, rows.reshape(selection.shape))
            assert item.positions.tolist() == places.tolist()
            np.testing.assert_array_equal(item.values.view(ROW), rows[places])
            (got,) = await node.send(ReadChunks(about, (ChunkSelection(part.scaled, Orthogonal.all(DIMS)),)))
            seen = np.full(DIMS, about.fill_value, ROW) if got is None else got.view(ROW)
            np.testing.assert_array_equal(seen, model)
        about = replace(about, dataset=new_id("datasets", new_root_id(CLOCK), CLOCK))


async def test_updates_at_once_change_each_element_once(node: DataNode) -> None:
    about = spec(sparse=False)
    part = ChunkSelection((0, 0), Orthogonal.all(DIMS))
    changes = [UpdateElements(about, (part,), "_ == 0", np.array(float(i))) for i in range(1, 9)]
    changed = await asyncio.gather(*(node.send(change) for change in changes))
    assert sorted(len(item.positions) for (item,) in changed) == [0] * 7 + [48]
