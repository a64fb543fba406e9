"""Appending: one visible change, in any medium, by many at once, and through what goes wrong meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hsparse.format.chunk_spec import chunk_key, chunk_spec
from hsparse.format.selections.points import Orthogonal, Points
from hsparse.format.structured.region import encode_region
from hsparse.wire.record_message import AbandonAppends, BeginAppend, EndAppend, PutRecord
from tests.sn.dataset_kinds import I64, chunked, sparse
from tests.sn.value_client import ARROW, BINARY, arrow, create, defined_count, put, read, value_client
from tests.support.rest_client import Reply, RestClient, refuses
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

COLUMNS = 3
LAYOUTS: dict[str, dict[str, Any]] = {
    "dense": {"layout": chunked(4, COLUMNS)},
    "sparse": {"layout": sparse(4, COLUMNS)},
}
UNLIMITED = ["H5S_UNLIMITED", COLUMNS]
Append = Callable[[RestClient, str, np.ndarray], Any]


@pytest.fixture
async def path(client: RestClient) -> str:
    return await create(client, [5, COLUMNS], I64, maxdims=UNLIMITED, **LAYOUTS["sparse"])


async def by_json(client: RestClient, path: str, rows: np.ndarray) -> Reply:
    return await client("PUT", f"{path}/value", {"append": len(rows), "value": rows.tolist()})


async def by_json_points(client: RestClient, path: str, rows: np.ndarray) -> Reply:
    points, values = np.argwhere(rows > 0), rows[rows > 0]
    body = {"append": len(rows), "points": points.tolist(), "value": values.tolist()}
    return await client("PUT", f"{path}/value", body)


async def by_bytes(client: RestClient, path: str, rows: np.ndarray) -> Reply:
    return await client("PUT", f"{path}/value", rows.tobytes(), append=len(rows))


async def by_structured_chunk(client: RestClient, path: str, rows: np.ndarray) -> Reply:
    places = Points(rows.shape, np.argwhere(rows > 0).astype(np.uint64))
    body = encode_region(places, rows[rows > 0])
    return await client("PUT", f"{path}/value", body, append=len(rows), sparse=1)


async def by_arrow(client: RestClient, path: str, rows: np.ndarray) -> Reply:
    body = arrow(np.argwhere(rows > 0), rows[rows > 0], "<i8")
    return await client("PUT", f"{path}/value", body, append=len(rows), headers=ARROW)


DENSE_MEDIA = {"json": by_json, "json points": by_json_points, "bytes": by_bytes}
SPARSE_MEDIA = {"structured": by_structured_chunk, "arrow": by_arrow}
CASES = [("dense", medium) for medium in DENSE_MEDIA] + [
    ("sparse", medium) for medium in DENSE_MEDIA | SPARSE_MEDIA
]


def appender(medium: str) -> Append:
    return (DENSE_MEDIA | SPARSE_MEDIA)[medium]


async def extent(client: RestClient, path: str) -> list[int]:
    dims: list[int] = (await client("GET", f"{path}/shape"))["shape"]["dims"]
    return dims


async def rows_of(client: RestClient, path: str) -> np.ndarray:
    return await read(client, path, "<i8", (-1, COLUMNS))


async def send(client: RestClient, change: Any) -> Any:
    """Apply a change of a record, as a service node does; return the record."""
    return (await client.service.owners.apply(change)).unwrap()


@pytest.mark.parametrize(("layout", "medium"), CASES)
async def test_the_answer_says_what_was_written(client: RestClient, layout: str, medium: str) -> None:
    path = await create(client, [5, COLUMNS], I64, maxdims=UNLIMITED, **LAYOUTS[layout])
    rows = np.arange(1, 1 + 4 * COLUMNS).reshape(4, COLUMNS)
    first = await appender(medium)(client, path, rows)
    assert (first.status, first.body) == (200, {"selection": "[5:9,:]"})
    assert (await appender(medium)(client, path, 10 * rows)).body == {"selection": "[9:13,:]"}
    wanted = np.concatenate([np.zeros((5, COLUMNS)), rows, 10 * rows])
    np.testing.assert_array_equal(await rows_of(client, path), wanted)


@pytest.mark.parametrize(("layout", "medium"), CASES)
async def test_many_append_while_others_read(
    request: pytest.FixtureRequest, client: RestClient, layout: str, medium: str
) -> None:
    """No frame is lost or doubled, and none is ever seen before its values are."""
    frames: int = request.config.getoption("--frames")
    path = await create(client, [0, COLUMNS], I64, maxdims=UNLIMITED, **LAYOUTS[layout])
    left = iter(range(1, frames + 1))
    done = asyncio.Event()

    async def write() -> None:
        for number in left:
            reply = await appender(medium)(client, path, np.full((1, COLUMNS), number))
            assert reply.status == 200, reply.body

    async def poll() -> None:
        seen = 0
        while not done.is_set():
            rows = await rows_of(client, path)
            assert len(rows) >= seen
            assert (rows > 0).all(), "a row is seen that is not written"
            seen = len(rows)

    polls = [asyncio.create_task(poll()) for _ in range(2)]
    await asyncio.gather(*(write() for _ in range(16)))
    done.set()
    await asyncio.gather(*polls)
    rows = await rows_of(client, path)
    assert sorted(rows[:, 0]) == list(range(1, frames + 1))
    assert (rows == rows[:, :1]).all()
    record = await client.service.owners.record(path.rpartition("/")[2])
    assert "appends" not in record


REFUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "too few values": ({"append": 2, "value": [1]}, {}),
    "a point outside the new rows": ({"append": 1, "points": [[1, 0]], "value": [1]}, {}),
    "a column that is not there": ({"append": 1, "points": [[0, COLUMNS]], "value": [1]}, {}),
    "another number of bytes": (bytes(7), {"append": 1}),
    "not a structured chunk": (b"nothing", {"append": 1, "sparse": 1}),
    "a structured chunk of more rows": (
        encode_region(Orthogonal.all((2, COLUMNS)), np.zeros(2 * COLUMNS, "<i8")),
        {"append": 1, "sparse": 1},
    ),
    "no such dimension": ({"append": 1, "append_dim": 2, "value": [1] * COLUMNS}, {}),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_refused_changes_nothing(client: RestClient, path: str, case: str) -> None:
    body, options = REFUSED[case]
    before = await client.service.owners.record(path.rpartition("/")[2])
    assert (await client("PUT", f"{path}/value", body, **options)).status == 400
    assert await client.service.owners.record(path.rpartition("/")[2]) == before


async def test_a_limit_of_a_dimension(client: RestClient) -> None:
    path = await create(client, [5, COLUMNS], I64, maxdims=[6, COLUMNS], **LAYOUTS["sparse"])
    assert (await by_json(client, path, np.ones((2, COLUMNS), int))).status == 409
    assert (await by_json(client, path, np.ones((1, COLUMNS), int))).status == 200
    assert await extent(client, path) == [6, COLUMNS]


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_an_append_that_died_holds_nobody_up(client: RestClient, layout: str) -> None:
    path = await create(client, [5, COLUMNS], I64, maxdims=UNLIMITED, **LAYOUTS[layout])
    id = path.rpartition("/")[2]
    await send(client, BeginAppend(id, "dead", (4, COLUMNS), 0, -1.0))
    assert (await by_json(client, path, np.ones((1, COLUMNS), int))).body == {"selection": "[5:6,:]"}
    record = await client.service.owners.record(id)
    assert "dead" in record["appends"]["dropped"]
    assert (await rows_of(client, path))[5:].tolist() == [[1] * COLUMNS]


@pytest.mark.parametrize("body", [{"shape": [2, COLUMNS]}, {"shape": [9, COLUMNS]}, {"extend": 4}])
async def test_another_extent_begins_the_appends_again(
    client: RestClient, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a dropped append wrote is nowhere, and its request appends to the new extent."""
    id = path.rpartition("/")[2]
    await send(client, BeginAppend(id, "first", (4, COLUMNS), 0, 60.0))
    written, owners = asyncio.Event(), client.service.owners
    apply = owners.apply

    async def watched(change: Any) -> Any:
        outcome = await apply(change)
        if isinstance(change, EndAppend):
            written.set()
        return outcome

    monkeypatch.setattr(owners, "apply", watched)
    waiting = asyncio.create_task(by_json(client, path, np.full((1, COLUMNS), 7)))
    await written.wait()
    assert await extent(client, path) == [5, COLUMNS]
    assert await defined_count(client, path) == 0
    assert (await client("PUT", f"{path}/shape", body)).status == 201
    length = body.get("shape", [9])[0]
    assert (await waiting)["selection"] == f"[{length}:{length + 1},:]"
    rows = await rows_of(client, path)
    assert sorted(Counter(rows[:, 0]).items()) == [(0, length), (7, 1)]


