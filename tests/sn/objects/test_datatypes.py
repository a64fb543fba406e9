"""Committed types."""

from __future__ import annotations

from hsparse.testing.rest_client import RestClient

COMPOUND = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "date", "type": "H5T_STD_I64LE"}, {"name": "price", "type": "H5T_IEEE_F64LE"}],
}


async def test_committed_used_and_deleted(rest: RestClient, root: str) -> None:
    made = await rest("POST", "/datatypes", {"type": COMPOUND, "link": {"id": root, "name": "ct"}})
    assert (made.status, made["type"], made["attributeCount"]) == (201, COMPOUND, 0)
    id = made["id"]
    got = await rest("GET", f"/datatypes/{id}")
    assert {key: got[key] for key in ("id", "root", "type")} == {"id": id, "root": root, "type": COMPOUND}
    assert (await rest("GET", "/datatypes"))["datatypes"] == [id]
    assert (await rest("GET", "/datatypes/", h5path="/ct"))["id"] == id
    dataset = await rest("POST", "/datasets", {"type": id, "shape": [2]})
    assert dataset["type"] == COMPOUND | {"id": id}
    assert (await rest("DELETE", f"/datatypes/{id}")).status == 200
    assert (await rest("GET", f"/datatypes/{id}")).status == 410
    assert (await rest("POST", "/datasets", {"type": id, "shape": [2]})).status == 410
    assert (await rest("GET", f"/datasets/{dataset['id']}/type"))["type"]["class"] == "H5T_COMPOUND"


async def test_bad_types(rest: RestClient) -> None:
    for body in ({}, {"type": "H5T_FOO"}, {"type": {"class": "H5T_COMPOUND"}}, {"type": 7}):
        assert (await rest("POST", "/datatypes", body)).status == 400


async def test_several(rest: RestClient) -> None:
    made = await rest("POST", "/datatypes", [{"type": "H5T_STD_I8LE"}, {"type": COMPOUND}])
    assert [one["type"]["class"] for one in made["objects"]] == ["H5T_INTEGER", "H5T_COMPOUND"]
