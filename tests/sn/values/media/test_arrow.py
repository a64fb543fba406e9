"""Elements as Arrow columns: random types, other writers' forms, and what does not fit."""

from __future__ import annotations

import io
from typing import Any

import nanoarrow as na
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nanoarrow import ipc

from hsparse.errors import BadRequest
from hsparse.model.datatype import parse_type
from hsparse.model.element import VlenString
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.values.media.arrow import ArrowWriter, read_arrow, read_vlen_arrow
from hsparse.sn.values.media.arrow_columns import ColumnForm, column_form
from tests.model.type_strategies import ITEMS, length_prefixed, text, values_of
from tests.sn.dataset_kinds import vlen_of

TEXT = text("H5T_VARIABLE")
INTS = vlen_of("H5T_STD_U16BE")
LISTS = vlen_of(INTS)
STEPPED = vlen_of("H5T_IEEE_F32BE")


@st.composite
def columns(draw: st.DrawFn) -> tuple[Any, list[bytes]]:
    items = st.sampled_from([INTS, STEPPED, TEXT]) | ITEMS.filter(lambda item: parse_type(item).is_vlen)
    item = draw(items)
    return item, [length_prefixed(item, value) for value in draw(st.lists(values_of(item), max_size=6))]


@given(columns())
def test_what_is_written_is_read(drawn: tuple[Any, list[bytes]]) -> None:
    item, values = drawn
    element, array = parse_type(item).element, VlenArray.of(values)
    writer = ArrowWriter((100, 2**40), np.dtype(object), element)
    places = [np.arange(len(values)), np.arange(len(values)) + 2**33]
    data = writer.batch(places, array) + writer.batch(places, array) + writer.end()
    coords, found = read_vlen_arrow(data, 2, element)
    assert coords.tolist() == [[n, n + 2**33] for n in range(len(values))] * 2
    assert list(found) == values * 2


@pytest.mark.parametrize(
    ("item", "values"),
    [
        (TEXT, ["ä", "", "text"]),
        (text("H5T_VARIABLE", "H5T_CSET_ASCII"), ["a", "", "text"]),
        (INTS, [[1, 2], [], [65535]]),
        (STEPPED, [[1.5], [], [-2.0, 0.5]]),
        (LISTS, [[[1], []], [], [[2, 3]]]),
    ],
)
def test_nanoarrow_reads_what_is_written(item: Any, values: list[Any]) -> None:
    element = parse_type(item).element
    writer = ArrowWriter((10,), np.dtype(object), element)
    array = VlenArray.of([length_prefixed(item, value) for value in values])
    data = writer.batch([np.arange(3)], array) + writer.end()
    rows = na.ArrayStream.from_readable(data).read_all().to_pylist()
    assert [row["dim_0"] for row in rows] == [0, 1, 2]
    if column_form(element) is ColumnForm.BINARY:
        plain = isinstance(element, VlenString)
        values = [value.encode() if plain else length_prefixed(item, value) for value in values]
    assert [row["value"] for row in rows] == values


def stream(kind: Any, values: list[Any]) -> bytes:
    places = na.c_array(list(range(len(values))), na.uint32())
    schema = na.c_schema(na.struct({"dim_0": na.uint32(), "value": kind}))
    children = [places, na.c_array(values, kind)]
    sink = io.BytesIO()
    with ipc.StreamWriter.from_writable(sink) as writer:
        writer.write_array(na.c_array_from_buffers(schema, len(values), [None], children=children))
    return sink.getvalue()


def list_stream(offsets: Any, numbers: Any, kind: Any = na.list_, child: Any = na.uint32) -> bytes:
    values = na.c_array_from_buffers(na.c_schema(child()), len(numbers), [None, numbers])
    column = na.c_array_from_buffers(
        na.c_schema(kind(child())), len(offsets) - 1, [None, offsets], children=[values]
    )
    places = na.c_array(list(range(len(offsets) - 1)), na.uint32())
    schema = na.c_schema(na.struct({"dim_0": na.uint32(), "value": kind(child())}))
    sink = io.BytesIO()
    with ipc.StreamWriter.from_writable(sink) as writer:
        writer.write_array(
            na.c_array_from_buffers(schema, len(offsets) - 1, [None], children=[places, column])
        )
    return sink.getvalue()