async def test_appends_along_two_dimensions(client: RestClient) -> None:
    path = await create(client, [2, 2], I64, maxdims=["H5S_UNLIMITED"] * 2, layout=sparse(4, 4))

    async def grow(dim: int) -> None:
        for _ in range(5):
            await put(client, path, {"append": 1, "append_dim": dim, "value": 1, "element_count": 1})

    await asyncio.gather(grow(0), grow(1))
    assert await extent(client, path) == [7, 7]
    assert await defined_count(client, path) == 7 * 7 - 2 * 2


async def test_a_store_that_fails_leaves_the_extent_and_no_values() -> None:
    store = FaultyStore(MemoryStore())
    async with value_client(store) as client:
        path = await create(client, [5, COLUMNS], I64, maxdims=UNLIMITED, **LAYOUTS["sparse"])
        id = path.rpartition("/")[2]
        length = chunk_spec(await client.service.owners.record(id)).dims[0]
        rows = np.ones((3 * length, COLUMNS), int)
        store.fail_before("puts", chunk_key(id, (2, 0)), times=10**6)
        assert (await by_json(client, path, rows)).status >= 500
        store.clear()
        assert await extent(client, path) == [5, COLUMNS]
        assert (await client("PUT", f"{path}/shape", {"shape": [4 * length, COLUMNS]})).status == 201
        assert await defined_count(client, path) == 0


