"""Elements of variable length: arrays, fields of compounds, references to regions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from h5json import selections
from h5json.hdf5dtype import RegionReference
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import array_json, from_json
from hsparse.model.link import MAX_POINTS, region_bytes, region_json
from hsparse.model.vlen_array import VlenArray, VlenFields, ends
from tests.model.type_strategies import ID, regions, text, values_of


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
