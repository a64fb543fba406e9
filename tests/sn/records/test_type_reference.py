"""The type in a request."""

from __future__ import annotations

from tests.support.rest_client import RestClient


async def test_a_committed_type(rest: RestClient, root: str) -> None:
    own = f"/groups/{root}/attributes"
    id = (await rest("POST", "/datatypes", {"type": "H5T_STD_I8LE"}))["id"]
    assert (await rest("PUT", f"{own}/a", {"type": id, "value": 1})).status == 201
    assert (await rest("GET", f"{own}/a"))["type"]["id"] == id


async def test_a_type_of_elsewhere_or_nowhere(rest: RestClient, root: str) -> None:
    own = f"/groups/{root}/attributes"
    assert (
        await rest("PUT", f"{own}/a", {"type": f"t{root[1:19]}-9999-123456-abcdef", "value": 1})
    ).status == 404
    for bad in ("t-1", root, "t-00000000-00000000-0000-000000-000001", "datatypes/x", None):
        assert (await rest("PUT", f"{own}/a", {"type": bad, "value": 1})).status == 400
    id = (await rest("POST", "/datatypes", {"type": "H5T_STD_I8LE"}))["id"]
    assert (await rest("PUT", f"{own}/a", {"type": f"datatypes/{id}", "value": 1})).status == 201


async def test_committed_types_inside_a_type(rest: RestClient, root: str) -> None:
    text = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
    inner = (await rest("POST", "/datatypes", {"type": text}))["id"]
    pair = {
        "class": "H5T_COMPOUND",
        "fields": [
            {"name": "name", "type": f"datatypes/{inner}"},
            {"name": "size", "type": "H5T_STD_I32LE"},
        ],
    }
    outer = (await rest("POST", "/datatypes", {"type": pair}))["id"]
    made = await rest("POST", "/datasets", {"type": {"class": "H5T_VLEN", "base": outer}, "shape": [2]})
    assert made.status == 201
    base = made["type"]["base"]
    assert (base["id"], base["class"]) == (outer, "H5T_COMPOUND")
    assert base["fields"][0]["type"] == {**text, "id": inner}
    gone = f"t{root[1:19]}-9999-123456-abcdef"
    for bad in (gone, root, "t-1"):
        item = {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": bad}]}
        assert (await rest("POST", "/datasets", {"type": item, "shape": [2]})).status == (
            404 if bad == gone else 400
        )
