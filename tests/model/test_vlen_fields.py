"""Fields of compounds of variable length, picked and set, against lists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import array_json, from_json
from hsparse.model.vlen_array import VlenArray, VlenFields
from tests.model.type_strategies import text, values_of

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
