"""Plans: when they are compared with the domain, and how many are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hsparse.hdf5.format.plan.file_form import STOCK, STRUCTURED
from hsparse.hdf5.virtual_file import file_plans, sized_chunks
from hsparse.hdf5.virtual_file.domain_state import DomainState, read_domain_state
from hsparse.hdf5.virtual_file.file_plans import VALID_SECONDS, FilePlans
from hsparse.sn.data_nodes.owners import Owners
from tests.sn.file_domain import INT, TEXT, WORDS, place
from tests.sn.value_client import SETTINGS, value_client
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The roots of domains that were looked at."""
    found: list[str] = []

    async def look(owners: Owners, root: str, *rest: Any) -> DomainState:
        found.append(root)
        return await read_domain_state(owners, root, *rest)

    monkeypatch.setattr(file_plans, "read_domain_state", look)
    return found


def plans(client: RestClient, clock: ManualClock) -> FilePlans:
    return FilePlans(client.service.owners, clock, SETTINGS, client.service.answers)


async def test_a_plan_is_good_for_a_while(client: RestClient, looks: list[str]) -> None:
    id = await place(client, "/d", INT, [4], [1, 2, 3, 4])
    root = (await client("GET", "/"))["root"]
    clock = ManualClock()
    some = plans(client, clock)
    first = await some.current(root, STOCK, check=False)
    assert await some.current(root, STOCK, check=False) is first
    assert len(looks) == 1
    assert await some.current(root, STOCK, check=True) is first, "the domain is as it was"
    await client("PUT", f"/datasets/{id}/value", {"value": [4, 3, 2, 1]})
    assert await some.current(root, STOCK, check=False) is first
    clock.time += VALID_SECONDS + 1
    second = await some.current(root, STOCK, check=False)
    assert second.etag != first.etag
    assert len(looks) == 3
    some.drop(root, STOCK, first.etag)
    assert await some.current(root, STOCK, check=False) is second
    some.drop(root, STOCK, second.etag)
    assert (await some.current(root, STOCK, check=False)).etag == second.etag
    assert len(looks) == 4


async def test_many_who_ask_wait_for_one_plan(client: RestClient, looks: list[str]) -> None:
    await place(client, "/d", INT, [4], [1, 2, 3, 4])
    root = (await client("GET", "/"))["root"]
    some = plans(client, ManualClock())
    found = await asyncio.gather(*(some.current(root, STOCK, check=False) for _ in range(20)))
    assert len({id(one) for one in found}) == 1
    assert looks == [root]


async def test_the_oldest_plans_go_first(
    client: RestClient, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await place(client, "/d", INT, [4], [1, 2, 3, 4])
    root = (await client("GET", "/"))["root"]
    some = plans(client, ManualClock())
    await some.current(root, STOCK, check=False)
    await some.current(root, STRUCTURED, check=False)
    await some.current(root, STOCK, check=False)
    assert len(looks) == 2
    monkeypatch.setattr(some._cached, "limit", 1)
    some.drop(root, STRUCTURED, (await some.current(root, STRUCTURED, check=False)).etag)
    await some.current(root, STRUCTURED, check=False)
    await some.current(root, STOCK, check=False)
    assert len(looks) == 4, "only the last one was kept"


async def test_a_chunk_that_changes_while_it_is_measured(
    client: RestClient, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await place(client, "/words", TEXT, [40], WORDS)
    root = (await client("GET", "/"))["root"]
    changes = [["other"] * 40, ["third"] * 40]

    read_planned = sized_chunks.read_planned

    async def read(*arguments: object) -> memoryview:
        if changes:
            await client("PUT", f"/datasets/{id}/value", {"value": changes.pop()})
        return await read_planned(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sized_chunks, "read_planned", read)
    file = await plans(client, ManualClock()).current(root, STOCK, check=False)
    assert not changes
    assert len(looks) > 1
    assert file.plan.regions
