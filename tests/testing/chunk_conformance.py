"""Conformance tests of a `DataNode` for chunks of elements, over a fixture `node` on an empty store.

A test module of an implementation provides the fixture and imports all tests of this and the other conformance
modules by `*`. Tests must not be overridden.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparse.clock import SystemClock
from hsparse.errors import BadRequest, Conflict, Gone, Moved
from hsparse.format.chunk_spec import ChunkSpec, chunk_key
from hsparse.format.filters.definition import Filter
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import (
    Boxes,
    Orthogonal,
    Points,
    Selection,
    StridedSpan,
    gather,
    scatter,
)
from hsparse.model.ids import chunk_prefix, new_id, new_root_id
from hsparse.wire.chunk_message import (
    CountDefined,
    EraseChunks,
    FenceDeleted,
    ReadChunks,
    ReadDefined,
    TrimChunks,
    WriteChunks,
)
from hsparse.wire.message import DataNode, GetInfo
from hsparse.wire.record_message import CreateObject, DeleteTree, Forget, ListKeys
from tests.testing.record_conformance import change, created

CLOCK = SystemClock()
DIMS = (6, 8)
SHUFFLE_DEFLATE = (Filter(2, (4,)), Filter(1, (1,)))


async def test_a_node_tells_who_it_is(node: DataNode) -> None:
    info = await node.send(GetInfo())
    assert info.state == "READY"
    assert info.id


def spec(*, sparse: bool, kind: Any = "H5T_IEEE_F64LE", fill: bytes = b"", generation: int = 0) -> ChunkSpec:
    dataset = new_id("datasets", new_root_id(CLOCK), CLOCK)
    filters = (SHUFFLE_DEFLATE, ()) if sparse else ((Filter(1, (1,)),),)
    return ChunkSpec(dataset, kind, DIMS, sparse, fill, filters, generation)


SELECTIONS: list[Selection] = [
    Orthogonal.all(DIMS),
    Orthogonal.box(DIMS, (1, 2), (4, 7)),
    Orthogonal(DIMS, (StridedSpan(0, 3, 2, 2), StridedSpan(1, 2, 3, 1))),
    Orthogonal(DIMS, (np.array([5, 0, 3], np.uint64), StridedSpan.range(2, 5))),
    Points(DIMS, np.array([[5, 7], [0, 0], [3, 3]], np.uint64)),
    Boxes(DIMS, np.array([[0, 0], [3, 4]], np.uint64), np.array([[2, 2], [6, 6]], np.uint64)),
]


def numbered(selection: Selection, start: float) -> NDArray[Any]:
    return (start + np.arange(selection.size, dtype=float)).reshape(selection.shape)


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda s: type(s).__name__)
async def test_dense_chunks_against_numpy(node: DataNode, selection: Selection) -> None:
    about = spec(sparse=False, fill=np.float64(-1).tobytes())
    model = np.full(DIMS, -1.0)
    for round, chosen in enumerate([SELECTIONS[1], selection]):
        values = numbered(chosen, 100 * round)
        scatter(model, chosen, values)
        await node.send(WriteChunks(about, (ChunkSelection((2, 3), chosen),), (values,)))
    for wanted in SELECTIONS:
        (got,) = await node.send(ReadChunks(about, (ChunkSelection((2, 3), wanted),)))
        assert got is not None
        np.testing.assert_array_equal(got.view(float), gather(model, wanted).reshape(wanted.shape))


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda s: type(s).__name__)
async def test_sparse_chunks_against_a_dict(node: DataNode, selection: Selection) -> None:
    about = spec(sparse=True, fill=np.float64(-1).tobytes())
    model: dict[int, float] = {}

    async def write(chosen: Selection, start: float) -> None:
        values = numbered(chosen, start)
        model.update(zip(chosen.offsets().tolist(), values.ravel().tolist(), strict=True))
        await node.send(WriteChunks(about, (ChunkSelection((0, 1), chosen),), (values,)))

    await write(SELECTIONS[1], 0)
    await write(selection, 100)
    await node.send(EraseChunks(about, (ChunkSelection((0, 1), SELECTIONS[2]),)))
    for offset in SELECTIONS[2].offsets().tolist():
        model.pop(offset, None)
    for wanted in SELECTIONS:
        part = ChunkSelection((0, 1), wanted)
        inside = sorted(set(model) & set(wanted.offsets().tolist()))
        assert await node.send(CountDefined(about, (part,))) == (len(inside),)
        (found,) = await node.send(ReadDefined(about, (part,)))
        assert (found.offsets.tolist() if found else []) == inside
        assert (found.values.view(float).tolist() if found else []) == [model[i] for i in inside]
        (dense,) = await node.send(ReadChunks(about, (part,)))
        expected = [model.get(i, -1.0) for i in wanted.offsets().tolist()]
        assert (dense.view(float).ravel().tolist() if dense is not None else [-1.0] * wanted.size) == expected


async def test_a_chunk_that_is_not_there_reads_as_none(node: DataNode) -> None:
    part = ChunkSelection((0, 0), Orthogonal.all(DIMS))
    assert await node.send(ReadChunks(spec(sparse=False), (part,))) == (None,)
    sparse = spec(sparse=True)
    assert await node.send(ReadChunks(sparse, (part,))) == (None,)
    assert await node.send(ReadDefined(sparse, (part,))) == (None,)
    assert await node.send(CountDefined(sparse, (part,))) == (0,)
    await node.send(EraseChunks(sparse, (part,)))


async def test_one_element_for_all_and_dropped_fill(node: DataNode) -> None:
    about = spec(sparse=True, fill=np.float64(np.nan).tobytes())
    part = ChunkSelection((0, 0), Orthogonal.box(DIMS, (0, 0), (2, 2)))
    await node.send(WriteChunks(about, (part,), (np.array([7.0]),)))
    values = np.array([[np.nan, 1.0], [np.nan, 2.0]])
    await node.send(WriteChunks(about, (part,), (values,), drop_fill=True))
    (found,) = await node.send(ReadDefined(about, (part,)))
    assert found is not None
    assert found.values.view(float).tolist() == [7.0, 1.0, 7.0, 2.0]
    (places,) = await node.send(ReadDefined(about, (part,), places_only=True))
    assert places is not None
    assert (len(places.offsets), len(places.values)) == (4, 0)


async def test_a_point_given_twice_takes_the_last(node: DataNode) -> None:
    points = Points(DIMS, np.array([[1, 1], [1, 1]], np.uint64))
    for sparse in (True, False):
        about = spec(sparse=sparse)
        await node.send(WriteChunks(about, (ChunkSelection((0, 0), points),), (np.array([1.0, 2.0]),)))
        (got,) = await node.send(ReadChunks(about, (ChunkSelection((0, 0), points),)))
        assert got is not None
        assert got.view(float).tolist() == [2.0, 2.0]


COMPOUND = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "a", "type": "H5T_STD_I16BE"},
        {
            "name": "s",
            "type": {"class": "H5T_STRING", "length": 3, "charSet": "H5T_CSET_ASCII", "strPad": "x"},
        },
    ],
}


@pytest.mark.parametrize("sparse", [True, False])
async def test_compound_elements(node: DataNode, sparse: bool) -> None:
    about = spec(sparse=sparse, kind=COMPOUND)
    values = np.zeros((2, 3), about.dtype)
    values["a"] = np.arange(6).reshape(2, 3)
    values["s"] = b"xyz"
    part = ChunkSelection((0, 0), Orthogonal.box(DIMS, (1, 1), (3, 4)))
    await node.send(WriteChunks(about, (part,), (values,)))
    (got,) = await node.send(ReadChunks(about, (part,)))
    assert got is not None
    np.testing.assert_array_equal(got.view(about.dtype), values)


ROW = np.dtype([("a", ">i2"), ("s", "S3")])


async def written(node: DataNode, about: ChunkSpec, scaled: tuple[int, ...]) -> NDArray[Any]:
    """Write a block of compound elements into a chunk; return the expected values of the whole chunk."""
    model = np.full(DIMS, about.fill_value, ROW)
    part = ChunkSelection(scaled, SELECTIONS[1])
    values = np.zeros(SELECTIONS[1].shape, ROW)
    values["a"] = np.arange(values.size).reshape(values.shape)
    values["s"] = b"xyz"
    scatter(model, part.selection, values)
    await node.send(WriteChunks(about, (part,), (values,)))
    return model


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("selection", SELECTIONS[:5], ids=lambda s: type(s).__name__)
async def test_some_fields_are_written_and_read(node: DataNode, sparse: bool, selection: Selection) -> None:
    fill = np.array((-7, b"f"), ROW)
    about = spec(sparse=sparse, kind=COMPOUND, fill=fill.tobytes())
    model = await written(node, about, (0, 0))
    for names in (("s",), ("s", "a")):
        values = np.zeros(selection.shape, [(name, ROW[name]) for name in names])
        for name in names:
            values[name] = np.arange(selection.size).reshape(selection.shape).astype(ROW[name])
            merged = gather(model, selection).reshape(selection.shape).copy()
            merged[name] = values[name]
            scatter(model, selection, merged)
        part = ChunkSelection((0, 0), selection, full=selection.is_all)
        await node.send(WriteChunks(about, (part,), (values,), fields=names))
        (got,) = await node.send(ReadChunks(about, (ChunkSelection((0, 0), Orthogonal.all(DIMS)),)))
        assert got is not None
        np.testing.assert_array_equal(got.view(ROW), model)
        (some,) = await node.send(ReadChunks(about, (part,), names))
        assert some is not None
        np.testing.assert_array_equal(some.view(values.dtype), values)
    await node.send(WriteChunks(about, (part,), (np.array([(5,)], [("a", ">i2")]),), fields=("a",)))
    (some,) = await node.send(ReadChunks(about, (part,), ("a",)))
    assert some is not None
    assert set(some.view(">i2").ravel().tolist()) == {5}


async def test_many_chunks_in_one_message(node: DataNode) -> None:
    about = spec(sparse=True)
    parts = tuple(ChunkSelection((i, 0), Orthogonal.box(DIMS, (0, 0), (1, i % 8 + 1))) for i in range(200))
    values = tuple(np.full((1, i % 8 + 1), float(i)) for i in range(200))
    await node.send(WriteChunks(about, parts, values))
    found = await node.send(
        ReadDefined(about, tuple(ChunkSelection((i, 0), Orthogonal.all(DIMS)) for i in range(200)))
    )
    assert [len(item.offsets) if item else 0 for item in found] == [i % 8 + 1 for i in range(200)]
    listing = await node.send(ListKeys(chunk_prefix(about.dataset)))
    assert set(listing.keys) == {chunk_key(about.dataset, (i, 0)) for i in range(200)}


async def test_writes_to_one_chunk_at_once_all_stay(node: DataNode) -> None:
    about = spec(sparse=True)

    async def write(row: int, column: int) -> None:
        part = ChunkSelection((0, 0), Points(DIMS, np.array([[row, column]], np.uint64)))
        await node.send(WriteChunks(about, (part,), (np.array([row * 10.0 + column]),)))

    await asyncio.gather(*(write(row, column) for row in range(DIMS[0]) for column in range(DIMS[1])))
    (got,) = await node.send(ReadChunks(about, (ChunkSelection((0, 0), Orthogonal.all(DIMS)),)))
    assert got is not None
    np.testing.assert_array_equal(got.view(float), np.add.outer(np.arange(6) * 10.0, np.arange(8)))


@pytest.mark.parametrize("sparse", [False, True])
async def test_a_chunk_that_was_taken_for_new_keeps_its_elements(node: DataNode, sparse: bool) -> None:
    about = spec(sparse=sparse)
    for row in range(2):
        part = ChunkSelection((1, 1), Points(DIMS, np.array([[row, 0]], np.uint64)))
        await node.send(WriteChunks(about, (part,), (np.array([1.0 + row]),), grown_from=(0, 0)))
        await node.send(Forget(about.dataset))
    (got,) = await node.send(ReadChunks(about, (ChunkSelection((1, 1), Orthogonal.all(DIMS)),)))
    assert got is not None
    assert got.view(float)[:, 0].tolist() == [1.0, 2.0] + [0.0] * (DIMS[0] - 2)


async def test_deleting_the_chunks_of_a_dataset(node: DataNode) -> None:
    about, other = spec(sparse=True), spec(sparse=True)
    parts = tuple(ChunkSelection((i, 0), Orthogonal.all(DIMS)) for i in range(5))
    for one in (about, other):
        await node.send(WriteChunks(one, parts, (np.ones(DIMS),) * 5))
    assert await node.send(DeleteTree(about.dataset)) == 5
    assert await node.send(CountDefined(about, parts)) == (0,) * 5
    assert await node.send(CountDefined(other, parts)) == (48,) * 5


@pytest.mark.parametrize("first", [(), (2, 3), (6, 0)])
@pytest.mark.parametrize("sparse", [True, False])
async def test_trimming_erases_and_fences(node: DataNode, sparse: bool, first: tuple[int, ...]) -> None:
    old = spec(sparse=sparse, fill=np.float64(5).tobytes())
    whole = Orthogonal.all(DIMS)
    parts = tuple(ChunkSelection((i, j), whole) for i in range(2) for j in range(2))
    await node.send(WriteChunks(old, parts, (np.ones(DIMS),) * 4))
    new = ChunkSpec(old.dataset, old.type, old.dims, old.sparse, old.fill, old.filters, generation=1)
    await node.send(TrimChunks(new, (9, 4), tuple(part.scaled for part in parts), first))
    got = await node.send(ReadChunks(new, parts))
    model = np.full((12, 16), 5.0)
    below = first or (0, 0)
    model[below[0] : 9, below[1] : 4] = 1.0
    for part, values in zip(parts, got, strict=True):
        row, column = part.scaled
        expected = model[row * 6 : row * 6 + 6, column * 8 : column * 8 + 8]
        np.testing.assert_array_equal(np.full(DIMS, 5.0) if values is None else values.view(float), expected)
    assert got[1] is None
    assert got[0] is None or first != (6, 0), "a chunk below the lower bound is deleted"
    with pytest.raises(Moved):
        await node.send(WriteChunks(old, parts, (np.ones(DIMS),) * 4))
    with pytest.raises(Moved):
        await node.send(ReadChunks(old, parts))


async def test_a_shrink_is_remembered_by_the_record(node: DataNode) -> None:
    root = await created(node)
    about = spec(sparse=True)
    record = {"id": about.dataset, "root": root, "generation": 3}
    (await change(node, CreateObject(about.dataset, record))).unwrap()
    part = ChunkSelection((0, 0), Orthogonal.all(DIMS))
    with pytest.raises(Moved):
        await node.send(WriteChunks(about, (part,), (np.ones(DIMS),)))
    current = replace(about, generation=3)
    await node.send(WriteChunks(current, (part,), (np.ones(DIMS),)))
    with pytest.raises(Moved):
        await node.send(EraseChunks(about, (part,)))
    assert await node.send(CountDefined(current, (part,))) == (48,)


async def test_a_deleted_dataset_takes_nothing_more(node: DataNode) -> None:
    about = spec(sparse=True)
    part = ChunkSelection((0, 0), Orthogonal.all(DIMS))
    await node.send(WriteChunks(about, (part,), (np.ones(DIMS),)))
    await node.send(FenceDeleted(about.dataset))
    assert await node.send(DeleteTree(about.dataset)) == 1
    with pytest.raises(Gone):
        await node.send(WriteChunks(about, (part,), (np.ones(DIMS),)))
    with pytest.raises(Gone):
        await node.send(ReadChunks(about, (part,)))
    assert (await node.send(ListKeys(chunk_prefix(about.dataset)))).keys == ()


async def test_forgetting_changes_nothing(node: DataNode) -> None:
    about = spec(sparse=True)
    part = ChunkSelection((0, 0), Orthogonal.all(DIMS))
    await node.send(WriteChunks(about, (part,), (np.ones(DIMS),)))
    await node.send(Forget(about.dataset))
    assert await node.send(CountDefined(about, (part,))) == (48,)


async def test_parts_without_values_are_refused(node: DataNode) -> None:
    with pytest.raises(BadRequest):
        await node.send(WriteChunks(spec(sparse=True), (ChunkSelection((0, 0), Orthogonal.all(DIMS)),), ()))


async def test_errors_keep_their_kind_and_sentence(node: DataNode) -> None:
    id = await created(node)
    failure = (await change(node, CreateObject(id, {}))).failure
    assert failure is not None
    error = failure.error()
    assert isinstance(error, Conflict)
    assert id in error.message
