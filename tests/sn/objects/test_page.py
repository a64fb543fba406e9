"""Parts of listings."""

from __future__ import annotations

from hsparse.testing.rest_client import RestClient


async def test_pages_make_up_the_whole(rest: RestClient, root: str) -> None:
    links = {f"{n:02}": {"h5path": "/x"} for n in (3, 1, 9, 7, 5)}
    await rest("PUT", f"/groups/{root}/links", {"links": links})
    for order, whole in ((0, sorted(links)), (1, list(links))):
        seen: list[str] = []
        while True:
            marker = {"Marker": seen[-1]} if seen else {}
            reply = await rest("GET", f"/groups/{root}/links", Limit=2, CreateOrder=order, **marker)
            page = [link["title"] for link in reply["links"]]
            seen += page
            if len(page) < 2:
                break
        assert seen == whole


async def test_the_order_in_which_a_client_created(rest: RestClient, root: str) -> None:
    links = {"b": {"h5path": "/x", "created": 2.0}, "a": {"h5path": "/x", "created": 1.0}}
    await rest("PUT", f"/groups/{root}/links", {"links": links})
    listed = (await rest("GET", f"/groups/{root}/links", CreateOrder=1))["links"]
    assert [link["title"] for link in listed] == ["a", "b"]
    value = {"type": "H5T_STD_I8LE", "value": 1}
    attributes = {"y": value | {"created": 2.0}, "x": value | {"created": 1.0}}
    await rest("PUT", f"/groups/{root}/attributes", {"attributes": attributes})
    names = (await rest("GET", f"/groups/{root}/attributes", CreateOrder=1))["attributes"]
    assert [attribute["name"] for attribute in names] == ["x", "y"]


async def test_names_are_joined_by_a_separator(rest: RestClient, root: str) -> None:
    links = {name: {"h5path": "/x"} for name in ("a", "b|c", "d")}
    await rest("PUT", f"/groups/{root}/links", {"links": links})
    assert (await rest("DELETE", f"/groups/{root}/links", titles="a/d/a")).status == 200
    assert (await rest("DELETE", f"/groups/{root}/links", titles="b|c", separator="/")).status == 200
    assert (await rest("DELETE", f"/groups/{root}/links", titles="")).status == 400