@pytest.mark.parametrize("kind", [na.string, na.large_string, na.binary, na.large_binary])
def test_strings_of_every_form(kind: Any) -> None:
    words = ["ä", "", "text"]
    values = [word.encode() for word in words] if "binary" in kind.__name__ else words
    _, found = read_vlen_arrow(stream(kind(), values), 1, parse_type(TEXT).element)
    assert list(found) == [length_prefixed(TEXT, word) for word in words]


@pytest.mark.parametrize(("kind", "offset"), [(na.list_, "<i4"), (na.large_list, "<i8")])
def test_lists_of_every_form(kind: Any, offset: str) -> None:
    """Numbers of another type are taken where they fit; a column may begin inside its numbers."""
    data = list_stream(np.array([1, 3, 3, 4], offset), np.array([9, 1, 2, 65535], "<u4"), kind)
    _, found = read_vlen_arrow(data, 1, parse_type(INTS).element)
    assert list(found) == [length_prefixed(INTS, value) for value in ([1, 2], [], [65535])]


def test_what_columns_hold() -> None:
    kinds = {
        TEXT["charSet"]: TEXT,
        "ascii": text("H5T_VARIABLE", "H5T_CSET_ASCII"),
        "ints": INTS,
        "lists": LISTS,
    }
    found = [column_form(parse_type(item).element) for item in kinds.values()]
    assert found == [ColumnForm.UTF8, ColumnForm.BINARY, ColumnForm.LIST, ColumnForm.BINARY]


BAD: list[tuple[Any, bytes, str]] = [
    (TEXT, stream(na.int32(), [1]), "strings"),
    (TEXT, stream(na.string(), ["a", None]), "nulls"),
    (TEXT, list_stream(np.array([0, 1], "<i4"), np.array([1], "<u4")), "not lists"),
    (INTS, stream(na.string(), ["a"]), "lists"),
    (INTS, list_stream(np.array([0, 1], "<i4"), np.array([70_000], "<u4")), "do not fit"),
    (INTS, list_stream(np.array([0, 1], "<i4"), np.array([1.5], "<f4"), child=na.float32), "does not fit"),
    (LISTS, stream(na.binary(), [b"\2\0\0\0"]), "do not match their type"),
    (LISTS, stream(na.binary(), [bytes(8), b""]), "length-prefixed form"),
]


@pytest.mark.parametrize(("item", "data", "reason"), BAD, ids=range(len(BAD)))
def test_a_column_that_does_not_fit(item: Any, data: bytes, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        read_vlen_arrow(data, 1, parse_type(item).element)


@given(st.data())
def test_changed_bytes_are_refused_or_other_values(data: st.DataObject) -> None:
    """Never another error, and never more elements than the bytes can hold."""
    item = data.draw(st.sampled_from([TEXT, INTS]))
    array = VlenArray.of(
        [length_prefixed(item, value) for value in data.draw(st.lists(values_of(item), max_size=5))]
    )
    element = parse_type(item).element
    writer = ArrowWriter((100,), np.dtype(object), element)
    body = bytearray(writer.batch([np.arange(array.size)], array) + writer.end())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 2, 8, 127, 255]))
    assert told(bytes(body), element) <= 4 * len(body)


def told(body: bytes, element: Any) -> int:
    try:
        return read_vlen_arrow(body, 1, element)[1].nbytes
    except BadRequest:
        return 0


@pytest.mark.parametrize("dtype", ["<i4", ">f4", "u1", "S3", "?", [("a", "<i2"), ("b", ">f8")]])
def test_arrow_round_trip(dtype: Any) -> None:
    kind = np.dtype(dtype)
    values = np.frombuffer(np.random.default_rng(1).bytes(20 * kind.itemsize), kind)
    values = values.astype(bool).copy() if kind.kind == "b" else values
    coords = np.arange(40).reshape(20, 2)
    writer = ArrowWriter((100, 2**40), kind)
    data = writer.batch(list(coords.T), values) + writer.batch(list(coords.T), values) + writer.end()
    back, got = read_arrow(data, 2, kind)
    assert back.tolist() == np.concatenate([coords, coords]).tolist()
    assert (got.dtype, got.tobytes()) == (kind, np.concatenate([values, values]).astype(kind).tobytes())


def test_arrow_without_points() -> None:
    coords, values = read_arrow(ArrowWriter((5, 5), np.dtype(float)).end(), 2, np.dtype(float))
    assert coords.shape == (0, 2)
    assert values.shape == (0,)
