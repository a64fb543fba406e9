"""Room for the columns of a stream: what it returns is what was sent, however the batches come."""

from __future__ import annotations

import io
from http.client import IncompleteRead
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.client.http.answers import taking
from hsparse.client.sources import element_room
from hsparse.client.sources.element_room import ElementRoom
from hsparse.errors import Corrupt
from hsparse.format.arrow_stream import stream_batches
from hsparse.sn.values.media.arrow import ArrowWriter

MANY = 100
"""Bytes after which room is made in these tests."""
PLENTY = 1 << 30


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(element_room, "FIRST_BATCHES_BYTES", MANY)


def sent(lengths: list[int], rank: int, dtype: Any) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """Return a stream of batches of these lengths, and the columns that it has."""
    writer = ArrowWriter((2**32, 2**40, 7)[:rank], np.dtype(dtype))
    data, at = b"", 0
    parts: list[dict[str, NDArray[Any]]] = []
    for length in lengths:
        places = [np.arange(at, at + length, dtype=kind) for kind in ("u4", "u8", "u4")[:rank]]
        values = np.arange(at, at + length).astype("u1" if np.dtype(dtype).itemsize == 1 else "<u8")
        values = np.resize(values.view("u1"), length * np.dtype(dtype).itemsize).view(dtype)
        data += b"".join(writer.parts(places, values))
        parts.append({f"dim_{dim}": place for dim, place in enumerate(places)} | {"value": values})
        at += length
    wanted = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return data + writer.end(), wanted


def received(data: bytes, most: int, most_bytes: int = PLENTY) -> tuple[ElementRoom, dict[str, NDArray[Any]]]:
    answer: Any = io.BytesIO(data)
    room = ElementRoom(answer, most, most_bytes)
    for length, columns in stream_batches(taking(answer), room):
        room.add(length, columns)
    assert not answer.read()
    return room, room.result()


def check(found: dict[str, NDArray[Any]], wanted: dict[str, NDArray[Any]]) -> None:
    assert found.keys() == wanted.keys()
    for name, column in wanted.items():
        assert found[name].tobytes() == column.tobytes()


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.integers(1, 3),
    st.sampled_from(["u1", "<f4", "<i8", "S3", ">f4"]),
    st.integers(0, 50),
)
def test_what_is_sent_is_received(lengths: list[int], rank: int, dtype: str, missing: int) -> None:
    data, wanted = sent(lengths, rank, dtype)
    total = sum(lengths)
    room, found = received(data, max(1, total - missing))
    check(found, wanted)
    assert room.count == total


def test_later_batches_stay_where_they_are_received() -> None:
    data, wanted = sent([30, 30, 5, 40], 2, "<i4")
    answer: Any = io.BytesIO(data)
    room = ElementRoom(answer, 1000, PLENTY)
    placed = []
    for length, columns in stream_batches(taking(answer), room):
        room.add(length, columns)
        placed.append(columns["value"].values)
    found = room.result()
    check(found, wanted)
    assert [np.shares_memory(one, found["value"]) for one in placed] == [False, True, True, True]
    assert found["value"].base is None, "no space beyond it is held"


@pytest.mark.parametrize("most_bytes", [10, 1 << 62])
def test_without_space_batches_are_joined(most_bytes: int) -> None:
    data, wanted = sent([30, 30, 5, 40], 2, "<i4")
    check(received(data, 2**60, most_bytes)[1], wanted)


def test_batches_of_other_writers_are_read_as_they_are() -> None:
    schema = pa.schema([("dim_0", pa.uint32()), ("value", pa.float64())])
    batches = [
        pa.record_batch(
            {"dim_0": pa.array([1, 2] * 20, pa.uint32()), "value": [0.5, 1.5] * 20}, schema=schema
        ),
        pa.record_batch({"dim_0": pa.array([3, None], pa.uint32()), "value": [2.5, 3.5]}, schema=schema),
        pa.record_batch({"dim_0": pa.array([4], pa.uint32()), "value": [4.5]}, schema=schema),
    ]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    _, found = received(sink.getvalue(), 1000)
    assert found["value"].tolist() == [0.5, 1.5] * 20 + [2.5, 3.5, 4.5]


@pytest.mark.parametrize("cut", [9, 30, 200, 400])
def test_an_answer_that_ends_early_is_an_error(cut: int) -> None:
    data, _ = sent([30, 30, 30], 2, "<i8")
    with pytest.raises((Corrupt, IncompleteRead), match=r"not all there|end is missing|IncompleteRead"):
        received(data[:-cut], 1000)
