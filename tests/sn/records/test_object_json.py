"""JSON of records, older ones too, and its cache."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.model.ids import new_id, new_root_id
from hsparse.sn.http import response
from hsparse.sn.http.response import MAX_WHOLE_ITEMS, encode_json
from hsparse.sn.objects.handlers import RECORD_WEIGHT, ObjectJsonCache
from hsparse.sn.records.object_json import attribute_json, attribute_value_json, object_json
from tests.sn.dataset_kinds import F64, I32, chunked
from tests.support.rest_client import RestClient

TIMES = {"created": 1.0, "lastModified": 2.0}
DATASET: dict[str, Any] = {
    "id": "d-00000000-00000001-0000-000000-000001",
    "root": "g-00000000-00000001-8888-888888-888889",
    "type": {"class": "H5T_INTEGER", "base": I32},
    "shape": {"class": "H5S_SIMPLE", "dims": [10], "maxdims": [0]},
    "attributes": {},
    **TIMES,
}


def test_a_dataset_of_hsds_0_9() -> None:
    record = DATASET | {"layout": chunked(400), "creationProperties": {"layout": chunked(100)}}
    shown = object_json(record)
    assert (shown["shape"]["maxdims"], shown["layout"]) == (["H5S_UNLIMITED"], record["layout"])
    assert shown["creationProperties"] == record["creationProperties"]
    bare = object_json(DATASET | {"layout": record["layout"]})
    assert bare["creationProperties"] == {"layout": record["layout"]}


def test_a_dataset_of_hsds_1_0() -> None:
    shape = {"class": "H5S_SIMPLE", "dims": [10]}
    record = DATASET | {"shape": shape, "creationProperties": {"layout": {"class": "H5D_CONTIGUOUS"}}}
    shown = object_json(record)
    assert (shown["layout"], shown["creationProperties"]) == (chunked(10), record["creationProperties"])


def test_a_group_of_hsds_1_0() -> None:
    link = {"class": "H5L_TYPE_EXTERNAL", "h5path": "/x", "file": "/f", "created": 3.0}
    record = {"id": DATASET["root"], "root": DATASET["root"], "links": {"e": link}, "attributes": {}, **TIMES}
    shown = object_json(record, links=True, attributes=True)
    assert shown["links"]["e"] == link | {"h5domain": "/f"}
    assert (shown["linkCount"], shown["attributes"]) == (1, {})
    assert "links" not in object_json(record)


@pytest.mark.parametrize(("size", "has"), [(0, True), (7, False), (8, True)])
def test_values_up_to_a_size(size: int, has: bool) -> None:
    stored = {"type": I32, "shape": {"class": "H5S_SIMPLE", "dims": [2]}, "value": [1, 2]}
    assert ("value" in attribute_json("a", stored, max_size=size)) == has


def test_an_object_of_many_elements_is_encoded_by_who_asks() -> None:
    many = {"type": I32, "shape": {"class": "H5S_SIMPLE", "dims": [MAX_WHOLE_ITEMS + 1]}, "value": None}
    record = DATASET | {"layout": chunked(4), "attributes": {"null": many}}
    cache = ObjectJsonCache()
    encoded = cache.object_json(record)
    assert callable(encoded)
    assert orjson.loads(encoded()) == object_json(record, links=True, attributes=True)
    assert cache.get((record["id"], ""), record) is None


async def test_objects_of_many_elements_beside_others(
    rest: RestClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response, "MAX_WHOLE_ITEMS", 3)
    body = {"type": I32, "shape": [4], "value": [1, 2, 3, 4]}
    assert (await rest("PUT", f"/groups/{root}/attributes/null", body)).status == 201
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    found = (await rest("GET", "/", getobjs=1, include_attrs=1))["domain_objs"]
    assert (found[root]["attributes"]["null"]["value"], found[group]["attributes"]) == ([1, 2, 3, 4], {})


def test_text_that_looks_like_no_number() -> None:
    text = {"type": {"class": "H5T_STRING", "length": 3, "charSet": "H5T_CSET_ASCII"}, "value": "nan"}
    assert attribute_value_json(text) == "nan"
    assert attribute_value_json(
        {
            "type": {"class": "H5T_FLOAT", "base": F64},
            "shape": {"class": "H5S_SIMPLE", "dims": [2]},
            "value": ["inf", 1.0],
        }
    ) == [float("inf"), 1.0]


CLOCK = SystemClock()
ROOT = new_root_id(CLOCK)
IDS = [new_id("groups", ROOT, CLOCK) for _ in range(4)]


def group(id: str, value: Any = 1.5) -> dict[str, Any]:
    scalar = {"type": {"class": "H5T_FLOAT", "base": F64}, "shape": {"class": "H5S_SCALAR"}}
    times = {"created": 1.0, "lastModified": 2.0}
    return {"id": id, "root": ROOT, **times, "links": {}, "attributes": {"a": scalar | {"value": value}}}


def fresh(record: dict[str, Any], ignore_nan: bool) -> bytes:
    return encode_json(object_json(record, links=True, attributes=True, ignore_nan=ignore_nan))


@given(
    st.lists(
        st.tuples(st.sampled_from(IDS), st.sampled_from([1.5, "nan", "inf"]), st.booleans()), max_size=30
    ),
    st.sampled_from([0, 3_000, 10**9]),
)
def test_what_is_kept_is_of_the_record(asked: list[tuple[str, Any, bool]], budget: int) -> None:
    """Records of the same id come and go; some come again."""
    shown = ObjectJsonCache(budget)
    records: dict[tuple[str, Any], dict[str, Any]] = {}
    for id, value, ignore_nan in asked:
        record = records.setdefault((id, value), group(id, value))
        assert shown.object_json(record, ignore_nan=ignore_nan) == fresh(record, ignore_nan)


def test_it_is_made_once() -> None:
    shown, record = ObjectJsonCache(), group(IDS[0])
    assert shown.object_json(record) is shown.object_json(record)
    assert shown.object_json(dict(record)) is not shown.object_json(record)


def test_floats_that_are_ignored_are_kept_apart() -> None:
    shown, record = ObjectJsonCache(), group(IDS[0], "nan")
    assert orjson.loads(shown.object_json(record, ignore_nan=True))["attributes"]["a"]["value"] is None
    assert b"NaN" in shown.object_json(record)


def test_the_budget_is_kept() -> None:
    size = len(IDS[0]) + (1 + RECORD_WEIGHT) * len(fresh(group(IDS[0]), False))
    shown, records = ObjectJsonCache(2 * size), [group(id) for id in IDS[:3]]
    first, second, third = (shown.object_json(record) for record in records)
    assert shown.object_json(records[2]) is third
    assert shown.object_json(records[1]) is second
    assert shown.object_json(records[0]) is not first
