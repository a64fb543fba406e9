"""Frames and the contract: strict writer and reader, golden bytes; connections follow the membership."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from hsparse.errors import BadRequest, Misdirected, Outdated
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.chunk_kind import DefinedElements, QueryRequest
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Boxes, Orthogonal, Points, StridedSpan
from hsparse.model.stripes import Stripes
from hsparse.model.vlen_array import VlenArray
from hsparse.wire.chunk_message import EraseChunks, FindElements, ReadDefined, TrimChunks, WriteChunks
from hsparse.wire.codec import KINDS, MESSAGE_VERSION, check_version, decode_frame, encode_frame
from hsparse.wire.message import Failure, GetInfo, Message
from hsparse.wire.record_message import (
    ChangeObjects,
    CreateObject,
    Outcome,
    PutAttributes,
    ReadObjects,
    RecordChange,
)
from hsparse.wire.remote_node import MemberConnections


def framed(value: object) -> bytes:
    return b"".join(bytes(piece) for piece in encode_frame(value))


def same(value: object) -> object:
    return decode_frame(framed(value))


SPEC = ChunkSpec(
    "d-1", {"class": "H5T_FLOAT", "base": "H5T_IEEE_F64LE"}, (4, 5), True, b"\0\1", ((Filter(2, (8,)),), ())
)


@pytest.mark.parametrize(
    "message",
    [
        ReadObjects(("a", "b")),
        ChangeObjects(
            (CreateObject("a", {"x": [1, {"y": None}]}), PutAttributes("b", {"n": {"value": [1]}}, True))
        ),
        TrimChunks(SPEC, (3, 3), ((0, 0), (1, 2))),
        FindElements(SPEC, (), QueryRequest("a > 1 & s == b'x'", 5, True, ("a", "s"), True)),
        ReadDefined(SPEC, (), limit=4096),
        EraseChunks(replace(SPEC, stripes=Stripes(3)), ()),
        EraseChunks(replace(SPEC, stripes=Stripes.of(["a", "b/c"])), ()),
        Outcome({"a": []}, True, False, None),
        Outcome(failure=Failure("gone", "It is gone.")),
        (None, 1, "x", 2.5, True),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_come_back_as_they_were(message: object) -> None:
    back = same(message)
    assert (tuple(back) if isinstance(back, list) else back) == message


@pytest.mark.parametrize(
    "selection",
    [
        Orthogonal((4, 5), (StridedSpan(0, 2, 2, 1), np.array([4, 0], np.uint64))),
        Points((4, 5), np.array([[1, 2], [3, 4]], np.uint64), (2, 1)),
        Boxes((4, 5), np.zeros((1, 2), np.uint64), np.ones((1, 2), np.uint64)),
    ],
    ids=lambda selection: type(selection).__name__,
)
def test_selections_come_back_equal(selection: object) -> None:
    assert same(ChunkSelection((1, 2), selection, True)).selection == selection  # type: ignore[arg-type,attr-defined]


@given(
    npst.arrays(
        npst.scalar_dtypes().filter(lambda t: t.kind in "biufS"), npst.array_shapes(max_dims=3, min_side=0)
    )
)
def test_arrays_come_back_equal(array: np.ndarray) -> None:
    back = same(WriteChunks(SPEC, (), (array, array[..., ::-1], np.arange(3)))).values
    for got, sent in zip(back, (array, array[..., ::-1], np.arange(3)), strict=True):
        assert got.tobytes() == np.ascontiguousarray(sent).tobytes()
        assert got.shape == sent.shape


def test_arrays_are_not_copied() -> None:
    array = np.arange(1000)
    pieces = encode_frame(DefinedElements(np.zeros(0, np.uint32), array))
    assert any(
        isinstance(piece, memoryview) and np.shares_memory(np.frombuffer(piece), array) for piece in pieces
    )
    data = framed(DefinedElements(np.zeros(0, np.uint32), array))
    assert np.shares_memory(decode_frame(data).values, np.frombuffer(data, np.uint8))


def test_compound_elements_travel_as_opaque_bytes() -> None:
    array = np.zeros(3, [("a", "<i4"), ("b", "S3")])
    array["a"] = 5
    back = same(DefinedElements(np.zeros(0, np.uint32), array)).values
    assert back.dtype == np.dtype("V7")
    assert back.view(array.dtype).tolist() == array.tolist()


def test_golden_bytes() -> None:
    frame = framed(DefinedElements(np.array([7], np.uint32), np.array([1.5])))
    assert frame.hex() == (
        "36000000"  # header length
        "83a121af446566696e6564456c656d656e7473"  # {"!": "DefinedElements",
        "a76f666673657473d70193a33c7534910104"  # "offsets": array ["<u4", [1], 4],
        "a676616c756573d70193a33c6638910108"  # "values": array ["<f8", [1], 8]}
        "000000000000"  # up to a multiple of 8
        "0700000000000000"
        "000000000000f83f"
    )


@pytest.mark.parametrize("header", [{"!": "ReadObjects", "ids": ["a"], "later": 1}, {"!": "LaterObjects"}])
def test_what_is_not_known_is_refused(header: object) -> None:
    packed = msgpack.packb(header)
    with pytest.raises(BadRequest, match=r"[lL]ater"):
        decode_frame(len(packed).to_bytes(4, "little") + packed)


@pytest.mark.parametrize("data", [b"", b"\1\0\0", b"\xff\xff\xff\xff", framed(ReadObjects(("a",)))[:-9]])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        decode_frame(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        decode_frame(len(data).to_bytes(4, "little") + data)
    except BadRequest:
        return


def test_only_the_contract_can_be_sent() -> None:
    for value in (object(), {1, 2}, np.array([object()])):
        with pytest.raises(TypeError):
            encode_frame(DefinedElements(np.zeros(0, np.uint32), value))  # type: ignore[arg-type]


def test_every_change_is_registered() -> None:
    assert {change.__name__ for change in RecordChange.__args__} <= set(KINDS)  # type: ignore[attr-defined]


def test_variable_arrays_come_back() -> None:
    array = VlenArray.of([b"a", b"", b"bcd", b"efgh"], (2, 2))
    back = same((array, array.sizes))
    assert isinstance(back, list)
    assert back[0].shape == (2, 2)
    assert list(back[0]) == list(array)
    assert back[1].tolist() == [1, 0, 3, 4]


def test_a_variable_array_that_lies_is_no_frame() -> None:
    data = framed(VlenArray.of([b"abc", b"d"]))
    cut = data.replace((4).to_bytes(4, "little"), (5).to_bytes(4, "little"))
    assert cut != data
    with pytest.raises(BadRequest):
        decode_frame(cut)


def test_sparse_values_of_variable_length_come_back() -> None:
    values = VlenArray.of([b"a", b"bcd"])
    back, told = same((DefinedElements(np.array([3, 9], np.uint32), values), 77))  # type: ignore[misc]
    assert (back.offsets.tolist(), list(back.values), told) == ([3, 9], list(values), 77)


RECORDED = Path(__file__).parent.parent / "data" / "messages.json"
"""The fields of each kind with their types."""


def kinds() -> dict[str, dict[str, str]]:
    return {
        name: {field.name: str(field.type) for field in dataclasses.fields(kind)}
        for name, kind in sorted(KINDS.items())
    }


def test_a_version_stays_as_it_was_recorded() -> None:
    assert kinds() == json.loads(RECORDED.read_text()), (
        f"The messages have changed: raise VERSION, if {MESSAGE_VERSION} is in a release, and record them by "
        "`python -m tests.wire.test_codec`."
    )


def test_another_version_is_refused_with_both_numbers() -> None:
    check_version(MESSAGE_VERSION)
    for other in (MESSAGE_VERSION - 1, MESSAGE_VERSION + 1):
        with pytest.raises(
            Outdated, match=f"version {other}, but this node uses version {MESSAGE_VERSION}: install one"
        ):
            check_version(other)


@dataclass(slots=True)
class Node:
    url: str
    closed: bool = False

    async def send(self, message: Message[Any], /) -> Any:
        assert not self.closed
        return self.url

    async def close(self) -> None:
        assert not self.closed
        self.closed = True
        await asyncio.sleep(0)


@dataclass(slots=True)
class Network:
    made: list[Node] = field(default_factory=list)

    def connect(self, url: str) -> Node:
        self.made.append(Node(url))
        return self.made[-1]


async def test_a_connection_is_made_once_and_on_use() -> None:
    network = Network()
    connections = MemberConnections(network.connect)
    await connections.follow({"a": "http://a", "b": "http://b"})
    for _ in range(2):
        assert await connections.send("a", GetInfo()) == "http://a"
    assert [node.url for node in network.made] == ["http://a"]


async def test_members_may_be_followed_by_many_at_once() -> None:
    network = Network()
    connections = MemberConnections(network.connect)
    urls = {name: f"http://{name}" for name in "abc"}
    await connections.follow(urls)
    for name in urls:
        await connections.send(name, GetInfo())
    await asyncio.gather(*(connections.follow({}) for _ in range(3)))
    assert all(node.closed for node in network.made)


async def test_a_member_that_is_gone_is_disconnected_and_never_connected_again() -> None:
    network = Network()
    connections = MemberConnections(network.connect)
    with pytest.raises(Misdirected):
        await connections.send("a", GetInfo())
    await connections.follow({"a": "http://a", "b": "http://b"})
    await connections.send("a", GetInfo())
    await connections.send("b", GetInfo())
    await connections.follow({"b": "http://b"})
    assert [node.closed for node in network.made] == [True, False]
    with pytest.raises(Misdirected):
        await connections.send("a", GetInfo())
    await connections.close()
    assert all(node.closed for node in network.made)
    with pytest.raises(Misdirected):
        await connections.send("b", GetInfo())
    assert len(network.made) == 2


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(kinds(), indent=1, sort_keys=True) + "\n")
