"""Conformance tests of a `DataNode` for chunks of variable-length types, over a fixture `node`.

A test module of an implementation provides the fixture and imports all tests by `*`. Tests must not be overridden.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.errors import Moved, TooLarge
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.chunk_kind import DefinedElements
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Boxes, Orthogonal, Points, Selection, StridedSpan
from hsparse.model.ids import new_id, new_root_id
from hsparse.model.vlen_array import VlenArray
from hsparse.wire.chunk_message import (
    CountDefined,
    EraseChunks,
    ReadChunks,
    ReadDefined,
    TrimChunks,
    WriteChunks,
)
from hsparse.wire.message import DataNode

CLOCK = SystemClock()
TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
PAIR = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "n", "type": "H5T_STD_U8LE"}, {"name": "t", "type": TEXT}],
}
DIMS = (4, 5)
ROOM = 1 << 20
WANTED: list[Selection] = [
    Orthogonal.all(DIMS),
    Orthogonal.box(DIMS, (1, 2), (3, 5)),
    Orthogonal(DIMS, (np.array([3, 0], np.uint64), StridedSpan(0, 2, 3, 1))),
    Points(DIMS, np.array([[3, 4], [0, 0], [3, 4]], np.uint64)),
    Boxes(DIMS, np.array([[0, 0], [2, 1]], np.uint64), np.array([[1, 3], [4, 2]], np.uint64)),
]


def text(value: str) -> bytes:
    data = value.encode()
    return len(data).to_bytes(4, "little") + data


def about(
    kind: object = TEXT, fill: bytes = b"", *, sparse: bool = False, structured: bool = False
) -> ChunkSpec:
    dataset = new_id("datasets", new_root_id(CLOCK), CLOCK)
    pipelines = ((Filter(1, (1,)),),) * (3 if structured or sparse else 1)
    return ChunkSpec(dataset, kind, DIMS, sparse, fill, pipelines)


def words(selection: Selection, mark: str) -> VlenArray:
    """Return a word for each element of a selection; a word repeats `mark` 0 to 9 times."""
    return VlenArray.of([text(mark * (n % 10)) for n in range(selection.size)], selection.shape)


async def read(node: DataNode, spec: ChunkSpec, selection: Selection) -> list[bytes]:
    (got,) = await node.send(ReadChunks(spec, (ChunkSelection((0, 0), selection),), limit=ROOM))
    if got is None:
        return [spec.fill or bytes(4)] * selection.size
    assert isinstance(got, VlenArray)
    assert got.shape == selection.shape
    return list(got)


@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("selection", WANTED, ids=lambda s: type(s).__name__)
async def test_words_against_a_list(node: DataNode, selection: Selection, structured: bool) -> None:
    spec = about(fill=text("fill"), structured=structured)
    model = [spec.fill] * 20
    assert await read(node, spec, selection) == [spec.fill] * selection.size
    for chosen, mark in ((WANTED[1], "ä"), (selection, "b")):
        values = words(chosen, mark)
        for offset, value in zip(chosen.offsets().tolist(), values, strict=True):
            model[offset] = value
        await node.send(WriteChunks(spec, (ChunkSelection((0, 0), chosen, chosen.is_all),), (values,)))
    for wanted in WANTED:
        assert await read(node, spec, wanted) == [model[offset] for offset in wanted.offsets().tolist()]


async def test_what_is_too_much_is_told_in_bytes(node: DataNode) -> None:
    spec = about()
    whole = WANTED[0]
    values = words(whole, "x")
    parts = tuple(ChunkSelection((0, n), whole) for n in range(20))
    await node.send(WriteChunks(spec, parts[:19], (values,) * 19))
    full = len(values.heap)
    got = await node.send(ReadChunks(spec, parts, limit=19 * full))
    assert [isinstance(part, VlenArray) for part in got] == [True] * 19 + [False]
    assert got[19] is None
    got = await node.send(ReadChunks(spec, parts, limit=full - 1))
    told = [part for part in got if isinstance(part, int)]
    assert set(told) == {full, 0}, "what is looked at, and what is not any more"
    assert told[0] == full


async def test_one_word_for_all_and_fields(node: DataNode) -> None:
    spec = about(PAIR, fill=b"\7" + text("f"))
    box = WANTED[1]
    one = VlenArray.of([b"\1" + text("one")])
    await node.send(WriteChunks(spec, (ChunkSelection((0, 0), box),), (one,)))
    await node.send(
        WriteChunks(spec, (ChunkSelection((0, 0), WANTED[0]),), (VlenArray.of([b"\2"]),), fields=("n",))
    )
    last = ChunkSelection((0, 0), Points(DIMS, np.array([[1, 2]], np.uint64)))
    await node.send(WriteChunks(spec, (last,), (VlenArray.of([text("last") + b"\3"]),), fields=("t", "n")))
    inside = set(box.offsets().tolist())
    model = [b"\2" + text("one" if n in inside else "f") for n in range(20)]
    model[7] = b"\3" + text("last")
    assert await read(node, spec, WANTED[0]) == model


async def test_words_written_at_once_all_stay(node: DataNode) -> None:
    spec = about()

    async def write(n: int) -> None:
        part = ChunkSelection((0, 0), Points(DIMS, np.array([divmod(n, 5)], np.uint64)))
        await node.send(WriteChunks(spec, (part,), (VlenArray.of([text(str(n) * n)]),)))

    await asyncio.gather(*map(write, range(20)))
    assert await read(node, spec, WANTED[0]) == [text(str(n) * n) for n in range(20)]


async def test_trimmed_words(node: DataNode) -> None:
    old = about(fill=text("fill"))
    whole = WANTED[0]
    values = words(whole, "x")
    parts = (ChunkSelection((0, 0), whole), ChunkSelection((1, 0), whole))
    await node.send(WriteChunks(old, parts, (values, values)))
    new = replace(old, generation=1)
    await node.send(TrimChunks(new, (3, 2), ((0, 0), (1, 0))))
    kept = list(values)
    model = [kept[n] if n // 5 < 3 and n % 5 < 2 else new.fill for n in range(20)]
    assert await read(node, new, whole) == model
    assert await node.send(ReadChunks(new, parts[1:], limit=ROOM)) == (None,)
    with pytest.raises(Moved):
        await node.send(WriteChunks(old, parts, (values, values)))


async def test_a_chunk_beyond_the_limit_is_refused(node: DataNode) -> None:
    """One element of 16 MiB, written to all places, would make a chunk of 320 MiB."""
    spec = about()
    part = ChunkSelection((0, 0), WANTED[0])
    with pytest.raises(TooLarge, match="chunk"):
        await node.send(WriteChunks(spec, (part,), (VlenArray.of([text("x" * (16 << 20))]),)))
    assert await node.send(ReadChunks(spec, (part,), limit=ROOM)) == (None,)


@pytest.mark.parametrize("sparse", [False, True])
async def test_what_is_refused_leaves_what_was_there(node: DataNode, sparse: bool) -> None:
    """A write of a whole chunk does not load the chunk. If it is refused, the chunk and concurrent writes stay."""
    spec = about(sparse=sparse)
    part = ChunkSelection((0, 0), WANTED[0], full=True)
    values = words(WANTED[0], "x")
    await node.send(WriteChunks(spec, (part,), (values,)))
    large = VlenArray.of([text("x" * (16 << 20))])
    one = VlenArray.of([text("one")])
    refused, done = await asyncio.gather(
        node.send(WriteChunks(spec, (part,), (large,))),
        node.send(WriteChunks(spec, (ChunkSelection((0, 0), points_at(3)),), (one,))),
        return_exceptions=True,
    )
    assert isinstance(refused, TooLarge)
    assert done is None
    model = list(values)
    model[3] = text("one")
    assert await read(node, spec, WANTED[0]) == model


async def places_and_words(
    node: DataNode, spec: ChunkSpec, selection: Selection = WANTED[0]
) -> dict[int, bytes]:
    """Return the defined words by offset in the chunk; assert that all messages about them agree."""
    parts = (ChunkSelection((0, 0), selection),)
    (found,) = await node.send(ReadDefined(spec, parts, limit=ROOM))
    (places,) = await node.send(ReadDefined(spec, parts, places_only=True))
    (count,) = await node.send(CountDefined(spec, parts))
    if found is None:
        assert (places, count) == (None, 0)
        return {}
    assert not isinstance(found, int)
    assert places is not None
    assert found.offsets.tolist() == places.offsets.tolist() == sorted(set(found.offsets.tolist()))
    assert places.values.size == 0
    assert count == len(found.offsets) == found.values.size
    return dict(zip(found.offsets.tolist(), found.values, strict=True))


async def define(
    node: DataNode, spec: ChunkSpec, selection: Selection, *words: str, drop_fill: bool = False
) -> None:
    values = VlenArray.of([text(word) for word in words])
    values = values if values.size == 1 else values.reshape(selection.shape)
    await node.send(WriteChunks(spec, (ChunkSelection((0, 0), selection),), (values,), drop_fill))


def points_at(*offsets: int) -> Points:
    return Points(DIMS, np.array([divmod(offset, 5) for offset in offsets], np.uint64))


@pytest.mark.parametrize("selection", WANTED, ids=lambda s: type(s).__name__)
async def test_sparse_words_against_a_dict(node: DataNode, selection: Selection) -> None:
    spec = about(fill=text("fill"), sparse=True)
    model: dict[int, bytes] = {}
    assert await places_and_words(node, spec) == {}
    for chosen, mark in ((WANTED[1], "ä"), (selection, "b"), (WANTED[3], "c")):
        values = words(chosen, mark)
        model |= dict(zip(chosen.offsets().tolist(), values, strict=True))
        await node.send(WriteChunks(spec, (ChunkSelection((0, 0), chosen, chosen.is_all),), (values,)))
    for wanted in WANTED:
        offsets = wanted.offsets().tolist()
        assert await read(node, spec, wanted) == [model.get(offset, spec.fill) for offset in offsets]
        inside = {offset: model[offset] for offset in offsets if offset in model}
        assert await places_and_words(node, spec, wanted) == inside
    await node.send(EraseChunks(spec, (ChunkSelection((0, 0), WANTED[1]),)))
    for offset in WANTED[1].offsets().tolist():
        model.pop(offset, None)
    assert await places_and_words(node, spec) == model
    await node.send(EraseChunks(spec, (ChunkSelection((0, 0), WANTED[0]),)))
    assert await places_and_words(node, spec) == {}
    assert await read(node, spec, WANTED[0]) == [spec.fill] * 20


async def test_sparse_words_like_the_fill_value(node: DataNode) -> None:
    spec = about(fill=text("fill"), sparse=True)
    await define(node, spec, points_at(1, 3, 5, 5), "one", "fill", "fill", "last", drop_fill=True)
    await define(node, spec, points_at(7, 8), "fill", drop_fill=True)
    assert await places_and_words(node, spec) == {1: text("one"), 5: text("last")}
    await define(node, spec, points_at(1, 9), "fill")
    await define(node, spec, points_at(1), "fill", drop_fill=True)
    await define(node, spec, points_at(2, 4), "same", drop_fill=True)
    assert await places_and_words(node, spec) == {
        1: text("fill"),
        2: text("same"),
        4: text("same"),
        5: text("last"),
        9: text("fill"),
    }


async def test_fields_of_sparse_pairs(node: DataNode) -> None:
    spec = about(PAIR, fill=b"\7" + text("f"), sparse=True)

    async def write(selection: Selection, *values: bytes, fields: tuple[str, ...] = ()) -> None:
        part = ChunkSelection((0, 0), selection)
        await node.send(WriteChunks(spec, (part,), (VlenArray.of(values),), fields=fields))

    await write(points_at(3, 4), b"\1" + text("a"), b"\2" + text("b"))
    await write(points_at(4, 6), b"\5", fields=("n",))
    await write(points_at(6), text("last"), fields=("t",))
    assert await places_and_words(node, spec) == {
        3: b"\1" + text("a"),
        4: b"\5" + text("b"),
        6: b"\5" + text("last"),
    }


async def test_sparse_words_written_at_once_all_stay(node: DataNode) -> None:
    spec = about(sparse=True)
    await asyncio.gather(*(define(node, spec, points_at(n), str(n) * n) for n in range(20)))
    assert await places_and_words(node, spec) == {n: text(str(n) * n) for n in range(20)}


async def test_trimmed_sparse_words(node: DataNode) -> None:
    old = about(sparse=True)
    whole = WANTED[0]
    values = words(whole, "x")
    parts = (ChunkSelection((0, 0), whole), ChunkSelection((1, 0), whole))
    await node.send(WriteChunks(old, parts, (values, values)))
    new = replace(old, generation=1)
    await node.send(TrimChunks(new, (3, 2), ((0, 0), (1, 0))))
    kept = {n: word for n, word in enumerate(values) if n // 5 < 3 and n % 5 < 2}
    assert await places_and_words(node, new) == kept
    assert await node.send(ReadDefined(new, parts[1:], limit=ROOM)) == (None,)
    with pytest.raises(Moved):
        await node.send(EraseChunks(old, parts))


async def test_sparse_words_that_are_too_many_are_told_in_bytes(node: DataNode) -> None:
    spec = about(sparse=True)
    parts = tuple(ChunkSelection((0, n), WANTED[0]) for n in range(12))
    values = words(WANTED[0], "x")
    await node.send(WriteChunks(spec, parts, (values,) * 12))
    full = len(values.heap) + 20 * 4
    got = await node.send(ReadDefined(spec, parts, limit=12 * full))
    assert [isinstance(part, DefinedElements) for part in got] == [True] * 12
    got = await node.send(ReadDefined(spec, parts, limit=3 * full))
    assert sum(isinstance(part, DefinedElements) for part in got) <= 3
    assert {part for part in got if isinstance(part, int)} <= {full, 0}
    half = ChunkSelection((0, 0), WANTED[1])
    (some,) = await node.send(ReadDefined(spec, (half,), limit=1))
    assert some == sum(len(word) + 4 for word in words(WANTED[0], "x")[1:3, 2:5])
    (one,) = await node.send(ReadDefined(spec, (ChunkSelection((0, 0), points_at(7)),), limit=1))
    assert isinstance(one, DefinedElements), "one element alone comes, however large it is"
    assert list(one.values) == [text("x" * 7)]


async def test_a_sparse_chunk_beyond_the_limit_is_refused(node: DataNode) -> None:
    spec = about(sparse=True)
    with pytest.raises(TooLarge, match="chunk"):
        await define(node, spec, WANTED[0], "x" * (16 << 20))
    assert await places_and_words(node, spec) == {}
