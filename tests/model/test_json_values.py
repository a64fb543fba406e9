"""Values as JSON and as text: exact, counted, cut, remembered."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hsparse.errors import BadRequest
from hsparse.format.value_arrays import number_json
from hsparse.model import json_values
from hsparse.model.datatype import parse_type
from hsparse.model.element import Fixed
from hsparse.model.json_values import JsonSize, from_json, item_count, json_size, list_count, to_json
from hsparse.model.short_text import MAX_LENGTH, short_repr
from tests.model.type_strategies import BOOLEAN, ITEMS, nested, text, values_of
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
        ("H5T_STD_I8LE", 128),
        ("H5T_STD_U8LE", -1),
        ("H5T_STD_I8LE", 1.5),
        ("H5T_STD_I8LE", "1"),
        ("H5T_STD_I8LE", [[1]]),
        ("H5T_STD_I8LE", {}),
        ("H5T_IEEE_F32LE", 1e300),
        ("H5T_IEEE_F32LE", "one"),
        (text(2), 7),
        (TEXT, 7),
        (TEXT, ["a", "b"]),
        (BOOLEAN, "true"),
        ({"class": "H5T_OPAQUE", "size": 2}, "AAAAAA=="),
        ({"class": "H5T_OPAQUE", "size": 2}, "?"),
        ({"class": "H5T_VLEN", "base": "H5T_STD_I8LE"}, "x"),
        ({"class": "H5T_VLEN", "base": "H5T_STD_I8LE"}, [300]),
        ({"class": "H5T_ARRAY", "dims": [2], "base": "H5T_STD_I8LE"}, [1, 2, 3]),
        ({"class": "H5T_ARRAY", "dims": [2], "base": TEXT}, ["a"]),
        (COMPOUND, [1]),
        (COMPOUND, {"größe": 1}),
        ({"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}, "x" * 49),
    ],
)
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
