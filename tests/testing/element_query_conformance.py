"""Conformance tests of a `DataNode` for queries about elements, over a fixture `node` on an empty store.

A test module of an implementation provides the fixture and imports all tests of this and the other conformance
modules by `*`. Tests must not be overridden.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from hsparse.errors import BadRequest
from hsparse.format.kinds.chunk_kind import QueryRequest
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal, Points, StridedSpan, gather, scatter
from hsparse.model.ids import (
    new_id,
    new_root_id,
)
from hsparse.wire.chunk_message import (
    FindElements,
    ReadChunks,
    UpdateElements,
    WriteChunks,
)
from hsparse.wire.message import DataNode
from tests.testing.chunk_conformance import CLOCK, COMPOUND, DIMS, ROW, SELECTIONS, spec, written

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
    assert sizes[:2] == [48, 48]
    assert sizes[-1] == 0
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
