"""Waiting for another extent: answered at once, after a change, after the time, and refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hsparse.sn.objects import extent_polling
from hsparse.sn.request import Request
from tests.sn.value_client import create, value_client
from tests.support.rest_client import RestClient


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as made:
        yield made


@pytest.fixture
async def path(client: RestClient) -> str:
    return await create(client, [4, 3], "H5T_STD_I32LE", maxdims=[0, 3])


async def test_another_extent_is_answered_at_once(client: RestClient, path: str) -> None:
    reply = await client("GET", f"{path}/shape", wait=60, expect="[3,3]")
    assert reply["shape"]["dims"] == [4, 3]


APPEND, MOVE = ("value", {"append": 2, "value": 7}), ("shape", {"lower": [-3, 0], "shape": [4, 3]})


@pytest.mark.parametrize(
    ("lower", "known", "change", "dims"),
    [(None, None, APPEND, [6, 3]), (None, "[0,0]", APPEND, [6, 3]), ([-2, 0], "[-2,0]", MOVE, [4, 3])],
    ids=["the end", "no lower bounds", "a window of one length"],
)
async def test_a_change_ends_the_wait(
    client: RestClient,
    monkeypatch: pytest.MonkeyPatch,
    lower: list[int] | None,
    known: str | None,
    change: tuple[str, object],
    dims: list[int],
) -> None:
    least = lower and ["H5S_UNLIMITED", 0]
    path = await create(client, [4, 3], "H5T_STD_I32LE", maxdims=[0, 3], lower=lower, minlower=least)
    query = {"expect": "[4,3]"} | ({"expect_lower": known} if known else {})
    waits = asyncio.Event()
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        waits.set()
        await sleep(0)

    monkeypatch.setattr(extent_polling.asyncio, "sleep", noted)
    asked = asyncio.create_task(client("GET", f"{path}/shape", wait=60, **query))
    await waits.wait()
    assert not asked.done()
    assert (await client("PUT", f"{path}/{change[0]}", change[1])).status in (200, 201)
    assert (await asked)["shape"]["dims"] == dims


async def test_who_waits_for_one_dataset_shares_the_looks(
    client: RestClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, waiting, go_on, sleep = 0, asyncio.Semaphore(0), asyncio.Event(), asyncio.sleep

    async def noted(seconds: float) -> None:
        nonlocal looks
        looks += 1
        await go_on.wait()

    def entered(request: object) -> None:
        waiting.release()

    monkeypatch.setattr(extent_polling.asyncio, "sleep", noted)
    monkeypatch.setattr(Request, "leave_place", entered)
    asked = [asyncio.create_task(client("GET", f"{path}/shape", wait=60, expect="[4,3]")) for _ in range(5)]
    for _ in asked:
        await waiting.acquire()
    await sleep(0)
    assert looks == 1
    assert (await client("PUT", f"{path}/value", {"append": 2, "value": 7})).status == 200
    go_on.set()
    assert [(await one)["shape"]["dims"] for one in asked] == [[6, 3]] * 5


async def test_the_same_extent_is_answered_after_the_time(
    client: RestClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extent_polling, "POLL_SECONDS", 0.01)
    reply = await client("GET", f"{path}/shape", wait=1, expect="[4,3]")
    assert reply["shape"]["dims"] == [4, 3]


@pytest.mark.parametrize(
    "query",
    [
        {"wait": 61, "expect": "[4,3]"},
        {"wait": 5},
        {"wait": 5, "expect": "[4,x]"},
        {"wait": 5, "expect": "[4,-3]"},
        {"wait": 5, "expect": "[4,3]", "expect_lower": "[0,]"},
    ],
)
async def test_a_wait_that_cannot_be(client: RestClient, path: str, query: dict[str, object]) -> None:
    reply = await client("GET", f"{path}/shape", **query)
    assert reply.status == 400
