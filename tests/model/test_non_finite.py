"""Floats that JSON has no number for, wherever they stand in a type."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hsparse.model.attribute import has_floats, name_non_finite, restore_non_finite
from hsparse.model.datatype import parse_type
from tests.model.type_strategies import text

FLOAT = "H5T_IEEE_F64LE"
PAIR = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "t", "type": text("H5T_VARIABLE")}, {"name": "f", "type": FLOAT}],
}
PLAIN = {"class": "H5T_COMPOUND", "fields": [{"name": "t", "type": text(3)}, {"name": "f", "type": FLOAT}]}


@pytest.mark.parametrize(
    ("item", "rank", "value"),
    [
        (FLOAT, 0, math.inf),
        (FLOAT, 2, [[1.5, -math.inf]]),
        ({"class": "H5T_VLEN", "base": FLOAT}, 1, [[math.inf], []]),
        ({"class": "H5T_ARRAY", "dims": [2], "base": FLOAT}, 1, [[math.inf, 1.0]]),
        ({"class": "H5T_ARRAY", "dims": [1, 2], "base": PAIR}, 0, [[["inf", 1.0], ["nan", math.inf]]]),
        (PAIR, 1, [["nan", math.inf], ["x", 2.0]]),
        (PLAIN, 0, ["inf", -math.inf]),
        ({"class": "H5T_VLEN", "base": PLAIN}, 0, [["inf", -math.inf]]),
    ],
)
def test_floats_become_names_and_again_floats_and_text_stays(item: Any, rank: int, value: Any) -> None:
    element = parse_type(item).element
    assert has_floats(element)
    stored = name_non_finite(value)
    assert restore_non_finite(stored, element, rank) == value
    ignored = restore_non_finite(stored, element, rank, ignore_nan=True)
    assert repr(ignored) == repr(value).replace("-inf", "None").replace("inf", "None").replace(
        "'None'", "'inf'"
    )