async def test_new_chunks_are_not_looked_for(client: RestClient, store: CountingStore) -> None:
    path = await create(client, [0, COLUMNS], I64, maxdims=UNLIMITED, **LAYOUTS["sparse"])
    store.reset()
    for _ in range(3):
        assert (await by_json(client, path, np.ones((7, COLUMNS), int))).status == 200
    assert store.calls["get"] == 0
    assert store.calls["put_if_absent"] > 0


async def test_abandoning_what_is_not_there(client: RestClient, path: str) -> None:
    id = path.rpartition("/")[2]
    before = await client.service.owners.record(id)
    assert await send(client, AbandonAppends(id, "nobody")) == before


async def test_a_structured_write_inside_the_extent(client: RestClient, path: str) -> None:
    """A selection that was encoded for a smaller extent is valid in a larger one."""
    body = encode_region(Points((5, COLUMNS), np.array([[4, 1]], np.uint64)), np.array([9]))
    assert (await client("PUT", f"{path}/shape", {"extend": 3})).status == 201
    await put(client, path, body, sparse=1)
    assert (await rows_of(client, path))[4].tolist() == [0, 9, 0]
    outside = encode_region(Points((99, COLUMNS), np.array([[50, 1]], np.uint64)), np.array([9]))
    assert (await client("PUT", f"{path}/value", outside, sparse=1)).status == 400
    assert (await client("GET", f"{path}/value", accept=BINARY)).status == 200


async def test_an_extent_that_is_expected(client: RestClient, path: str) -> None:
    shrink = {"shape": [2, COLUMNS], "expect": [4, COLUMNS]}
    assert (await client("PUT", f"{path}/shape", shrink)).status == 409
    assert await extent(client, path) == [5, COLUMNS]
    assert (await client("PUT", f"{path}/shape", shrink | {"expect": [5, COLUMNS]})).status == 201
    assert await extent(client, path) == [2, COLUMNS]
    assert (await client("PUT", f"{path}/shape", {"extend": 1, "expect": "all"})).status == 400


async def test_an_append_that_would_be_visible_later_is_refused(client: RestClient, path: str) -> None:
    body = {"append": 1, "value": [1] * COLUMNS}
    await refuses(client("PUT", f"{path}/value", body, flush=0), 400, "visible when it is answered")
    assert await extent(client, path) == [5, COLUMNS]
    await put(client, path, body, flush=1)


async def test_elements_that_an_older_server_kept_in_the_record_are_dropped(
    client: RestClient, path: str
) -> None:
    """They go as the part of an append that died does."""
    id = path.rpartition("/")[2]
    part = {"token": "old", "count": 1, "until": 0.0, "done": False, "size": 4}
    appends = {"dim": 0, "parts": [part], "dropped": {}, "elements": {"old": {"values": "AAAA"}}}
    record = await client.service.owners.record(id)
    await send(client, PutRecord(id, {**record, "appends": appends}))
    assert (await by_json(client, path, np.ones((1, COLUMNS), int))).body == {"selection": "[5:6,:]"}
    record = await client.service.owners.record(id)
    assert record["appends"]["parts"] == []
    assert "elements" not in record["appends"]
