"""Selections that take long, or much memory: made in threads, bounded, and their memory reserved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.errors import Moved
from hsparse.format.selections.select_syntax import MAX_PAIRED_BYTES
from hsparse.sn.http import stream
from hsparse.sn.service import SELECTION_MEMORY
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values import handlers, multi_object_read, request_selection
from hsparse.sn.values.chunk_fanout import ChunkFanout
from tests.sn.conftest import Watch, note_holds
from tests.sn.dataset_kinds import I8, sparse
from tests.sn.value_client import BINARY, create, put
from tests.support.rest_client import RestClient, answered, refuses

MANY = 20_000
HUGE = "[[0,0],[0,0],0:5592406]"
"""Two lists and a slice whose points take more than 128 MiB."""


@pytest.fixture
def settings() -> ServiceSettings:
    return ServiceSettings()


async def test_paired_lists_with_slices_are_refused_by_their_bytes(client: RestClient) -> None:
    path = await create(client, [10, 10, 1 << 40], I8, layout=sparse(1, 1, 1 << 20))
    replies = [
        await client("GET", f"{path}/value", select=HUGE),
        await client("GET", f"{path}/value", select=HUGE, query="_ > 0"),
        await client("POST", f"{path}/value", {"select": [[0, 0], [0, 0], "0:5592406"]}),
        await client("PUT", f"{path}/value", {"value": 1}, select=HUGE),
        await client("PUT", f"{path}/value", {"value": 1}, select=HUGE, query="_ > 0"),
        await client("DELETE", f"{path}/value", select=HUGE),
        await client("GET", f"{path}/defined", select=HUGE),
        await client("GET", f"{path}/chunks", select=HUGE),
        await client("GET", f"{path}/map", select=HUGE),
    ]
    assert [reply.status for reply in replies] == [413] * len(replies)
    assert all("paired" in reply["error"]["message"] for reply in replies)


async def test_memory_of_paired_lists_is_held(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    path = await create(client, [10, 10, 1 << 40], I8)
    budget = client.service.selections
    held = note_holds(budget, monkeypatch)
    for select in ("[[0,0],[0,0],0:1000]", "[[0,0],0:2,0:1000]", "[0:2,0,0:10]"):
        assert (await client("GET", f"{path}/value", select=select)).status == 200
    assert held == [2 * 1000 * 3 * 8]
    assert budget.used == 0


PAIRS = "[[0,1],[0,1],0:1000]"
PAIRS_BYTES = 2 * 1000 * 3 * 8


@pytest.fixture
def held(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Record how many bytes of points are held where selections are made, and where chunks are written and read."""
    seen: list[tuple[str, int]] = []
    budget = client.service.selections

    def record(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            seen.append((name, budget.used))
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, recorded)

    record(request_selection, "select_selection")
    record(multi_object_read, "select_selection")
    record(ChunkFanout, "write")
    record(ChunkFanout, "read_within")
    return seen


@pytest.mark.parametrize("form", ["bytes", "json"])
@pytest.mark.parametrize("append", [{}, {"append": 1000, "append_dim": 2}], ids=["in place", "append"])
async def test_points_are_held_while_they_are_written(
    client: RestClient, held: list[tuple[str, int]], append: dict[str, int], form: str
) -> None:
    path = await create(client, [10, 10, 1000], I8, maxdims=[10, 10, 0])
    if form == "bytes":
        query = {"select": PAIRS, "element_count": 1, **append}
        reply = await client("PUT", f"{path}/value", b"\x07", headers={"Content-Type": BINARY}, **query)
    else:
        reply = await client("PUT", f"{path}/value", {"select": PAIRS, "value": 7, **append})
    assert reply.status == 200, reply.body
    assert held == [("select_selection", PAIRS_BYTES), ("write", PAIRS_BYTES)]
    assert client.service.selections.used == 0
    held.clear()
    await put(client, path, {"select": "[0:2,0,0]", "value": 7})
    assert held == [("select_selection", 0), ("write", 0)]


async def test_points_of_many_datasets_are_held_while_they_are_read(
    client: RestClient, held: list[tuple[str, int]]
) -> None:
    path = await create(client, [10, 10, 1000], I8)
    ids = [path.rsplit("/", 1)[1]]
    reads = [{"ids": ids * 2, "select": PAIRS}, {"ids": ids, "select": PAIRS + " "}]
    await answered(client("POST", "/datasets/values", {"reads": reads}, accept=BINARY))
    assert held == [("select_selection", 2 * PAIRS_BYTES)] * 2 + [("read_within", 2 * PAIRS_BYTES)] * 3
    assert client.service.selections.used == 0


