"""Members of a cluster join, own, are evicted, come back and leave: nothing is lost, and no read is stale."""

from __future__ import annotations

import asyncio
import logging

import pytest

from hsparse.clock import SystemClock
from hsparse.cluster.lease_object import LeaseObjects, lease_key
from hsparse.cluster.membership_object import KEY, MembershipObject
from hsparse.dn.membership import peers as module
from hsparse.dn.membership.lease_keeper import LeaseKeeper
from hsparse.dn.membership.member_node import MemberNode
from hsparse.dn.membership.peers import Witnesses
from hsparse.errors import ErrorKind, Misconfigured, Misdirected, StoreFailed, Unanswered
from hsparse.sn.data_nodes import cluster_nodes
from hsparse.sn.data_nodes.owners import Owners
from hsparse.wire.message import AdoptMembership, CheckMember, Routed
from hsparse.wire.record_message import (
    ChangeObjects,
    CreateObject,
    DeleteObject,
    PutAcl,
    PutAttributes,
    ReadObjects,
)
from tests.support.cluster import LEASE, TOKEN, Cluster, cluster
from tests.testing.faulty_store import CrashPoint, FaultyStore
from tests.testing.memory_store import MemoryStore

IDS = [f"g-{number:08x}-00000000-0000-0000-0000-000000000000" for number in range(24)]


def value(number: int) -> dict[str, object]:
    return {"type": "H5T_STD_I64LE", "shape": {"class": "H5S_SCALAR"}, "value": number}


async def create(owners: Owners) -> None:
    for outcome in await owners.change(*(CreateObject(id, {"id": id}) for id in IDS)):
        outcome.unwrap()


async def write(owners: Owners, number: int, *ids: str) -> None:
    changes = [PutAttributes(id, {"a": value(number)}, replace=True) for id in ids or IDS]
    for outcome in await owners.change(*changes):
        outcome.unwrap()


async def read(owners: Owners, *ids: str) -> set[int]:
    return {one.unwrap()["attributes"]["a"]["value"] for one in await owners.read(*(ids or IDS))}


async def filled(made: Cluster, number: int | None = None) -> Owners:
    """Create the objects, with a number if one is given, by a new service node."""
    owners = made.owners()
    await create(owners)
    if number is not None:
        await write(owners, number)
    return owners


async def test_members_find_each_other_in_the_store() -> None:
    async with cluster(3) as (made, urls):
        views = [made.members[url].membership for url in urls]
        assert (len({view.epoch for view in views}), set(views[0].urls.values())) == (1, set(urls))
        owners = await filled(made, 1)
        assert await read(owners) == {1}
        assert {views[0].owner(id) for id in IDS} == set(views[0].nodes)


async def test_a_member_that_is_killed_costs_no_request() -> None:
    async with cluster(3) as (made, urls):
        owners = await filled(made, 1)
        made.kill(urls[1])
        assert await read(owners) == {1}, "another one reads for it at once"
        await write(owners, 2)
        assert await read(owners) == {2}
        assert len(made.members[urls[0]].membership.nodes) == 2


async def test_the_last_member_is_replaced_by_a_new_one() -> None:
    async with cluster(1) as (made, urls):
        owners = await filled(made)
        made.kill(urls[0])
        writing = asyncio.create_task(write(owners, 7))
        await made.start()
        await writing
        assert await read(owners) == {7}


async def test_a_service_node_waits_for_the_first_member() -> None:
    made = Cluster()
    owners = made.owners()
    creating = asyncio.create_task(create(owners))
    url = await made.start()
    await creating
    await made.members[url].close()


async def test_no_read_is_stale_while_members_come_and_go() -> None:
    """Service nodes learn of a new membership at different times; each sees what any of them wrote."""
    async with cluster(2) as (made, urls):
        nodes = [made.owners(f"sn-{number}") for number in range(3)]
        await create(nodes[0])
        for number, step in enumerate(["", "start", "", "kill", "", "leave", "start", ""]):
            if step == "start":
                urls.append(await made.start())
            elif step == "kill":
                made.kill(urls.pop(0))
            elif step == "leave":
                await made.leave(urls.pop(0))
            await write(nodes[number % 3], number)
            assert [await read(one) for one in nodes] == [{number}] * 3


