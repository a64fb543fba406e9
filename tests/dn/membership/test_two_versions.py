"""Members of two versions of the messages: they settle, serve the same objects, and say what they cannot say."""

from __future__ import annotations

import asyncio
import json

import pytest

from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership_object import KEY
from hsparse.errors import BadRequest, Outdated
from hsparse.sn.data_nodes.owners import Owners
from hsparse.wire.contract import CONTRACT, VERSION, Contract
from hsparse.wire.record_message import CreateObject, PutAttributes
from tests.support.cluster import Cluster, cluster
from tests.support.newer_contract import NEXT, NEXT_CONTRACT, CountObjects

IDS = [f"g-{number:08x}-00000000-0000-000000-000000" for number in range(12)]


async def write(owners: Owners, number: int) -> None:
    value = {"type": "H5T_STD_I64LE", "shape": {"class": "H5S_SCALAR"}, "value": number}
    for outcome in await owners.change(*(PutAttributes(id, {"a": value}, replace=True) for id in IDS)):
        outcome.unwrap()


async def read(owners: Owners) -> set[int]:
    return {one.unwrap()["attributes"]["a"]["value"] for one in await owners.read(*IDS)}


async def test_an_upgrade_and_a_rollback_node_by_node() -> None:
    async with cluster(2) as (made, urls):
        older, newer = made.owners("older"), made.owners("newer", NEXT_CONTRACT)
        for outcome in await older.change(*(CreateObject(id, {"id": id}) for id in IDS)):
            outcome.unwrap()
        numbers = iter(range(100))
        for contract in (NEXT_CONTRACT, NEXT_CONTRACT, CONTRACT, CONTRACT):
            urls.append(await made.start(contract))
            await made.leave(urls.pop(0))
            await made.in_force(*urls)
            for writer, reader in ((older, newer), (newer, older)):
                number = next(numbers)
                await write(writer, number)
                assert await read(reader) == await read(writer) == {number}
        view = made.members[urls[0]].membership
        assert [view.versions[id] for id in view.nodes] == [VERSION] * 2


async def test_a_newer_node_that_is_killed_is_replaced_by_an_older_one_at_its_address() -> None:
    async with cluster(1) as (made, urls):
        newer = await made.start(NEXT_CONTRACT)
        owners = made.owners("sn", NEXT_CONTRACT)
        for outcome in await owners.change(*(CreateObject(id, {"id": id}) for id in IDS)):
            outcome.unwrap()
        await write(owners, 1)
        made.kill(newer)
        made.contracts[newer] = CONTRACT
        made.members[newer] = member = made.make(newer)
        joining = asyncio.create_task(member.join(newer))
        assert await read(owners) == {1}
        await write(owners, 2)
        await joining
        await made.in_force(*urls, newer)
        assert await read(owners) == {2}
        assert set(member.membership.versions.values()) == {VERSION}


async def test_what_is_new_is_read_from_any_node_that_has_it_and_refused_at_once_where_none_has() -> None:
    async with cluster(2) as (made, _):
        owners = made.owners("sn", NEXT_CONTRACT)
        with pytest.raises(Outdated, match=f"version {NEXT} .* version {VERSION}: finish the upgrade"):
            await owners.ask_owner("g-1", CountObjects("g-1"))
        with pytest.raises(Outdated):
            await owners.ask_any(CountObjects("g-1"))
        await made.start(NEXT_CONTRACT)
        for asked in (owners.ask_owner("g-1", CountObjects("g-1")), owners.ask_any(CountObjects("g-1"))):
            with pytest.raises(BadRequest, match="CountObjects is not a message of a data node"):
                await asked


async def test_a_service_node_notices_that_the_upgrade_is_finished() -> None:
    """Also if it asks nothing else, which would tell it that there are other members."""
    async with cluster(2) as (made, urls):
        owners = made.owners("sn", NEXT_CONTRACT)
        with pytest.raises(Outdated):
            await owners.ask_owner("g-1", CountObjects("g-1"))
        for url in list(urls):
            await made.start(NEXT_CONTRACT)
            await made.leave(url)
        with pytest.raises(BadRequest, match="CountObjects is not a message of a data node"):
            await owners.ask_owner("g-1", CountObjects("g-1"))


async def test_a_member_that_tells_no_version_understands_the_first() -> None:
    """It joined by an hsparse that knew of no versions; that keeps what others tell."""
    async with cluster(1) as (made, urls):
        form = json.loads((await made.store.get(KEY)).data)
        for member in form["members"].values():
            del member["version"], member["oldest"]
        await made.store.put(KEY, json.dumps(form).encode())
        urls.append(await made.start(NEXT_CONTRACT))
        await made.in_force(*urls)
        assert sorted(made.members[urls[0]].membership.versions.values()) == [1, NEXT]


async def test_a_node_without_a_common_version_does_not_join() -> None:
    async with cluster(1) as (made, urls):
        later = made.contracts["http://later"] = Contract(3, NEXT_CONTRACT.kinds.values(), {}, oldest=2)
        member = made.make("http://later")
        made.members["http://later"] = member
        before = made.members[urls[0]].membership
        with pytest.raises(
            Outdated, match=f"1 to {VERSION} of the messages, this hsparse 2 to {later.version}"
        ):
            await member.join("http://later")
        assert made.members[urls[0]].membership == before
        assert await LeaseObjects(made.store).nodes() == list(before.nodes), "it leaves nothing behind"


async def test_a_member_that_finds_that_it_has_none_ends() -> None:
    """As when somebody has written the list: nothing is tried for ever."""
    made = Cluster(contracts={"http://later": Contract(3, NEXT_CONTRACT.kinds.values(), {}, oldest=2)})
    later = made.members["http://later"] = made.make("http://later")
    await later.join("http://later")
    form = json.loads((await made.store.get(KEY)).data)
    form["members"][later.id]["oldest"] = 1
    await made.store.put(KEY, json.dumps(form).encode())
    older = made.members["http://older"] = made.make("http://older")
    await older.join("http://older")
    async with asyncio.timeout(20):
        await older.defect.wait()
    for member in made.members.values():
        await member.close()
