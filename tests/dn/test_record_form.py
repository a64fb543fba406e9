"""What a damaged record is answered with: that it is corrupt, never a defect."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from hsparse.dn.record_form import wrong_part
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from tests.sn.test_co_tenant import OWNER, PRIVATE, paths_of, private_domain
from tests.support.endurance import repeats
from tests.support.rest_client import ROUTES, RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

JUNK = (None, 0, -1, 1.5, True, "", "x", [], [1], [[]], {}, {"a": 1}, {"class": "X"})
STATES = ("/metrics", "/openapi.json", "/docs", "/sign-in", "/explorer/{file}")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path of each part of a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    """Return a copy of a JSON value with another part in a place."""
    if not path:
        return junk
    made = json.loads(json.dumps(value))
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = junk
    return made


@pytest.fixture
async def world() -> AsyncIterator[tuple[RestClient, DataService, MemoryStore]]:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    node = DataService(store, clock)
    rest = await RestClient(node, clock, Principal(OWNER)).open()
    await rest("PUT", "/", {"folder": 1}, domain=PRIVATE.rpartition("/")[0])
    yield rest, node, store
    await rest.close()
    await node.close()


@pytest.mark.endurance
async def test_a_damaged_record_is_never_a_defect(world: tuple[RestClient, DataService, MemoryStore]) -> None:
    rest, node, store = world
    ids = await private_domain(rest)
    keys = [
        entry.key async for page in store.list("") for entry in page.entries if entry.key.endswith(".json")
    ]
    records = {key: json.loads((await store.get(key)).data) for key in keys}
    pairs = [(key, place, junk) for key in keys for place in places(records[key]) if place for junk in JUNK]
    random.Random(0).shuffle(pairs)
    gets = [route for route in ROUTES if route.method == "GET" and route.path not in STATES]
    for key, place, junk in pairs[: repeats(600, short=40)]:
        record = changed(records[key], place, junk)
        await store.put(key, json.dumps(record).encode())
        node._cache.drop("")
        for route in gets:
            reply = await rest("GET", next(paths_of(route, ids)), domain=PRIVATE)
            kind = reply["error"]["kind"] if reply.status >= 500 else "corrupt"
            assert kind == "corrupt", (key, record, route.path, reply.body)
        await store.put(key, json.dumps(records[key]).encode())


def test_a_wrong_part_is_named() -> None:
    shape = {"class": "H5S_SIMPLE", "dims": ["x"]}
    assert wrong_part("db/x/.dataset.json", {"shape": shape}) == "shape/dims"
    assert wrong_part("db/x/.group.json", {"links": {"a": {"id": 7}}}) == "links/a/id"
    assert wrong_part("db/x/.group.json", {"attributes": {"a": {"value": 7}}}) == "attributes/a/type"
    assert wrong_part("db/x/.summary.json", {"shape": shape}) == ""