async def test_planned_change_fails_nothing() -> None:
    async with cluster(2) as (made, urls):
        owners = await filled(made)
        numbers = iter(range(1000))
        stop = asyncio.Event()

        async def work() -> None:
            while not stop.is_set():
                await write(owners, next(numbers), *IDS[:6])
                await read(owners, *IDS[:6])

        working = asyncio.create_task(work())
        third = await made.start()
        for url in (urls[0], third):
            await made.leave(url)
        stop.set()
        await working


async def test_a_service_node_that_cannot_reach_the_owner_is_passed_on() -> None:
    async with cluster(2) as (made, urls):
        owners = await filled(made)
        before = made.members[urls[0]].membership.epoch
        made.cut = {("sn", urls[0])}
        await write(owners, 3)
        assert await read(owners) == {3}
        assert made.members[urls[0]].membership.epoch == before, "nobody is evicted"


async def test_a_member_that_only_the_store_reaches_is_evicted() -> None:
    async with cluster(3) as (made, urls):
        owners, other = made.owners(), made.owners("other")
        await create(owners)
        await write(owners, 1)
        lonely = urls[2]
        made.cut = {(sender, lonely) for sender in ("sn", *urls)} | {(lonely, url) for url in urls}
        await write(owners, 2)
        # The other service node still reaches it, and would be answered from its cache.
        assert await read(other) == {2}
        made.cut = set()
        await made.in_force(*urls)
        await write(other, 3)
        assert await read(owners) == {3}


