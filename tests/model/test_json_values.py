"""Values of every type as JSON, and what is no value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hsparse.errors import BadRequest
from hsparse.model import json_values
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import from_json, to_json
from tests.model.type_strategies import BOOLEAN, ITEMS, nested, text, values_of

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
    monkeypatch.setattr(json_values, "BLOCK", 3)
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
