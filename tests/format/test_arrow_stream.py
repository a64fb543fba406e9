"""Arrow streams that anyone may send: what does not fit is refused, whatever the bytes are."""

from __future__ import annotations

import io
import struct
from typing import Any

import nanoarrow as na
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nanoarrow import ipc

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.arrow_stream import MAX_FIELDS, read_batches, stream_batches
from hsparse.format.chunk_map import MAX_NAME
from hsparse.sn.values.media.arrow import ArrowWriter, read_arrow

I4 = np.dtype("<i4")
NASTY = [struct.pack("<q", number) for number in (-1, 0, 1, 2**28, 2**31 - 1, 2**33, 2**62, -(2**63))]


def stream(**columns: tuple[Any, list[Any]]) -> bytes:
    schema = na.c_schema(na.struct({name: kind for name, (kind, _) in columns.items()}))
    children = [na.c_array(values, kind) for kind, values in columns.values()]
    length = len(next(iter(columns.values()))[1])
    sink = io.BytesIO()
    with ipc.StreamWriter.from_writable(sink) as writer:
        writer.write_array(na.c_array_from_buffers(schema, length, buffers=[None], children=children))
    return sink.getvalue()


def written() -> bytes:
    writer = ArrowWriter((100, 2**40), I4)
    places = [np.arange(5), np.arange(5) + 2**33]
    values = np.arange(5, dtype=I4)
    return writer.batch(places, values) + writer.batch(places, values) + writer.end()


def test_other_columns_are_stepped_over() -> None:
    data = stream(
        note=(na.string(), ["a", "b"]),
        value=(na.int32(), [7, 8]),
        flag=(na.bool_(), [True, False]),
        dim_0=(na.int64(), [3, 1]),
    )
    coords, values = read_arrow(data, 1, I4)
    assert (coords.tolist(), values.tolist()) == ([[3], [1]], [7, 8])


@pytest.mark.parametrize(
    ("dims", "values"),
    [
        ((na.bool_(), [True] * 8), (na.int32(), [1] * 8)),
        ((na.uint32(), list(range(8))), (na.bool_(), [True] * 8)),
        ((na.uint32(), [1]), (na.fixed_size_binary(4), [b"abcd"])),
        ((na.uint32(), [1]), (na.int64(), [2**40])),
        ((na.uint32(), [1]), (na.uint32(), [2**31])),
        ((na.uint32(), [1]), (na.float64(), [1.5])),
        ((na.uint32(), [1]), (na.string(), ["1"])),
        ((na.int64(), [-1]), (na.int32(), [1])),
        ((na.float64(), [1.0]), (na.int32(), [1])),
        ((na.uint32(), [1, 2]), (na.int32(), [None, 2])),
    ],
)
def test_a_column_that_does_not_fit(dims: tuple[Any, list[Any]], values: tuple[Any, list[Any]]) -> None:
    with pytest.raises(BadRequest):
        read_arrow(stream(dim_0=dims, value=values), 1, I4)


@pytest.mark.parametrize("name", ["x" * (MAX_NAME + 1), "dim_0"])
def test_a_schema_of_more_than_the_limits(name: str) -> None:
    count = MAX_FIELDS + 1 if name == "dim_0" else 1
    kinds = [na.Schema(na.Type.INT8, name=name) for _ in range(count)]
    children = [na.c_array([1], na.int8()) for _ in kinds]
    schema = na.c_schema(na.struct(kinds))
    sink = io.BytesIO()
    with ipc.StreamWriter.from_writable(sink) as writer:
        writer.write_array(na.c_array_from_buffers(schema, 1, buffers=[None], children=children))
    with pytest.raises(BadRequest, match="limit"):
        list(read_batches(sink.getvalue()))


@given(st.data())
def test_any_bytes_are_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(written())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        new = data.draw(st.sampled_from(NASTY) | st.binary(min_size=1, max_size=4))
        at -= at % 4 if len(new) > 1 else 0
        body[at : at + len(new)] = new
    del body[data.draw(st.integers(len(body) // 2, len(body))) :]
    try:
        coords, values = read_arrow(body, 2, I4)
    except BadRequest:
        return
    assert len(coords) == len(values) <= len(body)


def test_a_stream_that_is_cut_anywhere_is_damaged() -> None:
    whole = written()
    for end in range(0, len(whole), 3):
        with pytest.raises(Corrupt):
            list(stream_batches(io.BytesIO(whole[:end]).read))
    assert len(list(stream_batches(io.BytesIO(whole).read))) == 2
