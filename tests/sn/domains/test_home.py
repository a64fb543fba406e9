"""Home folders, which exist as soon as somebody needs them."""

from __future__ import annotations

import asyncio

from hsparse.testing.rest_client import RestClient


async def test_home_is_there_in_a_new_store(bare: RestClient) -> None:
    home = await bare("GET", "/", domain="/home")
    assert (home.status, home["class"], home["owner"]) == (200, "folder", "admin")
    own = await bare("GET", "/", domain="/home/test_user1")
    assert (own.status, own["owner"]) == (200, "test_user1")
    listed = await bare("GET", "/domains", domain="/home/")
    assert [one["name"] for one in listed["domains"]] == ["/home/test_user1"]


async def test_only_ones_own_home_is_made(bare: RestClient) -> None:
    assert (await bare("GET", "/", domain="/home/test_user2")).status == 404
    assert (await bare("GET", "/", domain="/home/nobody", user="admin")).status == 404
    assert (await bare("GET", "/", domain="/home/anonymous", user=None)).status == 404


async def test_many_ask_at_once(bare: RestClient) -> None:
    replies = await asyncio.gather(
        *(bare("PUT", "/", {}, domain=f"/home/test_user1/{n}.h5") for n in range(8)),
        *(bare("GET", "/", domain="/home/test_user2", user="test_user2") for _ in range(4)),
    )
    assert {reply.status for reply in replies} == {200, 201}