async def test_an_evicted_member_that_has_slept_answers_nothing_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after SIGSTOP: its lease has run out meanwhile, and it finds that it was replaced."""
    async with cluster(3) as (made, urls):
        owners = await filled(made, 1)
        sleeper, url = made.members[urls[0]], urls[0]
        epoch, id = sleeper.membership.epoch, sleeper.id
        made.members.pop(url)
        await write(owners, 2)
        mine = next(id for id in IDS if sleeper.membership.owner(id) == sleeper.id)
        made.members[url] = sleeper
        for message in (
            Routed(id, epoch, ReadObjects((mine,))),
            Routed(id, epoch, ChangeObjects((PutAttributes(mine, {"a": value(0)}, replace=True),))),
        ):
            try:
                reply = await sleeper.send(message)
            except (Misdirected, Unanswered):
                continue
            assert reply[0].unwrap()["attributes"]["a"]["value"] == 2
        await write(owners, 3)
        assert await read(owners) == {3}


async def test_a_lease_that_is_not_renewed_in_time_makes_reads_look_at_the_store() -> None:
    store = FaultyStore(MemoryStore())
    made = Cluster(store)
    url = await made.start()
    owners = await filled(made, 1)
    member = made.members[url]
    renewal = store.hang("put_if_match", lease_key(member.id))
    await renewal.entered.wait()
    await asyncio.sleep(LEASE)  # that is what it is about: the lease runs out
    assert not member.in_force
    assert await read(owners) == {1}
    writing = asyncio.create_task(write(owners, 2))
    renewal.release()
    await writing
    assert await read(owners) == {2}
    await member.close()


async def test_messages_of_another_epoch_or_for_another_member_are_refused() -> None:
    async with cluster(1) as (made, urls):
        member = made.members[urls[0]]
        epoch = member.membership.epoch
        for message in (
            Routed(member.id, epoch - 1, ReadObjects(())),
            Routed(member.id, epoch + 1, ReadObjects(())),
            Routed("dn-other", epoch, ReadObjects(())),
            CheckMember(epoch, "dn-other"),
        ):
            with pytest.raises(Misdirected):
                await member.send(message)
        with pytest.raises(Unanswered):
            await member.send(AdoptMembership("dn-other", epoch))


async def test_a_node_with_another_token_never_joins() -> None:
    async with cluster(1) as (made, _):
        stranger = made.make("http://stranger", token="guess")
        with pytest.raises(Misconfigured, match="HSPARSE_NODE_TOKEN"):
            await stranger.join("http://stranger")
        view = await MembershipObject(made.store, TOKEN).read()
        assert "http://stranger" not in view.urls.values()
        await stranger.close()


async def test_what_was_carried_out_before_its_reply_was_lost_is_a_success_again() -> None:
    async with cluster(1) as (made, urls):
        member = made.members[urls[0]]
        record = {"id": IDS[0]}
        create, delete = CreateObject(IDS[0], record), DeleteObject(IDS[0])

        async def send(message: ChangeObjects) -> ErrorKind | None:
            [outcome] = await member.send(Routed(member.id, member.membership.epoch, message))
            return outcome.failure and ErrorKind(outcome.failure.kind)

        first = ChangeObjects((create,))
        assert await send(first) is None
        assert await send(first) is ErrorKind.CONFLICT
        assert await send(first.as_repeated()) is None
        assert (
            await send(ChangeObjects((CreateObject(IDS[0], {"id": "x"}),)).as_repeated())
            is ErrorKind.CONFLICT
        )
        acl = ChangeObjects((PutAcl(IDS[0], "me", {"read": True}, "b/x", {"root": None}, {"me": None}),))
        assert await send(acl) is None
        assert await send(acl) is ErrorKind.CONFLICT
        assert await send(acl.as_repeated()) is None
        assert await send(ChangeObjects((delete,))) is None
        assert await send(ChangeObjects((delete,)).as_repeated()) is None
        assert await send(ChangeObjects((delete,))) is ErrorKind.GONE


async def test_an_adopted_membership_is_answered_when_earlier_changes_have_ended() -> None:
    store = FaultyStore(MemoryStore())
    made = Cluster(store)
    url = await made.start()
    member = made.members[url]
    epoch = member.membership.epoch
    hanging = store.hang("put_if_absent", applied=True)
    message = Routed(member.id, epoch, ChangeObjects((CreateObject(IDS[0], {"id": IDS[0]}),)))
    changing = asyncio.create_task(member.send(message))
    await hanging.entered.wait()
    joined = store.hang("put_if_match", KEY, applied=True)
    second = await joined.holding(made.start())
    assert await member.send(AdoptMembership(member.id, epoch + 1)) == 0, "the change of before is running"
    joined.release()
    hanging.release()
    [outcome] = await changing
    assert outcome.failure is None, "no other node was in force meanwhile"
    await made.in_force(await second)
    for one in made.members.values():
        await one.close()


async def test_a_defect_ends_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose lease nobody keeps any more would own nothing for ever."""

    async def keep(self: LeaseKeeper, regained: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(LeaseKeeper, "keep", keep)
    async with cluster(1) as (made, urls):
        async with asyncio.timeout(10):
            await made.members[urls[0]].defect.wait()


def test_ids_are_new_at_each_start() -> None:
    assert Cluster().make("http://a").id == "", "it has none before it joins"
    assert SystemClock().token(4) != SystemClock().token(4)


async def test_a_membership_is_settled_though_another_member_could_not_read_it_at_first() -> None:
    async with cluster(1) as (made, urls):
        failing = CrashPoint(0, applied=False, fatal=False, methods=("get",))
        made.stores[urls[0]].arm(failing)
        await made.in_force(await made.start(), *urls)
        assert made.stores[urls[0]]._crash_point is None, "it met the fault"


async def test_the_only_member_is_asked_again_after_it_did_not_answer() -> None:
    async with cluster(1) as (made, urls):
        owners = await filled(made)
        made.cut.add(("sn", urls[0]))
        writing = asyncio.create_task(write(owners, 3))
        await asyncio.wait({writing}, timeout=0.1)
        assert not writing.done()
        made.cut.clear()
        await writing
        assert await read(owners) == {3}


async def test_a_service_node_finds_who_joined_when_the_only_member_that_it_knows_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_nodes, "CHECK_AFTER", 0.4)
    async with cluster(1) as (made, urls):
        owners = await filled(made, 1)
        second = await made.start()
        made.hung = {(sender, urls[0]) for sender in ("sn", second)} | {(urls[0], second)}
        assert await read(owners) == {1}
        await write(owners, 2)
        assert await read(owners) == {2}
        made.hung = set()


