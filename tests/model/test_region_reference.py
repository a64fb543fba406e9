"""Region references as JSON and as h5json's bytes."""

from __future__ import annotations

from typing import Any

import pytest
from h5json import selections
from h5json.hdf5dtype import RegionReference
from hypothesis import given
from hypothesis import strategies as st

from hsparse.model.link import MAX_POINTS, region_bytes, region_json
from tests.model.type_strategies import ID, regions

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
