"""Groups: creating, linking, getting, listing, deleting."""

from __future__ import annotations

from hsparse.testing.rest_client import RestClient


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
