"""What every `DataNode` must do with chunks of variable-length types, as tests over a fixture `node`.

A test module of an implementation imports all of these by `*`; none is to be overridden.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.errors import Moved, TooLarge, Unsupported
from hsparse.format.selection import Boxes, Orthogonal, Points, Selection, Span
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.filter import Filter
from hsparse.model.objid import new_id, new_root_id
from hsparse.model.variable_array import VariableArray
from hsparse.wire.message import DataNode, Part, ReadVariable, TrimChunks, WriteChunks

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
    Orthogonal(DIMS, (np.array([3, 0], np.uint64), Span(0, 2, 3, 1))),
    Points(DIMS, np.array([[3, 4], [0, 0], [3, 4]], np.uint64)),
    Boxes(DIMS, np.array([[0, 0], [2, 1]], np.uint64), np.array([[1, 3], [4, 2]], np.uint64)),
]


def text(value: str) -> bytes:
    data = value.encode()
    return len(data).to_bytes(4, "little") + data


def about(kind: object = TEXT, fill: bytes = b"", *, sparse: bool = False) -> ChunkSpec:
    dataset = new_id("datasets", new_root_id(CLOCK), CLOCK)
    return ChunkSpec(dataset, kind, DIMS, sparse, fill, ((Filter(1, (1,)),),))


def words(selection: Selection, mark: str) -> VariableArray:
    """Return a word for each element, of 0 to 9 times the mark."""
    return VariableArray.of([text(mark * (n % 10)) for n in range(selection.size)], selection.shape)


async def read(node: DataNode, spec: ChunkSpec, selection: Selection) -> list[bytes]:
    (got,) = await node.send(ReadVariable(spec, (Part((0, 0), selection),), ROOM))
    if got is None:
        return [spec.fill or bytes(4)] * selection.size
    assert isinstance(got, VariableArray)
    assert got.shape == selection.shape
    return list(got)


@pytest.mark.parametrize("selection", WANTED, ids=lambda s: type(s).__name__)
async def test_words_against_a_list(node: DataNode, selection: Selection) -> None:
    spec = about(fill=text("fill"))
    model = [spec.fill] * 20
    assert await read(node, spec, selection) == [spec.fill] * selection.size
    for chosen, mark in ((WANTED[1], "ä"), (selection, "b")):
        values = words(chosen, mark)
        for offset, value in zip(chosen.offsets().tolist(), values, strict=True):
            model[offset] = value
        await node.send(WriteChunks(spec, (Part((0, 0), chosen, chosen.is_all),), (values,)))
    for wanted in WANTED:
        assert await read(node, spec, wanted) == [model[offset] for offset in wanted.offsets().tolist()]


async def test_what_is_too_much_is_told_in_bytes(node: DataNode) -> None:
    spec = about()
    whole = WANTED[0]
    values = words(whole, "x")
    parts = tuple(Part((0, n), whole) for n in range(20))
    await node.send(WriteChunks(spec, parts[:19], (values,) * 19))
    full = len(values.heap)
    got = await node.send(ReadVariable(spec, parts, 19 * full))
    assert [isinstance(part, VariableArray) for part in got] == [True] * 19 + [False]
    assert got[19] is None
    got = await node.send(ReadVariable(spec, parts, full - 1))
    told = [part for part in got if isinstance(part, int)]
    assert set(told) == {full, 0}, "what is looked at, and what is not any more"
    assert told[0] == full


async def test_one_word_for_all_and_fields(node: DataNode) -> None:
    spec = about(PAIR, fill=b"\7" + text("f"))
    box = WANTED[1]
    one = VariableArray.of([b"\1" + text("one")])
    await node.send(WriteChunks(spec, (Part((0, 0), box),), (one,)))
    await node.send(
        WriteChunks(spec, (Part((0, 0), WANTED[0]),), (VariableArray.of([b"\2"]),), fields=("n",))
    )
    last = Part((0, 0), Points(DIMS, np.array([[1, 2]], np.uint64)))
    await node.send(
        WriteChunks(spec, (last,), (VariableArray.of([text("last") + b"\3"]),), fields=("t", "n"))
    )
    inside = set(box.offsets().tolist())
    model = [b"\2" + text("one" if n in inside else "f") for n in range(20)]
    model[7] = b"\3" + text("last")
    assert await read(node, spec, WANTED[0]) == model


async def test_words_written_at_once_all_stay(node: DataNode) -> None:
    spec = about()

    async def write(n: int) -> None:
        part = Part((0, 0), Points(DIMS, np.array([divmod(n, 5)], np.uint64)))
        await node.send(WriteChunks(spec, (part,), (VariableArray.of([text(str(n) * n)]),)))

    await asyncio.gather(*map(write, range(20)))
    assert await read(node, spec, WANTED[0]) == [text(str(n) * n) for n in range(20)]


async def test_trimmed_words(node: DataNode) -> None:
    old = about(fill=text("fill"))
    whole = WANTED[0]
    values = words(whole, "x")
    parts = (Part((0, 0), whole), Part((1, 0), whole))
    await node.send(WriteChunks(old, parts, (values, values)))
    new = replace(old, generation=1)
    await node.send(TrimChunks(new, (3, 2), ((0, 0), (1, 0))))
    kept = list(values)
    model = [kept[n] if n // 5 < 3 and n % 5 < 2 else new.fill for n in range(20)]
    assert await read(node, new, whole) == model
    assert await node.send(ReadVariable(new, parts[1:], ROOM)) == (None,)
    with pytest.raises(Moved):
        await node.send(WriteChunks(old, parts, (values, values)))


async def test_a_chunk_beyond_the_limit_is_refused(node: DataNode) -> None:
    """One element for all would make of 16 MiB a chunk of 320."""
    spec = about()
    part = Part((0, 0), WANTED[0])
    with pytest.raises(TooLarge, match="chunk"):
        await node.send(WriteChunks(spec, (part,), (VariableArray.of([text("x" * (16 << 20))]),)))
    assert await node.send(ReadVariable(spec, (part,), ROOM)) == (None,)


async def test_sparse_words_are_refused(node: DataNode) -> None:
    spec = about(sparse=True)
    with pytest.raises(Unsupported):
        await node.send(ReadVariable(spec, (Part((0, 0), WANTED[0]),), ROOM))
