"""Links between answers."""

from __future__ import annotations

from hsparse.testing.rest_client import RestClient
from tests.sn.conftest import DOMAIN


async def test_they_lead_to_what_they_name(rest: RestClient, root: str) -> None:
    links = {one["rel"]: one["href"] for one in (await rest("GET", "/"))["hrefs"]}
    for rel, key in (("database", "datasets"), ("groupbase", "groups"), ("root", "id"), ("acls", "acls")):
        path, _, query = links[rel].split("/", 3)[3].partition("?")
        assert query == f"domain={DOMAIN}"
        assert key in (await rest("GET", f"/{path}")).body
    assert links["parent"].endswith("/?domain=hsparse/home/test_user1")
    assert (await rest("GET", "/", domain="hsparse/home/test_user1"))["class"] == "folder"


async def test_no_domain_in_them_where_it_came_by_header(rest: RestClient) -> None:
    reply = await rest("GET", "/", domain=None, headers={"X-Hdf-domain": DOMAIN})
    links = {one["rel"]: one["href"] for one in reply["hrefs"]}
    assert links["self"].endswith("/")
    assert links["groupbase"].endswith("/groups")
