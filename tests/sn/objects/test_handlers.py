"""Groups, committed types, and what all objects have in common."""

from __future__ import annotations

import pytest

from tests.support.rest_client import RestClient


async def test_deleted_is_gone_and_never_was_is_not_found(rest: RestClient, root: str) -> None:
    id = (await rest("POST", "/groups", {}))["id"]
    assert (await rest("DELETE", f"/groups/{id}")).status == 200
    assert (await rest("GET", f"/groups/{id}")).status == 410
    assert (await rest("DELETE", f"/groups/{id}")).status == 410
    assert (await rest("GET", f"/groups/{root[:19]}-9999-123456-abcdef")).status == 404
    assert (await rest("DELETE", f"/groups/{root}")).status == 403


@pytest.mark.parametrize(
    "id", ["g-00000000-00000000-0000-000000-000001", "nonsense", "d-00000000-00000000-0000-000000-000001"]
)
async def test_an_id_of_elsewhere_is_a_bad_request(rest: RestClient, id: str) -> None:
    assert (await rest("GET", f"/groups/{id}")).status == 400
    assert (await rest("DELETE", f"/groups/{id}")).status == 400
    assert (await rest("POST", "/groups", {"link": {"id": id, "name": "x"}})).status == 400
    assert (await rest("POST", "/groups", {"id": id})).status == 400


async def test_listing_goes_on_behind_a_marker(rest: RestClient, root: str) -> None:
    ids = sorted(
        [(await rest("POST", "/groups", {"link": {"id": root, "name": f"g{n}"}}))["id"] for n in range(5)]
    )
    assert (await rest("GET", "/groups", Limit=2))["groups"] == ids[:2]
    assert (await rest("GET", "/groups", Limit=2, Marker=ids[1]))["groups"] == ids[2:4]
    assert (await rest("GET", "/groups", Marker="g-x")).status == 404
    assert (await rest("GET", "/groups", Limit="x")).status == 400


async def test_by_a_path_from_a_group(rest: RestClient, root: str) -> None:
    outer = (await rest("POST", "/groups", {"link": {"id": root, "name": "a"}}))["id"]
    inner = (await rest("POST", "/groups", {"link": {"id": outer, "name": "b"}}))["id"]
    await rest("POST", "/datasets", {"type": "H5T_STD_I8LE", "link": {"id": outer, "name": "d"}})
    assert (await rest("GET", f"/groups/{root}", h5path="a/b"))["id"] == inner
    assert (await rest("GET", f"/groups/{outer}", h5path="b"))["id"] == inner
    assert (await rest("GET", f"/groups/{outer}", h5path="d")).status == 404
    assert (await rest("GET", f"/groups/{outer}", h5path="c")).status == 404


async def test_a_new_group_is_linked_and_listed(rest: RestClient, root: str) -> None:
    made = await rest("POST", "/groups", {"link": {"id": root, "name": "g1"}})
    assert made.status == 201
    assert (made["root"], made["linkCount"], made["attributeCount"]) == (root, 0, 0)
    link = await rest("GET", f"/groups/{root}/links/g1")
    assert link["link"] == {"title": "g1", "class": "H5L_TYPE_HARD", "id": made["id"], "collection": "groups"}
    assert (await rest("GET", "/groups"))["groups"] == [made["id"]]
    shown = await rest("GET", f"/groups/{made['id']}", getalias=1)
    assert (shown["alias"], shown["domain"]) == (["/g1"], rest.domain)


async def test_the_root_group_is_as_hsds_shows_it(rest: RestClient, root: str) -> None:
    shown = await rest("GET", f"/groups/{root}")
    assert set(shown.body) == {
        "id",
        "root",
        "created",
        "lastModified",
        "linkCount",
        "attributeCount",
        "domain",
        "bucket",
        "hrefs",
    }


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


async def test_an_object_that_changes_is_shown_as_it_is(rest: RestClient, root: str) -> None:
    path = f"/groups/{root}"

    async def shown() -> tuple[int, int, list[str]]:
        first, second = [(await rest("GET", path, include_attrs=1)).body for _ in range(2)]
        assert first == second
        return first["attributeCount"], first["linkCount"], list(first["attributes"])

    assert await shown() == (0, 0, [])
    attribute = {"type": "H5T_STD_I8LE", "value": 1}
    await rest("PUT", f"{path}/attributes/b", attribute)
    assert await shown() == (1, 0, ["b"])
    await rest("POST", "/groups", {"link": {"id": root, "name": "a"}})
    await rest("PUT", f"{path}/attributes/a", attribute)
    assert await shown() == (2, 1, ["b", "a"])
    await rest("DELETE", f"{path}/attributes/b")
    assert await shown() == (1, 1, ["a"])
    assert "attributes" not in (await rest("GET", path)).body


async def test_an_answer_is_remembered_for_what_was_asked(rest: RestClient, root: str) -> None:
    path = f"/groups/{root}"
    plain = (await rest("GET", path)).body
    elsewhere = await rest("GET", path, headers={"Host": "127.0.0.2:1234"})
    assert {one["href"].split("/")[2] for one in elsewhere["hrefs"]} == {"127.0.0.2:1234"}
    assert "links" in (await rest("GET", path, include_links=1)).body
    # A query in which "&" is escaped is another one, though it reads the same.
    assert "links" not in (await rest("GET", f"{path}?x=1%26include_links=1")).body
    assert (await rest("GET", path, getalias=1))["alias"] == ["/"]
    assert (await rest("GET", path)).body == plain