async def test_points_of_a_stale_plan_are_held_again(
    client: RestClient, held: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await create(client, [10, 10, 1000], I8)
    pages, stale = ChunkFanout.pages, iter([True, True])

    async def read(self: ChunkFanout, *args: Any) -> AsyncIterator[Any]:
        if next(stale, False):
            raise Moved("The extent was changed.")
        async for page in pages(self, *args):
            yield page

    monkeypatch.setattr(ChunkFanout, "pages", read)
    reads = [{"ids": [path.rsplit("/", 1)[1]], "select": PAIRS}]
    await answered(client("POST", "/datasets/values", {"reads": reads}, accept=BINARY))
    again = ("select_selection", 2 * PAIRS_BYTES)
    assert held == [("select_selection", PAIRS_BYTES), again, again, ("read_within", 2 * PAIRS_BYTES)]
    assert client.service.selections.used == 0


async def test_paired_lists_of_others_keep_nobody_waiting(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await create(client, [10, 10, 1 << 40], I8)
    budget, asked = client.service.selections, asyncio.Event()
    hold = budget.hold
    async with budget.hold(MAX_PAIRED_BYTES):
        assert (await client("GET", f"{path}/value", select="[[0,0],[0,0],0:10]")).status == 200
        async with budget.hold(SELECTION_MEMORY - MAX_PAIRED_BYTES):
            monkeypatch.setattr(budget, "hold", lambda nbytes: (asked.set(), hold(nbytes))[1])
            waiting = asyncio.create_task(client("GET", f"{path}/value", select="[[0,0],[0,0],0:10]"))
            await asked.wait()
            assert budget.is_waited_for
            assert (await client("GET", f"{path}/value", select="[0:2,0,0:10]")).status == 200
            assert budget.is_waited_for
        assert (await waiting).status == 200


async def test_who_holds_points_is_hurried_while_others_wait_for_them(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await create(client, [10, 10, 1 << 40], I8)
    hurried: list[object] = []
    send = stream._send

    async def recorded(response: Any, piece: Any, budgets: Sequence[MemoryBudget]) -> None:
        hurried.extend(budgets)
        await send(response, piece, budgets)

    monkeypatch.setattr(stream, "_send", recorded)
    found = [
        await client("GET", f"{path}/value", accept=BINARY, select=select)
        for select in ("[0,0,0:2000000]", "[[0,0],[0,0],0:1000000]")
    ]
    assert [len(reply.body) for reply in found] == [2_000_000] * 2
    answers, selections = client.service.answers, client.service.selections
    assert hurried[0] is answers
    assert hurried[-1] is selections
    assert set(map(id, hurried)) == {id(answers), id(selections)}


async def test_all_buckets_have_one_memory(client: RestClient) -> None:
    settings = replace(client.service.settings, other_buckets=("other",))
    client.service.settings = settings
    assert client.service.of_bucket("other").selections is client.service.selections


async def test_reads_of_many_datasets_have_points_of_bounded_bytes_together(client: RestClient) -> None:
    path = await create(client, [10, 10, 1 << 40], I8)
    id, select = path.rsplit("/", 1)[1], "[[0,0],[0,0],0:200000]"
    reads = [{"ids": [id], "select": select + " " * number} for number in range(14)]
    await refuses(client("POST", "/datasets/values", {"reads": reads}), 413, "paired")
    assert (await client("POST", "/datasets/values", {"reads": reads[:1]}, accept=BINARY)).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {"select": [list(range(MANY)), 0]},
        {"select": f"[[{','.join(map(str, range(MANY)))}],0]"},
        {"points": [[n, 0] for n in range(MANY)]},
        {"selection": {"class": "H5S_SEL_POINTS", "coordinates": [[n, 0] for n in range(MANY)]}},
        {
            "selection": {
                "class": "H5S_SEL_HYPERSLABS",
                "coordinates": [[[n, 0], [n, 0]] for n in range(MANY)],
            }
        },
    ],
    ids=["list", "string", "points", "coordinates", "boxes"],
)
async def test_long_selections_are_made_in_a_thread(
    client: RestClient, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await create(client, [MANY, 2], I8, layout=sparse(MANY, 2))
    on_loop: list[bool] = []

    def recorded(given: Any) -> Any:
        resolve = resolver(given)

        def record(extent: tuple[int, ...]) -> Any:
            on_loop.append(threading.current_thread() is threading.main_thread())
            return resolve(extent)

        return record

    resolver = handlers.body_resolve
    monkeypatch.setattr(handlers, "body_resolve", recorded)
    monkeypatch.setattr("hsparse.sn.values.media.json.body_resolve", recorded)
    assert (await client("POST", f"{path}/defined", body, count_only=1))["count"] == 0
    assert (await client("POST", f"{path}/erase", body)).status == 200
    wanted = {"points", "select"} & set(body)
    if wanted:
        assert (await client("POST", f"{path}/value", body, accept="application/json")).status == 200
    assert on_loop == [False] * (2 + len(wanted))


async def test_long_selections_of_many_datasets_are_made_in_a_thread(
    client: RestClient, watch: Watch
) -> None:
    path = await create(client, [MANY], I8)
    on_loop = watch(multi_object_read, "select_selection")
    ids = [path.rsplit("/", 1)[1]]
    reads = [{"ids": ids, "select": [list(range(MANY))]}, {"ids": ids, "select": "[0:2]"}]
    assert (await client("POST", "/datasets/values", {"reads": reads}, accept=BINARY)).status == 200
    assert on_loop == [False, False]


async def test_long_selections_of_reductions_are_made_in_a_thread(client: RestClient, watch: Watch) -> None:
    path = await create(client, [MANY], I8)
    on_loop = watch(request_selection, "parse_select")
    reply = await client("POST", f"{path}/reduce", {"op": "count", "select": [list(range(MANY))]})
    assert reply["value"] == {"count": MANY}
    assert on_loop == [False]
