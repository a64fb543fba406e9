"""Files planned from records alone; with chunks and over HTTP they are in `tests/sn/test_files.py`."""

from __future__ import annotations

import io
from typing import Any

import h5py
import pytest

from hsparse.errors import BadRequest
from hsparse.format.hdf5.domain_plan import known_key, plan_domain
from hsparse.format.hdf5.file_layout import FileLayout
from hsparse.format.hdf5.planned_chunks import PlannedChunks

ROOT = "g-1c2d3e4f-00112233-0000-000000-000000"
GROUP = "g-1c2d3e4f-00112233-4455-667788-99aabb"
SET = "d-1c2d3e4f-00112233-4455-667788-99aabb"
TYPE = "t-1c2d3e4f-00112233-4455-667788-99aabb"
INT = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
HARD = "H5L_TYPE_HARD"


def hard(id: str, created: float = 0) -> dict[str, Any]:
    return {"class": HARD, "id": id, "created": created}


def records(**changes: Any) -> dict[str, Any]:
    number = {"type": INT | {"id": TYPE}, "shape": {"class": "H5S_SCALAR"}, "value": 5, "created": 0}
    links = {"b": hard(GROUP, 1), "a": hard(SET, 2), "gone": hard(SET[:-1] + "c"), "t": hard(TYPE, 3)}
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [5], "flags": ["H5D_SPARSE_DATA"]}
    space = {"class": "H5S_SIMPLE", "dims": [10]}
    some = {
        ROOT: {
            "links": links,
            "attributes": {"y": number | {"created": 1}, "x": number | {"created": 2}},
            "creationProperties": {"CreateOrder": "1"},
        },
        GROUP: {"links": {"up": hard(ROOT), "a": hard(SET)}},
        SET: {"type": INT, "shape": space, "layout": layout, "attributes": {"DEFINED_SET": number}},
        TYPE: {"type": INT},
    }
    return {id: {"id": id, **record} for id, record in (some | changes).items()}


def opened(found: dict[str, Any]) -> h5py.File:
    plan = plan_domain(ROOT, found, {SET: PlannedChunks.of([], 1)}, FileLayout.STOCK)
    return h5py.File(io.BytesIO(plan.file.read(0, plan.file.size)))


def test_objects_links_and_attributes_in_their_order() -> None:
    with opened(records()) as file:
        order = file.id.get_create_plist().get_link_creation_order()
        assert order & h5py.h5p.CRT_ORDER_TRACKED
        names: list[str] = []
        file.id.links.iterate(lambda name: names.append(name.decode()), idx_type=h5py.h5.INDEX_CRT_ORDER)
        assert names == ["b", "a", "t", "a.defined"]
        assert dict(file.attrs) == {"x": 5, "y": 5}
        assert file.attrs.get_id("x").get_type().committed()
        assert file["b/up"] == file
        assert h5py.h5o.get_info(file.id).num_attrs == 2


def test_a_defined_set_takes_no_name_that_is_taken() -> None:
    """It is beside the first link to its dataset: here in the group with the lower id."""
    with opened(records()) as file:
        assert sorted(file) == ["a", "a.defined", "b", "t"]
        assert file["a"].attrs["DEFINED_SET"] == 5
        reference = file["a"].attrs["DEFINED_SET_"]
        assert file[reference] == file["a.defined"]
        assert file["a.defined"].dtype == bool
        assert file["a.defined"].chunks == file["a"].chunks == (5,)
        assert not file["a.defined"][()].any()


def test_what_is_wrong_is_told_of_its_object() -> None:
    bad = records(**{GROUP: {"links": {"a\0b": hard(SET)}}})
    with pytest.raises(BadRequest, match="zero character"):
        opened(bad)
    number = {"type": INT, "shape": {"class": "H5S_SCALAR"}, "value": "no number", "created": 0}
    with pytest.raises(BadRequest, match=f"{GROUP} cannot be in a file: .*"):
        opened(records(**{GROUP: {"links": {}, "attributes": {"a": number}}}))


def test_known_keys() -> None:
    ids = frozenset({SET})
    assert known_key(f"datasets/{SET}", ids) == SET
    assert known_key(f"groups/{GROUP}", ids) is None
    assert known_key("", ids) is None
