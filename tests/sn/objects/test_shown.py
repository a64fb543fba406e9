"""Records as clients see them, older ones too."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.sn.objects.shown import shown_attribute, shown_object, shown_value

TIMES = {"created": 1.0, "lastModified": 2.0}
DATASET: dict[str, Any] = {
    "id": "d-00000000-00000001-0000-000000-000001",
    "root": "g-00000000-00000001-8888-888888-888889",
    "type": {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"},
    "shape": {"class": "H5S_SIMPLE", "dims": [10], "maxdims": [0]},
    "attributes": {},
    **TIMES,
}


def test_a_dataset_of_hsds_0_9() -> None:
    record = DATASET | {
        "layout": {"class": "H5D_CHUNKED", "dims": [400]},
        "creationProperties": {"layout": {"class": "H5D_CHUNKED", "dims": [100]}},
    }
    shown = shown_object(record)
    assert shown["shape"]["maxdims"] == ["H5S_UNLIMITED"]
    assert shown["layout"] == record["layout"]
    assert shown["creationProperties"] == record["creationProperties"]
    bare = shown_object(DATASET | {"layout": record["layout"]})
    assert bare["creationProperties"] == {"layout": record["layout"]}


def test_a_dataset_of_hsds_1_0() -> None:
    shape = {"class": "H5S_SIMPLE", "dims": [10]}
    record = DATASET | {"shape": shape, "creationProperties": {"layout": {"class": "H5D_CONTIGUOUS"}}}
    shown = shown_object(record)
    assert shown["layout"] == {"class": "H5D_CHUNKED", "dims": [10]}
    assert shown["creationProperties"] == record["creationProperties"]


def test_a_group_of_hsds_1_0() -> None:
    link = {"class": "H5L_TYPE_EXTERNAL", "h5path": "/x", "file": "/f", "created": 3.0}
    record = {"id": DATASET["root"], "root": DATASET["root"], "links": {"e": link}, "attributes": {}, **TIMES}
    shown = shown_object(record, links=True, attributes=True)
    assert shown["links"]["e"] == link | {"h5domain": "/f"}
    assert (shown["linkCount"], shown["attributes"]) == (1, {})
    assert "links" not in shown_object(record)


@pytest.mark.parametrize(("size", "has"), [(0, True), (7, False), (8, True)])
def test_values_up_to_a_size(size: int, has: bool) -> None:
    stored = {"type": "H5T_STD_I32LE", "shape": {"class": "H5S_SIMPLE", "dims": [2]}, "value": [1, 2]}
    assert ("value" in shown_attribute("a", stored, max_size=size)) == has


def test_text_that_looks_like_no_number() -> None:
    text = {"type": {"class": "H5T_STRING", "length": 3, "charSet": "H5T_CSET_ASCII"}, "value": "nan"}
    assert shown_value(text) == "nan"
    assert shown_value(
        {
            "type": {"class": "H5T_FLOAT", "base": "H5T_IEEE_F64LE"},
            "shape": {"class": "H5S_SIMPLE", "dims": [2]},
            "value": ["inf", 1.0],
        }
    ) == [
        float("inf"),
        1.0,
    ]