async def test_a_member_that_died_while_it_left_alone_is_evicted() -> None:
    async with cluster(1) as (made, urls):
        await MembershipObject(made.store, TOKEN).leave(made.members[urls[0]].id)
        made.kill(urls[0])
        url = await made.start()
        assert (await MembershipObject(made.store, TOKEN).read()).members == (made.members[url].id,)


async def test_who_could_not_join_leaves_no_lease() -> None:
    async with cluster(1) as (made, urls):
        store = made.store = FaultyStore(made.store)
        newcomer = made.members["http://new"] = made.make("http://new")
        store.fail_before("put_if_match", KEY)
        with pytest.raises(StoreFailed):
            await newcomer.join("http://new")
        assert await LeaseObjects(store).nodes() == [made.members[urls[0]].id]
        await newcomer.join("http://new")
        await made.in_force("http://new", *urls)


def parted(made: Cluster, urls: list[str]) -> tuple[MemberNode, MemberNode]:
    """Cut two members off from each other; return them in the order of their ids."""
    made.cut |= {(urls[0], urls[1]), (urls[1], urls[0])}
    first, second = sorted((made.members[url] for url in urls), key=lambda member: member.id)
    return first, second


async def ask(asked: MemberNode, about: MemberNode) -> bool:
    """Ask a member as a witness does."""
    return await asked.send(CheckMember(asked.membership.epoch, about.id))


async def nodes(made: Cluster) -> tuple[str, ...]:
    return (await MembershipObject(made.store, TOKEN).read()).nodes


async def test_of_two_halves_none_evicts_the_other_by_itself() -> None:
    async with cluster(2) as (made, urls):
        first, second = parted(made, urls)
        for one, other in ((first, second), (second, first)):
            with pytest.raises(Unanswered):
                await one._adopted.is_alive(other.id)
        assert set(await nodes(made)) == {first.id, second.id}


@pytest.mark.parametrize("chosen", [0, 1])
async def test_of_two_halves_the_one_evicts_that_a_witness_asks(chosen: int) -> None:
    async with cluster(2) as (made, urls):
        pair = parted(made, urls)
        kept, other = pair[chosen], pair[1 - chosen]
        gone = other.id
        alone = asyncio.create_task(kept._adopted.is_alive(gone))
        await asyncio.sleep(0)
        assert not await ask(kept, other), "it does not wait for what it would find out without a witness"
        await asyncio.gather(alone, return_exceptions=True)
        assert gone not in await nodes(made)
        made.cut = set()
        await made.in_force(*urls)


async def test_two_halves_with_witnesses_do_not_evict_each_other() -> None:
    async with cluster(2) as (made, urls):
        first, second = parted(made, urls)
        await asyncio.gather(ask(first, second), ask(second, first), return_exceptions=True)
        assert len(await nodes(made)) == 1
        made.cut = set()
        await made.in_force(*urls)
        assert len(await nodes(made)) == 2


async def test_a_member_whose_lease_was_revoked_evicts_nobody() -> None:
    async with cluster(2) as (made, urls):
        first, second = parted(made, urls)
        leases = LeaseObjects(made.store)
        while (await leases.read(first.id)).state != "revoked":
            await leases.revoke(first.id, await leases.read(first.id))
        with pytest.raises(Unanswered):
            await ask(first, second)
        assert second.id in await nodes(made)


