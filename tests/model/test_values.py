"""Values as JSON, as text and in the length-prefixed form: exact, counted, cut; against h5json, and bytes that lie."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from h5json import selections
from h5json.array_util import arrayToBytes, bytesToArray
from h5json.hdf5dtype import RegionReference
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.value_arrays import number_json
from hsparse.model import json_values
from hsparse.model.datatype import parse_type
from hsparse.model.element import Compound, Fixed
from hsparse.model.json_values import (
    JsonSize,
    array_json,
    from_json,
    item_count,
    json_size,
    list_count,
    to_json,
)
from hsparse.model.link import MAX_POINTS, region_bytes, region_json
from hsparse.model.short_text import MAX_LENGTH, short_repr
from hsparse.model.vlen_array import (
    VlenArray,
    VlenFields,
    add_prefixes,
    ends,
    field_bounds,
    split_elements,
    strip_prefixes,
)
from tests.model.type_strategies import BOOLEAN, ID, ITEMS, length_prefixed, nested, regions, text, values_of
from tests.support.characters import CHARACTERS

TEXT = text("H5T_VARIABLE")
COMPOUND = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "größe", "type": "H5T_STD_I8LE"}, {"name": "ok", "type": BOOLEAN}],
}


@st.composite
def fixed(draw: st.DrawFn) -> tuple[Any, tuple[int, ...], Any]:
    item = draw(ITEMS.filter(lambda item: not parse_type(item).is_vlen))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
    return item, shape, draw(nested(values_of(item), shape))


@pytest.mark.parametrize(
    "kind",
    [
        "H5T_STD_I16LE",
        "H5T_IEEE_F64LE",
        text(3),
        {**COMPOUND},
        {"class": "H5T_ARRAY", "base": "H5T_STD_I8LE", "dims": [2]},
    ],
)
def test_blocks_of_values_are_those_of_the_whole(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    element = parse_type(kind).element
    one: dict[str, Any] = {"H5T_STRING": "ab", "H5T_COMPOUND": [7, True], "H5T_ARRAY": [1, 2]}
    values = [one[kind["class"]] if isinstance(kind, dict) else 3 for _ in range(10)]
    whole = from_json(values, (10,), element)
    monkeypatch.setattr(json_values, "ELEMENTS_AT_ONCE", 3)
    parts = from_json(values, (10,), element)
    assert isinstance(whole, np.ndarray)
    assert isinstance(parts, np.ndarray)
    assert (parts.dtype, parts.dtype.metadata) == (whole.dtype, whole.dtype.metadata)
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize(
    ("item", "dims", "value", "stored"),
    [
        (TEXT, (2,), [0, None], ["", ""]),
        ({"class": "H5T_VLEN", "base": "H5T_STD_I8LE"}, (2,), [0, [1]], [[], [1]]),
        ({"class": "H5T_VLEN", "base": "H5T_STD_I8LE"}, (1,), [1, 2], [[1, 2]]),
        ({"class": "H5T_VLEN", "base": "H5T_STD_I8LE"}, (), [1, 2], [1, 2]),
        (TEXT, (2, 1), ["a", "b"], [["a"], ["b"]]),
        (TEXT, (1, 1), "a", [["a"]]),
        (TEXT, (2, 2), ["a", "b", "c", "d"], [["a", "b"], ["c", "d"]]),
        (COMPOUND, (1,), [3, 1], [[3, True]]),
        (COMPOUND, (2,), [[3, True], [4, False]], [[3, True], [4, False]]),
        ("H5T_STD_I32LE", (2,), [7.0, True], [7, 1]),
        (TEXT, (0,), [], []),
        (
            {"class": "H5T_OPAQUE", "size": 5},
            (3,),
            ["abcde", "YWJjZGU=", "AQ=="],
            ["YWJjZGU=", "YWJjZGU=", "AQAAAAA="],
        ),
        (TEXT, (2, 0), [[], []], [[], []]),
    ],
)
def test_the_nestings_that_are_taken(item: Any, dims: tuple[int, ...], value: Any, stored: Any) -> None:
    element = parse_type(item).element
    assert to_json(from_json(value, dims, element), element) == stored


@pytest.mark.parametrize("value", ["nan", "NaN", None, math.nan])
def test_floats_that_are_not_numbers(value: Any) -> None:
    array = from_json([value, "-inf"], (2,), parse_type("H5T_IEEE_F32LE").element)
    assert isinstance(array, np.ndarray)
    assert np.isnan(array[0])
    assert array[1] == -np.inf


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("H5T_STD_I8LE", 128), ("H5T_STD_U8LE", -1), ("H5T_STD_I8LE", 1.5), ("H5T_STD_I8LE", "1"),
        ("H5T_STD_I8LE", [[1]]), ("H5T_STD_I8LE", {}), ("H5T_IEEE_F32LE", 1e300), ("H5T_IEEE_F32LE", "one"),
        (text(2), 7), (TEXT, 7), (TEXT, ["a", "b"]), (BOOLEAN, "true"),
        ({"class": "H5T_OPAQUE", "size": 2}, "AAAAAA=="), ({"class": "H5T_OPAQUE", "size": 2}, "?"),
        ({"class": "H5T_VLEN", "base": "H5T_STD_I8LE"}, "x"),
        ({"class": "H5T_VLEN", "base": "H5T_STD_I8LE"}, [300]),
        ({"class": "H5T_ARRAY", "dims": [2], "base": "H5T_STD_I8LE"}, [1, 2, 3]),
        ({"class": "H5T_ARRAY", "dims": [2], "base": TEXT}, ["a"]), (COMPOUND, [1]),
        (COMPOUND, {"größe": 1}), ({"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}, "x" * 49),
    ],
)  # fmt: skip
def test_what_does_not_fit(item: Any, value: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        from_json(value, (), parse_type(item).element)
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("abcdefgh", b"abcdefg"),
        ("abcdefg", b"abcdefg"),
        ("abcdef\u00e9", b"abcdef"),
        ("\u20ac" * 3, "\u20ac\u20ac".encode()),
    ],
)
def test_text_that_is_too_long_is_clipped_at_a_character(value: str, stored: bytes) -> None:
    for item, whole in (
        (text(7), value),
        ({"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": text(7)}]}, [value]),
    ):
        values = from_json(whole, (), parse_type(item).element)
        assert isinstance(values, np.ndarray)
        assert values.tobytes().rstrip(b"\0") == stored


TYPES = ["<i4", "S2", "V3", [("a", "u1"), ("b", "<f8", (2, 3))], [("a", [("b", "?")]), ("c", "u1", (1, 1))]]


def counted(value: Any) -> JsonSize:
    if not isinstance(value, list):
        return JsonSize(0, 1)
    parts = [counted(part) for part in value]
    return JsonSize(1 + sum(part.lists for part in parts), sum(part.leaves for part in parts))


@given(st.lists(st.integers(0, 3), max_size=4), st.sampled_from(TYPES))
def test_all_lists_and_leaves_are_counted(shape: list[int], kind: Any) -> None:
    values = np.zeros(shape, kind)
    found = number_json(values)
    listed = found.tolist() if isinstance(found, np.ndarray) else found
    assert json_size(shape, Fixed(np.dtype(kind))) == counted(listed)


def test_many_empty_lists_are_counted_without_being_made() -> None:
    assert list_count((1 << 40, 0)) == 1 + (1 << 40)
    assert json_size([1 << 20], Fixed(np.dtype(("u1", (1,) * 31)))).lists == 1 + 31 * (1 << 20)


JSON_SIZE_TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}


@pytest.mark.parametrize(
    ("kind", "lists", "leaves"),
    [
        (JSON_SIZE_TEXT, 0, 5),
        ({"class": "H5T_VLEN", "base": JSON_SIZE_TEXT}, 5, 0),
        ({"class": "H5T_ARRAY", "base": JSON_SIZE_TEXT, "dims": [2, 3]}, 15, 30),
        (
            {
                "class": "H5T_COMPOUND",
                "fields": [{"name": "a", "type": JSON_SIZE_TEXT}, {"name": "b", "type": "H5T_STD_U8LE"}],
            },
            5,
            10,
        ),
    ],
)
def test_elements_of_variable_length(kind: Any, lists: int, leaves: int) -> None:
    assert json_size([5], parse_type(kind).element) == JsonSize(1 + lists, leaves)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    ),
    st.integers(1, 20),
)
def test_items_of_a_body_are_counted_up_to_a_number(value: Any, most: int) -> None:
    def items(part: Any) -> int:
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return 1 + sum(map(items, parts))

    assert item_count(value) == items(value)
    assert min(item_count(value, most), most + 1) == min(items(value), most + 1)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats()
    | st.text(CHARACTERS)
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(CHARACTERS), inner),
)


@given(JSON)
def test_a_short_value_is_whole_and_a_long_one_begins_alike(value: Any) -> None:
    found = short_repr(value)
    assert len(found) <= MAX_LENGTH
    if len(repr(value)) <= MAX_LENGTH // 2 and repr(value).count("[") + repr(value).count("{") <= 3:
        assert found == repr(value)


class Watched(list[Any]):
    """A list that counts how many of its items are looked at."""

    looked = 0

    def __iter__(self) -> Any:
        for item in super().__iter__():
            Watched.looked += 1
            yield item


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**6,
        b"x" * 10**6,
        ["x" * 10**6] * 1000,
        dict.fromkeys(range(100_000)),
        [[[[[["x" * 1000] * 1000] * 1000] * 1000] * 1000]],
    ],
    ids=["text", "bytes", "list", "dict", "nested"],
)
def test_of_a_long_value_the_beginning(value: Any) -> None:
    assert len(short_repr(value)) <= MAX_LENGTH
    assert short_repr(value).endswith("...") or "..." in short_repr(value)


def test_a_long_list_is_not_looked_through() -> None:
    short_repr(Watched(range(100_000)))
    assert Watched.looked < 100


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
    with pytest.raises(BadRequest, match=r"bytes|ends inside an element|length prefix"):
        split_elements(data, parse_type(item).element, shape)


PREFIXED_COMPOUND = np.dtype(
    [
        ("n", "<i4"),
        ("t", np.dtype("O", metadata={"vlen": str})),
        ("v", np.dtype("O", metadata={"vlen": np.dtype("<f8")})),
        ("s", "S3"),
    ]
)


def compound_array() -> np.ndarray[Any, Any]:
    array = np.zeros(3, PREFIXED_COMPOUND)
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
    back = bytesToArray(found.heap.tobytes(), PREFIXED_COMPOUND, (3,))
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


def test_what_does_not_fit_together() -> None:
    with pytest.raises(BadRequest):
        VlenArray((3,), np.zeros(2, np.uint32), np.zeros(0, np.uint8))
    with pytest.raises(BadRequest):
        VlenArray((1,), np.array([0, 2], np.uint32), np.zeros(1, np.uint8))
    with pytest.raises(TooLarge):
        ends(np.array([2**31, 2**31]))


NAMES = ("n", "größe", "v", "last")
ITEM = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "n", "type": "H5T_STD_I32LE"},
        {"name": "größe", "type": text("H5T_VARIABLE")},
        {"name": "v", "type": {"class": "H5T_VLEN", "base": "H5T_STD_I8LE"}},
        {"name": "last", "type": text(2)},
    ],
}
ELEMENT = parse_type(ITEM).element


def packed(rows: list[Any], fields: VlenFields | None = None) -> VlenArray:
    values = from_json(rows, (len(rows),), ELEMENT if fields is None else fields.element)
    assert isinstance(values, VlenArray)
    return values


@given(st.lists(values_of(ITEM), max_size=4), st.sampled_from([["n"], ["last", "n"]]))
def test_columns_of_fixed_size(rows: list[Any], names: list[str]) -> None:
    columns = VlenFields.named(ELEMENT, names).columns(VlenArray.of([]) if not rows else packed(rows))
    places = [NAMES.index(name) for name in names]
    assert array_json(columns) == [[row[place] for place in places] for row in rows]


@pytest.mark.parametrize("names", [["x"], ["n", "n"], [""]])
def test_fields_that_are_not_there(names: list[str]) -> None:
    with pytest.raises(BadRequest):
        VlenFields.named(ELEMENT, names)
    with pytest.raises(BadRequest):
        VlenFields.named(parse_type(text("H5T_VARIABLE")).element, ["n"])


UUID = ID.removeprefix("d-")


@pytest.mark.parametrize("args", [(slice(0, 9, 3),), ([1, 4, 5],), (slice(2, 5),)])
def test_the_selections_of_a_client(args: Any) -> None:
    reference = RegionReference(ID, selections.select((10,), args))
    data = reference.tobytes()
    assert region_bytes(region_json(data)) == data or region_json(
        region_bytes(region_json(data))
    ) == region_json(data)


@pytest.mark.parametrize(
    "value",
    [
        7,
        "x",
        [],
        {},
        {"id": 7},
        {"id": "x"},
        {"id": UUID, "select_type": "H5S_SEL_HYPERSLABS", "selection": [[[0], [2**40]], [[0], [2**40]]]},
        {"id": UUID, "select_type": "H5S_SEL_HYPERSLABS", "selection": [[[5], [1]]]},
        {"id": UUID, "select_type": "H5S_SEL_HYPERSLABS", "selection": [7]},
        {"id": UUID, "select_type": "H5S_SEL_POINTS", "selection": [[-1]]},
        {"id": UUID, "select_type": "H5S_SEL_POINTS", "selection": [[0]] * (MAX_POINTS + 1)},
        {"id": UUID, "select_type": "H5S_SEL_POINTS", "selection": [["a"]]},
        {"id": UUID, "select_type": "H5S_SEL_X", "selection": [[0]]},
        {"id": UUID, "selection_dict": {"shape": [10], "slices": [{"type": "x"}]}},
        {"id": UUID, "selection_dict": 7},
    ],
)
def test_what_is_none(value: Any) -> None:
    with pytest.raises(ValueError, match="reference"):
        region_bytes(value)


@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda rest: b"HRRF\1" + rest))
def test_any_bytes_are_a_reference_or_a_value_error(data: bytes) -> None:
    try:
        region_json(data)
    except ValueError:
        return


@given(st.data())
def test_changed_bytes(data: st.DataObject) -> None:
    raw = bytearray(region_bytes(data.draw(regions().filter(bool))))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        region_json(bytes(raw))
    except ValueError:
        return
