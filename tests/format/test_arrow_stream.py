"""Values as columns of Arrow: batches, and streams of them."""

from __future__ import annotations

import io
import struct
from typing import Any

import nanoarrow as na
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nanoarrow import ipc

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.arrow_stream import MAX_FIELDS, read_batches, stream_batches
from hsparse.format.flat_buffer import MAX_NAME
from hsparse.sn.values.media.arrow import JOINED_BATCH_BYTES, ArrowWriter, batch_parts, read_arrow

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


NUMBERS = ("i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")


def stream_of_arrow_batch(
    writer: ArrowWriter, *batches: tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
) -> bytes:
    return (
        b"".join(part for columns, values in batches for part in writer.parts(columns, values)) + writer.end()
    )


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.integers(1, 4), st.sampled_from(NUMBERS))
def test_arrow_reads_what_is_written(lengths: list[int], rank: int, dtype: str) -> None:
    extent = (2**32, 2**40, 7, 2**63 - 1)[:rank]
    batches = []
    for number, length in enumerate(lengths):
        columns = [np.arange(length, dtype="u8") * dim % extent[dim] for dim in range(rank)]
        batches.append((columns, (np.arange(length) + number).astype(dtype)))
    data = stream_of_arrow_batch(ArrowWriter(extent, np.dtype(dtype)), *batches)
    wanted = {f"dim_{dim}": np.concatenate([columns[dim] for columns, _ in batches]) for dim in range(rank)}
    wanted["value"] = np.concatenate([values for _, values in batches])
    table = pa.ipc.open_stream(data).read_all()
    table.validate(full=True)
    for found in (table.to_pydict(), na.Array(na.ArrayStream.from_readable(io.BytesIO(data)))):
        columns = (
            found if isinstance(found, dict) else {k: [row[k] for row in found.to_pylist()] for k in wanted}
        )
        assert columns == {name: column.tolist() for name, column in wanted.items()}
    if dtype != "<f2":
        frame = pl.read_ipc_stream(io.BytesIO(data))
        assert frame.to_dict(as_series=False) == {name: column.tolist() for name, column in wanted.items()}
    coords, values = read_arrow(data, rank, np.dtype(dtype))
    assert coords.T.tolist() == [wanted[f"dim_{dim}"].tolist() for dim in range(rank)]
    assert values.tolist() == wanted["value"].tolist()


@pytest.mark.parametrize("dtype", [">f4", "S3", "?", [("a", "<i2"), ("b", ">f8")]])
def test_other_elements_of_a_fixed_size(dtype: Any) -> None:
    values = np.zeros(5, dtype)
    values[1] = (2, 0.5) if isinstance(dtype, list) else 1
    data = stream_of_arrow_batch(ArrowWriter((100,), values.dtype), ([np.arange(5)], values))
    pa.ipc.open_stream(data).read_all().validate(full=True)
    coords, found = read_arrow(data, 1, values.dtype)
    assert coords.ravel().tolist() == [0, 1, 2, 3, 4]
    assert found.tobytes() == values.tobytes()


def test_long_columns_are_not_copied() -> None:
    columns = [np.arange(JOINED_BATCH_BYTES, dtype="u4"), np.arange(JOINED_BATCH_BYTES, dtype="u1")]
    head, *parts = batch_parts(columns)
    assert len(head) % 8 == 0
    assert all(
        np.shares_memory(np.frombuffer(part, "u1"), column)
        for part, column in zip(parts, columns, strict=True)
    )


def test_a_short_batch_is_one_part() -> None:
    assert len(batch_parts([np.arange(3, dtype="u4"), np.arange(3, dtype="u1")])) == 1
