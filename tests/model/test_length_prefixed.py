"""The length-prefixed form: against a model, against h5json, and on bytes that lie."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from h5json.array_util import arrayToBytes, bytesToArray
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hsparse.errors import BadRequest
from hsparse.model.datatype import parse_type
from hsparse.model.element import Compound
from hsparse.model.json_values import from_json, to_json
from hsparse.model.vlen_array import VlenArray, add_prefixes, field_bounds, split_elements, strip_prefixes
from tests.model.type_strategies import ITEMS, length_prefixed, nested, text, values_of

TEXT = text("H5T_VARIABLE")
INTS = {"class": "H5T_VLEN", "base": "H5T_STD_I32LE"}
VARIABLE = ITEMS.filter(lambda item: parse_type(item).is_vlen)


@st.composite
def elements(draw: st.DrawFn) -> tuple[Any, tuple[int, ...], Any]:
    """Draw a variable-length type, a shape, and JSON values in it."""
    item = draw(VARIABLE)
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
    return item, shape, draw(nested(values_of(item), shape))


@given(elements())
def test_values_survive_json_and_bytes(drawn: tuple[Any, tuple[int, ...], Any]) -> None:
    item, shape, value = drawn
    element = parse_type(item).element
    array = from_json(value, shape, element)
    assert isinstance(array, VlenArray)
    flat = value
    for _ in shape[1:]:
        flat = [one for row in flat for one in row]
    model = [length_prefixed(item, one) for one in (flat if shape else [flat])]
    assert list(array) == model
    again = split_elements(b"".join(model), element, shape)
    np.testing.assert_array_equal(again.offsets, array.offsets)
    assert to_json(again, element) == value


@given(elements(), st.data())
def test_bytes_that_lie(drawn: tuple[Any, tuple[int, ...], Any], data: st.DataObject) -> None:
    item, shape, value = drawn
    element = parse_type(item).element
    array = from_json(value, shape, element)
    assert isinstance(array, VlenArray)
    raw = bytearray(array.heap.tobytes())
    change = data.draw(st.sampled_from(["cut", "flip", "grow", "count"]))
    place = data.draw(st.integers(0, max(0, len(raw) - 1)))
    if change == "cut":
        del raw[place:]
    elif change == "grow":
        raw += data.draw(st.binary(min_size=1, max_size=9))
    elif change == "flip" and raw:
        raw[place] ^= data.draw(st.integers(1, 255))
    elif raw:
        raw[place : place + 4] = struct.pack("<I", data.draw(st.integers(0, 2**32 - 1)))
    try:
        found = split_elements(raw, element, shape)
    except BadRequest:
        return
    assert raw.startswith(found.heap.tobytes())
    assert not any(raw[len(found.heap) :]), "only the zeros that h5json appends are dropped"
    try:
        to_json(found, element)
    except BadRequest:
        return  # bytes that are no text


@pytest.mark.parametrize(
    ("item", "data", "shape"),
    [
        (TEXT, b"\xff\xff\xff\xff", (1,)),
        (TEXT, b"\2\0\0\0a", (1,)),
        (TEXT, b"\1\0\0\0a\0", (1,)),
        (TEXT, b"", (2**40,)),
        (TEXT, b"\0" * 8, (2**61,)),
        (INTS, b"\3\0\0\0abc", (1,)),
        (INTS, b"\4\0\0", ()),
        ({"class": "H5T_VLEN", "base": TEXT}, b"\5\0\0\0\2\0\0\0a", (1,)),
        ({"class": "H5T_ARRAY", "dims": [3], "base": TEXT}, b"\0" * 16, (1,)),
    ],
)
def test_what_is_refused(item: Any, data: bytes, shape: tuple[int, ...]) -> None:
    with pytest.raises(BadRequest, match=r"bytes|cut short|count"):
        split_elements(data, parse_type(item).element, shape)


COMPOUND = np.dtype(
    [
        ("n", "<i4"),
        ("t", np.dtype("O", metadata={"vlen": str})),
        ("v", np.dtype("O", metadata={"vlen": np.dtype("<f8")})),
        ("s", "S3"),
    ]
)


def compound_array() -> np.ndarray[Any, Any]:
    array = np.zeros(3, COMPOUND)
    rows = (
        (1, "ä", np.array([1.5]), b"abc"),
        (2, "", np.array([], "<f8"), b""),
        (3, "xyz", np.arange(3.0), b"a"),
    )
    for place, row in enumerate(rows):
        array[place] = row
    return array


COMPOUND_ITEM = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "n", "type": "H5T_STD_I32LE"},
        {"name": "t", "type": TEXT},
        {"name": "v", "type": {"class": "H5T_VLEN", "base": "H5T_IEEE_F64LE"}},
        {"name": "s", "type": text(3, "H5T_CSET_ASCII")},
    ],
}


def test_h5json_writes_and_reads_the_same() -> None:
    array = compound_array()
    element = parse_type(COMPOUND_ITEM).element
    found = split_elements(arrayToBytes(array), element, (3,))
    assert to_json(found, element) == [
        [1, "ä", [1.5], "abc"],
        [2, "", [], ""],
        [3, "xyz", [0.0, 1.0, 2.0], "a"],
    ]
    back = bytesToArray(found.heap.tobytes(), COMPOUND, (3,))
    assert [row["t"] for row in back] == ["ä", "", "xyz"]
    assert isinstance(element, Compound)
    assert field_bounds(found, element)[1].tolist() == [25, 29, 33, 37, 40]


def test_what_h5json_appends_to_arrays_is_dropped() -> None:
    """It reckons 4 bytes too many for each array of variable-length parts, which stay zero at the end."""
    dtype = np.dtype([("n", "<i2"), ("t", np.dtype("O", metadata={"vlen": bytes}), (2,))])
    array = np.zeros(3, dtype)
    for place in range(3):
        array[place]["n"] = place
        array[place]["t"][:] = [b"ab", b"c" * place]
    fields = [
        {"name": "n", "type": "H5T_STD_I16LE"},
        {"name": "t", "type": {"class": "H5T_ARRAY", "dims": [2], "base": TEXT}},
    ]
    element = parse_type({"class": "H5T_COMPOUND", "fields": fields}).element
    data = arrayToBytes(array)
    found = split_elements(data, element, (3,))
    assert len(data) - len(found.heap) == 3 * 4
    assert to_json(found, element) == [[0, ["ab", ""]], [1, ["ab", "c"]], [2, ["ab", "cc"]]]
    with pytest.raises(BadRequest):
        split_elements(data + b"\1", element, (3,))


@given(st.lists(st.binary(max_size=5), max_size=6))
def test_counts_before_runs(runs: list[bytes]) -> None:
    data, sizes = np.frombuffer(b"".join(runs), np.uint8), np.array([len(run) for run in runs], np.int64)
    array = add_prefixes(data, sizes)
    assert list(array) == [struct.pack("<I", len(run)) + run for run in runs]
    back, lengths = strip_prefixes(array)
    assert (back.tobytes(), lengths.tolist()) == (data.tobytes(), sizes.tolist())
