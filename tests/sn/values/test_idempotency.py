"""Appends and extensions with an `Idempotency-Key`: made once, however often and by whomever they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hsparse.model.dataset_state import MOST_REMEMBERED
from hsparse.sn.http.challenge import MAX_KEY
from hsparse.sn.values import append
from hsparse.sn.values.append import AppendGroups
from hsparse.wire.record_message import AbandonAppends, BeginAppend, EndAppend
from tests.sn.dataset_kinds import I64, chunked
from tests.sn.value_client import create, put, read, value_client
from tests.support.rest_client import Reply, RestClient
from tests.testing.memory_store import MemoryStore

LAYOUT = chunked(4)
GROWN = {"append": {"append": 2, "value": [7, 8]}, "extend": {"extend": 2}}


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client(nodes=2) as made:
        yield made


async def dataset(client: RestClient, most: Any = "H5S_UNLIMITED") -> str:
    return await create(client, [3], I64, maxdims=[most], layout=LAYOUT)


async def grow(client: RestClient, path: str, how: str, key: str | None, **changes: Any) -> Reply:
    headers = {} if key is None else {"Idempotency-Key": key}
    end = "value" if how == "append" else "shape"
    return await client("PUT", f"{path}/{end}", GROWN[how] | changes, headers=headers)


async def extent(client: RestClient, path: str) -> int:
    return int((await client("GET", f"{path}/shape"))["shape"]["dims"][0])


@pytest.mark.parametrize("how", GROWN)
async def test_what_is_sent_again_with_its_key_is_answered_again(client: RestClient, how: str) -> None:
    path = await dataset(client)
    first = await grow(client, path, how, '"one"')
    for _ in range(MOST_REMEMBERED + 1):
        assert (await grow(client, path, how, None)).status < 300
    again = await grow(client, path, how, '"one"')
    assert first.body["selection"] == again.body["selection"] == "[3:5]"
    assert first.status == again.status
    assert (await grow(client, path, how, '"two"')).body["selection"] == "[39:41]"
    assert await extent(client, path) == 41
    if how == "append":
        assert (await read(client, path, "<i8", (-1,))).tolist() == [0, 0, 0] + 19 * [7, 8]


@pytest.mark.parametrize("how", GROWN)
async def test_keys_of_two_datasets_have_nothing_to_do_with_each_other(client: RestClient, how: str) -> None:
    for _ in range(2):
        path = await dataset(client)
        assert (await grow(client, path, how, '"one"')).body["selection"] == "[3:5]"


@pytest.mark.parametrize("how", GROWN)
async def test_it_is_answered_again_where_it_would_not_fit_twice(client: RestClient, how: str) -> None:
    path = await dataset(client, most=5)
    for _ in range(2):
        assert (await grow(client, path, how, '"one"')).body["selection"] == "[3:5]"
    assert (await grow(client, path, how, '"two"')).status == 409


@pytest.mark.parametrize("how", GROWN)
async def test_the_same_request_many_times_at_once(client: RestClient, how: str) -> None:
    path = await dataset(client)
    keys = [f'"{number}"' for number in range(4)]
    replies = await asyncio.gather(*(grow(client, path, how, key) for key in 3 * keys))
    places = [reply.body["selection"] for reply in replies]
    assert places[:4] == places[4:8] == places[8:]
    assert len(set(places)) == 4
    assert await extent(client, path) == 11
    if how == "append":
        assert (await read(client, path, "<i8", (-1,))).tolist() == [0, 0, 0] + 4 * [7, 8]


@pytest.mark.parametrize(
    ("how", "changes"),
    [
        ("append", {"append": 3, "value": [1, 2, 3]}),
        ("extend", {"extend": 3}),
        ("extend", {"extend": 2, "extend_dim": 1}),
    ],
)
async def test_a_key_is_for_one_request(client: RestClient, how: str, changes: dict[str, Any]) -> None:
    path = await dataset(client)
    await grow(client, path, how, '"one"')
    refused = await grow(client, path, how, '"one"', **changes)
    assert refused.status == 400
    assert "Idempotency-Key" in refused.body["error"]["message"]
    assert await extent(client, path) == 5


@pytest.mark.parametrize("how", GROWN)
@pytest.mark.parametrize(
    "key", ["one", '""', '"a', f'"{"a" * (MAX_KEY + 1)}"', '"a";b=1', '"a", "b"', '"\\a"']
)
async def test_what_is_no_key_changes_nothing(client: RestClient, how: str, key: str) -> None:
    path = await dataset(client)
    refused = await grow(client, path, how, key)
    assert refused.status == 400
    assert "Idempotency-Key" in refused.body["error"]["message"]
    assert await extent(client, path) == 3


@pytest.mark.parametrize("key", [f'"{"a" * MAX_KEY}"', r'"a \"quoted\" one, and a \\"'])
async def test_any_string_is_a_key(client: RestClient, key: str) -> None:
    path = await dataset(client)
    for _ in range(2):
        assert (await grow(client, path, "append", key)).body["selection"] == "[3:5]"


class Begun:
    """The appends that a client's service node begins, in order."""

    def __init__(self, client: RestClient) -> None:
        self.changes: list[BeginAppend] = []
        self._client, self._apply = client, client.service.owners.apply
        client.service.owners.apply = self._watched  # type: ignore[method-assign]

    async def _watched(self, change: Any) -> Any:
        outcome = await self._apply(change)
        if isinstance(change, BeginAppend):
            self.changes.append(change)
        return outcome

    async def elsewhere(self, path: str, key: str, lease: float) -> EndAppend:
        """Begin the append of a request with `key` as another service node; return the change by which that ends it."""
        await grow(
            self._client, await dataset(self._client), "append", key
        )  # to learn what the nodes call it
        id = path.rpartition("/")[2]
        await self._apply(BeginAppend(id, "elsewhere", (2,), 0, lease, self.changes[-1].keys))
        return EndAppend(id, "elsewhere")


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_what_a_service_node_that_is_gone_has_begun_is_begun_again(
    client: RestClient, is_dropped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has reserved its place, and its client did not get an answer; its place may have been given up, too."""
    monkeypatch.setattr(append, "EXPIRY_CHECK_SECONDS", 0.0)
    path, begun = await dataset(client), Begun(client)
    await grow(client, path, "append", '"other"')
    change = await begun.elsewhere(path, '"one"', -1.0)
    assert begun.changes[0].keys != begun.changes[1].keys
    if is_dropped:
        await client.service.owners.apply(AbandonAppends(change.id))
    for _ in range(2):
        assert (await grow(client, path, "append", '"one"')).body["selection"] == "[5:7]"
    assert await extent(client, path) == 7
    assert (await read(client, path, "<i8", (-1,))).tolist() == [0, 0, 0, 7, 8, 7, 8]


async def test_a_request_that_is_sent_again_writes_nothing_while_the_first_one_is_carried_out(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would undo what others write there once the first one has ended."""
    path, begun = await dataset(client), Begun(client)
    end = await begun.elsewhere(path, '"one"', 60.0)
    looks, look = asyncio.Event(), AppendGroups._while_begun

    async def watched(groups: AppendGroups, id: str, token: str) -> None:
        looks.set()
        await look(groups, id, token)

    monkeypatch.setattr(AppendGroups, "_while_begun", watched)
    again = asyncio.create_task(grow(client, path, "append", '"one"'))
    await looks.wait()
    await client.service.owners.apply(end)
    await put(client, path, {"value": [99]}, select="[3:4]")
    assert (await again).body["selection"] == "[3:5]"
    assert (await read(client, path, "<i8", (-1,))).tolist() == [0, 0, 0, 99, 0]


async def test_keys_of_two_users_have_nothing_to_do_with_each_other() -> None:
    async with value_client(MemoryStore()) as client:
        path = await dataset(client)
        await client("PUT", "/acls/default", {"read": True, "update": True})
        for user, place in (("admin", "[3:5]"), (None, "[5:7]"), ("admin", "[3:5]"), (None, "[5:7]")):
            client.user = user
            assert (await grow(client, path, "append", '"one"')).body["selection"] == place
