"""The lists and leaves of JSON, beside those that are counted in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.value_arrays import number_json
from hsparse.model.datatype import parse_type
from hsparse.model.element import Fixed
from hsparse.model.json_values import JsonSize, item_count, json_size, list_count

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


TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}


@pytest.mark.parametrize(
    ("kind", "lists", "leaves"),
    [
        (TEXT, 0, 5),
        ({"class": "H5T_VLEN", "base": TEXT}, 5, 0),
        ({"class": "H5T_ARRAY", "base": TEXT, "dims": [2, 3]}, 15, 30),
        (
            {
                "class": "H5T_COMPOUND",
                "fields": [{"name": "a", "type": TEXT}, {"name": "b", "type": "H5T_STD_U8LE"}],
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