async def test_a_member_that_was_evicted_meanwhile_evicts_nobody() -> None:
    async with cluster(2) as (made, urls):
        first, second = parted(made, urls)
        leases = LeaseObjects(made.store)
        evicting = asyncio.create_task(ask(first, second))
        async with asyncio.timeout(20):
            while (await leases.read(second.id)).state != "revoked":  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
        while (await leases.read(first.id)).state != "evicted":
            await leases.evict(first.id, await leases.read(first.id))
        with pytest.raises(Unanswered):
            await evicting
        assert second.id in await nodes(made)


async def test_of_three_members_the_one_that_two_do_not_reach_goes() -> None:
    async with cluster(3) as (made, urls):
        lonely = made.members[urls[2]]
        made.cut = {pair for url in urls[:2] for pair in ((url, urls[2]), (urls[2], url))}
        with pytest.raises(Unanswered):
            await ask(lonely, made.members[urls[0]])
        gone = lonely.id
        assert not await ask(made.members[urls[0]], lonely)
        assert gone not in await nodes(made)


def members(made: Cluster, url: str) -> set[str]:
    """Return the URLs of the members as one of them knows them."""
    return set(made.members[url].membership.urls.values())


async def test_a_node_whose_own_link_is_broken_evicts_nobody() -> None:
    async with cluster(2) as (made, urls):
        newcomer = made.members["http://new"] = made.make("http://new")
        made.cut = {("http://new", urls[0])}
        with pytest.raises(Unanswered, match="is alive"):
            await newcomer.join("http://new")
        assert members(made, urls[1]) == set(urls)
        made.cut = set()
        await newcomer.join("http://new")
        await made.in_force("http://new", *urls)
        assert members(made, urls[0]) == {"http://new", *urls}


async def test_a_node_that_reaches_nobody_evicts_nobody_who_renews_a_lease() -> None:
    async with cluster(2) as (made, urls):
        newcomer = made.members["http://new"] = made.make("http://new")
        made.cut = {("http://new", url) for url in urls}
        with pytest.raises(Unanswered, match="is alive"):
            await newcomer.join("http://new")
        assert members(made, urls[0]) == members(made, urls[1]) == set(urls)


async def test_a_dead_member_is_evicted_by_one_that_answers(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(2) as (made, urls):
        dead = made.kill(urls[0]).id
        with caplog.at_level(logging.WARNING):
            started = await made.start()
        assert members(made, started) == {urls[1], started}
        evicted = f"{made.members[urls[1]].id} evicted {dead}"
        assert any(record.getMessage().startswith(evicted) for record in caplog.records)


async def test_of_two_members_that_do_not_reach_each_other_a_newcomer_chooses() -> None:
    async with cluster(2) as (made, urls):
        made.cut = {(urls[0], urls[1]), (urls[1], urls[0]), ("http://new", urls[0])}
        newcomer = made.members["http://new"] = made.make("http://new")
        await newcomer.join("http://new")
        assert members(made, "http://new") == {urls[1], "http://new"}


async def test_a_node_with_another_token_evicts_nobody() -> None:
    async with cluster(3) as (made, urls):
        before = {url: made.members[url].id for url in urls}
        newcomer = made.members["http://new"] = made.make("http://new", "another")
        with pytest.raises(Misconfigured, match="token"):
            await newcomer.join("http://new")
        assert {url: made.members[url].id for url in urls} == before
        assert all(made.members[url].in_force for url in urls)
        leases = LeaseObjects(made.store)
        assert {(await leases.read(id)).state for id in before.values()} == {"held"}


async def test_who_has_just_asked_is_a_witness_about_that_member_alone() -> None:
    witnesses = Witnesses()
    await witnesses.note("a")
    assert await witnesses.ask_about("a", 0.01)
    assert not await witnesses.ask_about("b", 0.01)


async def test_who_asked_before_has_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUESTION_SECONDS", -1.0)
    witnesses = Witnesses()
    await witnesses.note("a")
    assert not await witnesses.ask_about("a", 0.01)
    monkeypatch.undo()
    asking = asyncio.create_task(witnesses.ask_about("a", 20.0))
    await asyncio.sleep(0)
    await witnesses.note("b")
    await witnesses.note("a")
    assert await asking
