"""What groups, datasets and committed types have in common."""

from __future__ import annotations

import pytest

from hsparse.testing.rest_client import RestClient


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
