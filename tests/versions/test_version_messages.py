"""Requests about snapshots at the same moment, twice, late, beside writes, or when their node is none any more."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hsparse.cli.data_node import extended
from hsparse.clock import SystemClock
from hsparse.cluster.membership import rendezvous_owner
from hsparse.cluster.membership_object import KEY
from hsparse.config import load_settings
from hsparse.dn.deletions import Deletions
from hsparse.dn.membership.member_ownership import MemberOwnership
from hsparse.dn.membership.ownership import Ownership
from hsparse.errors import Conflict, Gone, NotFound, StoreFailed, Unanswered
from hsparse.model.ids import chunk_of_key, new_id, new_root_id, storage_key
from hsparse.storage.object_store import ObjectStore
from hsparse.versions import versioned_store
from hsparse.versions.version_note import read_note
from hsparse.versions.wrapping import with_versions
from hsparse.wire.record_message import AskStore
from tests.simulation.clients import dataset_record, group_record
from tests.simulation.simulated_cluster import CALM, SimulatedCluster
from tests.simulation.simulated_network import STORE, SimulatedStore
from tests.simulation.simulation import Shared
from tests.simulation.version_clients import PATH
from tests.simulation.virtual_loop import Process, VirtualClock, VirtualLoop
from tests.support.cluster import Cluster
from tests.support.endurance import repeats
from tests.support.restartable_node import Doubtful
from tests.testing.store_wrapper import StoreWrapper
from tests.versions.conftest import DENSE, DOMAIN, SPARSE, Versioned

AT_1 = f"{DOMAIN}@1"


async def prepared(past: Versioned, layout: dict[str, Any] = DENSE) -> tuple[str, str]:
    """Make a dataset of 30 elements in three chunks; return its id, and that of the root group."""
    id = await past.create("kept", 30, layout)
    await past.write(id, 0, range(1, 31))
    return id, str((await past.done("GET", "/"))["root"])


def chunk_key(id: str) -> str:
    return storage_key(id).removesuffix(".dataset.json") + "0"


async def check_read(past: Versioned, number: int) -> None:
    """Read a snapshot as a node does that was only asked for its objects."""
    root = (await past.done("GET", f"/snapshots/{number}"))["root"]
    id = (await past.links(domain=f"{DOMAIN}@{number}"))["kept"]
    assert id[2:19] == root[2:19]
    await past.restart()
    assert (await past.versioned.get(chunk_key(id))).data


async def test_two_that_are_taken_at_once_are_both_read(past: Versioned) -> None:
    _, root = await prepared(past)
    await past.snapshot()

    async def around(method: str, key: str, data: Any, call: Any) -> Any:
        await asyncio.sleep(0)
        return await call(data)

    past.store.around = around  # type: ignore[method-assign]
    asked = {"root": root, "author": "ann", "message": ""}
    begun = [past.versioned.answer("versions.begin", asked) for _ in range(2)]
    for one in await asyncio.gather(*begun):
        await past.versioned.answer("versions.seal", {"root": root, "tree": one["root"]})
    for number in (2, 3):
        await check_read(past, number)


async def test_one_whose_answer_is_lost_is_there(past: Versioned) -> None:
    await prepared(past)

    async def around(method: str, key: str, data: Any, call: Any) -> Any:
        answer = await call(data)
        if method.startswith("put") and b'"sealed":true' in bytes(data) and lost:
            raise StoreFailed(lost.pop())
        return answer

    lost = ["The answer was lost."]
    past.store.around = around  # type: ignore[method-assign]
    assert (await past.rest("POST", "/snapshots", {})).status >= 500
    assert [one["snapshot"] for one in (await past.done("GET", "/snapshots"))["snapshots"]] == [1]
    await check_read(past, 1)


@pytest.mark.parametrize("restarted", [False, True])
async def test_chunks_of_a_deleted_one_are_not_read_as_never_written(
    past: Versioned, restarted: bool
) -> None:
    await prepared(past)
    await past.snapshot()
    key = chunk_key((await past.links(domain=AT_1))["kept"])
    assert (await past.versioned.get(key)).data
    await past.done("DELETE", "/snapshots/1")
    if restarted:
        await past.restart()
    with pytest.raises(Gone, match="was deleted"):
        await past.versioned.get(key)
    with pytest.raises(Gone, match="was deleted"):
        _ = [page async for page in past.versioned.list(key)]


@pytest.mark.parametrize("layout", [DENSE, SPARSE], ids=["dense", "sparse"])
async def test_restoring_a_deleted_one_loses_nothing(past: Versioned, layout: dict[str, Any]) -> None:
    id, _ = await prepared(past, layout)
    await past.snapshot()
    await past.write(id, 0, range(101, 111))
    await past.restart()

    async def around(method: str, key: str, data: Any, call: Any) -> Any:
        answer = await call(data)
        if method == "list" and "/.history/" in key and meanwhile:
            meanwhile.pop()
            await past.done("DELETE", "/snapshots/1")
        return answer

    meanwhile = [True]
    past.store.around = around  # type: ignore[method-assign]
    assert (await past.rest("POST", "/snapshots/1/restore")).status in (404, 410)
    assert not meanwhile
    assert await past.read(id) in ([*range(101, 111), *range(11, 31)], list(range(1, 31)))


async def test_what_others_read_of_one_that_is_deleted_is_preserved(past: Versioned) -> None:
    """Until they are told of it, too."""
    id, root = await prepared(past)
    await past.snapshot()
    told, other = (with_versions(past.store, Doubtful(), SystemClock())[0] for _ in range(2))
    there = chunk_key((await past.links(domain=AT_1))["kept"])
    before = (await other.get(there)).data
    await told.answer("versions.remove", {"root": root, "number": 1})
    await told.answer("versions.tell", {"root": root})
    now = await told.get(chunk_key(id))
    await told.put_if_match(chunk_key(id), b"changed", now.etag)
    assert (await other.get(there)).data == before
    await other.answer("versions.tell", {"root": root})
    with pytest.raises(Gone):
        await other.get(there)


async def test_a_late_message_does_not_seal_another_one_of_the_same_number(past: Versioned) -> None:
    _, root = await prepared(past)
    await past.snapshot()
    first = (await past.done("GET", "/snapshots/1"))["root"]
    await past.done("DELETE", "/snapshots/1")
    begun = await past.versioned.answer("versions.begin", {"root": root, "author": "ann", "message": ""})
    assert (begun["snapshot"], begun["root"] == first) == (1, False)
    with pytest.raises(Conflict, match="given up, or it was deleted"):
        await past.versioned.answer("versions.seal", {"root": root, "tree": first})
    await past.versioned.answer("versions.abandon", {"root": root, "tree": first})
    await past.versioned.answer("versions.seal", {"root": root, "tree": begun["root"]})
    await check_read(past, 1)


async def test_a_clone_that_is_asked_for_twice_is_one(past: Versioned) -> None:
    _, root = await prepared(past)
    number = await past.snapshot()
    asked = {"root": root, "number": number, "clone": f"g-c10e{root[6:]}", "source": DOMAIN, "domain": "/c"}
    for _ in range(2):
        await past.versioned.answer("versions.clone", asked)
    note = await read_note(past.memory, root)
    assert note is not None
    assert len(note.pins) == 1


class Evicted(Doubtful):
    """The ownership of a node that has lost its lease while it preserved what it is about to change."""

    def may_change(self, term: int) -> bool:
        return False


async def test_a_node_that_was_evicted_meanwhile_changes_nothing(past: Versioned) -> None:
    """It is not told of snapshots any more."""
    id, _ = await prepared(past)
    await past.snapshot()
    store, _ = with_versions(past.store, Evicted(), SystemClock())
    now = await store.get(chunk_key(id))
    with pytest.raises(Unanswered, match="another may own"):
        await store.put_if_match(chunk_key(id), b"changed", now.etag)
    assert (await store.get(chunk_key(id))).data == now.data


async def test_a_node_that_comes_back_knows_nothing_of_what_it_was_not_told(past: Versioned) -> None:
    """While it was no member a snapshot was deleted, and the clone that had needed it copied what it shared."""
    id, _ = await prepared(past)
    await past.snapshot()
    await past.done("POST", "/clones", {"target": "/home/admin/clone", "snapshot": 1})
    shared = chunk_key((await past.links(domain="/home/admin/clone"))["kept"])
    there = chunk_key((await past.links(domain=AT_1))["kept"])
    back = Doubtful()
    other, _ = with_versions(past.store, back, SystemClock())
    before = [(await other.get(key)).data for key in (there, shared)]
    await past.done("POST", "/clones/materialize", {}, domain="/home/admin/clone")
    await past.done("DELETE", "/snapshots/1")
    await past.write(id, 0, range(101, 131))
    back.era = 1
    with pytest.raises(Gone):
        await other.get(there)
    assert (await other.get(shared)).data == before[1]


async def test_what_was_asked_before_a_node_was_told_is_not_remembered(past: Versioned) -> None:
    """That a clone shares what a snapshot has, which it has copied by the time of the answer."""
    _, root = await prepared(past)
    await past.snapshot()
    clone = (await past.done("POST", "/clones", {"target": "/home/admin/clone", "snapshot": 1}))["root"]
    absent = chunk_key((await past.links(domain="/home/admin/clone"))["kept"])[:-1] + "9"
    other, _ = with_versions(past.store, Doubtful(), SystemClock())

    async def around(method: str, key: str, data: Any, call: Any) -> Any:
        answer = await call(data)
        if key == storage_key(clone) and meanwhile:
            meanwhile.pop()
            await past.done("POST", "/clones/materialize", {}, domain="/home/admin/clone")
            await other.answer("versions.tell", {"root": clone})
        return answer

    meanwhile = [True]
    past.store.around = around  # type: ignore[method-assign]
    with pytest.raises(NotFound):
        await other.get(absent)
    assert not meanwhile
    await past.versioned.answer("versions.remove", {"root": root, "number": 1})
    await other.answer("versions.tell", {"root": root})
    with pytest.raises(NotFound):
        await other.get(absent)


async def test_a_node_knows_of_snapshots_that_were_taken_before_its_membership_was_settled(
    past: Versioned,
) -> None:
    """The others were told by the membership before, and it had found none."""
    id, _ = await prepared(past)
    ownership = MemberOwnership(lambda: True)
    other, _ = with_versions(past.store, ownership, SystemClock())
    await other.delete_all([])
    await past.snapshot()
    ownership.settled = True
    before = await other.get(chunk_key(id))
    await other.put_if_match(chunk_key(id), b"changed", before.etag)
    there = chunk_key((await past.links(domain=AT_1))["kept"])
    assert (await past.versioned.get(there)).data == before.data


async def test_a_node_knows_of_snapshots_that_were_taken_before_it_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves files, too, and finished a deletion before, when there were none."""
    monkeypatch.setattr(versioned_store, "LATE_SECONDS", 0.0)
    settings = load_settings(files=(str(tmp_path),), files_cache=tmp_path)
    stores: list[ObjectStore] = []

    def keep(store: ObjectStore, ownership: Ownership) -> tuple[ObjectStore, Ownership]:
        both = extended(settings, store, ownership)
        stores.append(both[0])
        return both

    made, clock = Cluster(extended=keep), SystemClock()
    await made.start()
    late = made.members["late"] = made.make("late")
    deletions, gone = Deletions(stores[1], clock), new_root_id(clock)
    await stores[0].put(storage_key(gone), b"deleted")
    await deletions.notes.decide(gone, "unreadable")
    assert await deletions.resume_all(0.0) == 1

    root, owners = new_root_id(clock), made.owners()
    before = await stores[0].put(storage_key(root), b"before")
    asked = {"root": root, "author": "ann", "message": ""}
    begun = await owners.ask_any(AskStore("versions.begin", asked))
    await owners.ask_all(AskStore("versions.tell", {"root": root}))
    await owners.ask_any(AskStore("versions.seal", {"root": root, "tree": begun["root"]}))

    await late.join("late")
    await made.in_force("late")
    await stores[1].put_if_match(storage_key(root), b"after", before)
    try:
        assert (await stores[0].get(storage_key(begun["root"]))).data == b"before"
    finally:
        for member in made.members.values():
            await member.close()


async def test_a_node_that_was_not_told_yet_does_not_preserve_what_another_one_has_changed(
    past: Versioned,
) -> None:
    """One that knows of the next snapshot changes the record of a dataset, then another one a chunk."""
    id, root = await prepared(past)
    await past.snapshot()
    record = storage_key((await past.links(domain=AT_1))["kept"])
    told, other = (with_versions(past.store, Doubtful(), SystemClock())[0] for _ in range(2))
    await other.answer("versions.tell", {"root": root})
    await told.answer("versions.begin", {"root": root, "author": "ann", "message": ""})
    await told.answer("versions.tell", {"root": root})
    before, now = (await other.get(record)).data, await told.get(storage_key(id))
    await told.put_if_match(storage_key(id), now.data.replace(b"[30]", b"[35]"), now.etag)
    chunk = await other.get(chunk_key(id))
    await other.put_if_match(chunk_key(id), b"changed", chunk.etag)
    assert (await other.get(record)).data == before


@pytest.mark.parametrize("layout", [DENSE, SPARSE], ids=["dense", "sparse"])
async def test_what_a_dataset_grew_by_beside_a_snapshot_is_not_uncovered(layout: dict[str, Any]) -> None:
    """The node of its record was told of the snapshot before that of a chunk, which is newer than the record."""
    server = Versioned(2)
    await server.open()
    await server.done("PUT", "/")
    root, ids, owners = (await server.done("GET", "/"))["root"], list[str](), list[str]()
    while owners != ["dn-0", "dn-1"]:
        ids.append(await server.create(f"d{len(ids)}", 12, layout))
        owners = [
            rendezvous_owner(("dn-0", "dn-1"), name) for name in (ids[-1], f"{chunk_key(ids[-1])[:-1]}1")
        ]
    asked, told = {"root": root, "author": "ann", "message": ""}, AskStore("versions.tell", {"root": root})
    begun = await server.nodes[0].send(AskStore("versions.begin", asked))
    await server.nodes[0].send(told)
    await server.done("PUT", f"/datasets/{ids[-1]}/shape", {"shape": [15]})
    await server.write(ids[-1], 12, [7, 7, 7])
    await server.nodes[1].send(told)
    await server.nodes[0].send(AskStore("versions.seal", {"root": root, "tree": begun["root"]}))
    await server.done("POST", "/clones", {"target": "/home/admin/clone", "snapshot": 1})
    await server.done("POST", "/snapshots/1/restore")
    grown = {}
    for domain in (DOMAIN, "/home/admin/clone"):
        id = (await server.links(domain=domain))[f"d{len(ids) - 1}"]
        assert await server.read(id, domain=domain) == [0] * 12
        await server.done("PUT", f"/datasets/{id}/shape", {"shape": [20]}, domain=domain)
        grown[domain] = await server.read(id, domain=domain)
    await server.close()
    assert grown == dict.fromkeys(grown, [0] * 20)


async def test_a_clone_that_grows_copies_nothing(past: Versioned) -> None:
    id = await past.create("kept", 25, SPARSE)
    await past.write(id, 0, range(1, 26))
    await past.snapshot()
    clone = (await past.done("POST", "/clones", {"target": "/home/admin/clone", "snapshot": 1}))["root"]
    id = (await past.links(domain="/home/admin/clone"))["kept"]
    await past.done("PUT", f"/datasets/{id}/shape", {"shape": [29]}, domain="/home/admin/clone")
    own = [key for key in await past.keys() if clone[2:19] in key and "/d/" in key]
    assert [key.rpartition("/")[2] for key in own] == [".dataset.json"]


WRITERS, WRITES, SNAPSHOTS = 6, 25, 4
UNDER_WAY = 10.5
"""Seconds that a change is under way to the store: others have taken over from its sender a moment before."""


class Race:
    """Writers of one element each, some in the same chunk, whose values go up; and who takes snapshots beside them."""

    def __init__(self, server: Versioned, generator: random.Random) -> None:
        self.server, self.random = server, generator
        self.begun = [0] * WRITERS
        self.done = [0] * WRITERS
        self.seen: dict[int, list[int]] = {}
        self.bounds: dict[int, tuple[list[int], list[int]]] = {}

    async def around(self, method: str, key: str, data: Any, call: Any) -> Any:
        await self.pause(method)
        answer = await call(data)
        await self.pause(method)
        return answer

    async def pause(self, method: str) -> None:
        longest = 2000 if method == "put_if_match" and self.random.random() < 0.1 else 20
        for _ in range(self.random.choice((0, 0, 1, 3, longest))):
            await asyncio.sleep(0)

    async def write(self, writer: int, id: str) -> None:
        for value in range(1, WRITES + 1):
            self.begun[writer] = value
            door = self.random.choice(self.server.doors)
            await self.server.write(id, self.place(writer), [value], door=door)
            self.done[writer] = value

    @staticmethod
    def place(writer: int) -> int:
        return writer * 7

    async def take(self, id: str) -> None:
        for _ in range(SNAPSHOTS):
            for _ in range(self.random.randrange(200)):
                await asyncio.sleep(0)
            least = list(self.done)
            number = await self.server.snapshot(door=self.random.choice(self.server.doors))
            self.bounds[number] = least, list(self.begun)
            self.seen[number] = await self.read(number)

    async def read(self, number: int) -> list[int]:
        door = self.random.choice(self.server.doors)
        there = await self.server.links(domain=f"{DOMAIN}@{number}", door=door)
        values = await self.server.read(there["kept"], domain=f"{DOMAIN}@{number}", door=door)
        return [values[self.place(writer)] for writer in range(WRITERS)]

    def check(self, number: int, found: list[int]) -> None:
        least, most = self.bounds[number]
        assert found == self.seen[number], (number, found, self.seen[number])
        for low, value, high in zip(least, found, most, strict=True):
            assert low <= value <= high, (number, least, found, most)


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("nodes", [1, 2])
async def test_a_snapshot_beside_writes_is_what_was_there(nodes: int) -> None:
    for seed in range(repeats(60, short=1)):
        await race(seed, nodes)


async def race(seed: int, nodes: int) -> None:
    """Run the race of a seed."""
    server = Versioned(nodes)
    await server.open()
    await server.done("PUT", "/")
    generator = random.Random(seed)
    one = Race(server, generator)
    layout = generator.choice((DENSE, SPARSE))
    id = await server.create("kept", 60, layout)
    server.store.around = one.around  # type: ignore[assignment, method-assign]
    try:
        await asyncio.gather(*(one.write(writer, id) for writer in range(WRITERS)), one.take(id))
        for number in one.seen:
            one.check(number, await one.read(number))
        assert (await server.read(id))[one.place(1)] == WRITES
    except BaseException as error:
        error.add_note(f"seed {seed}, {nodes} nodes")
        raise
    finally:
        await server.close()


class Persistent(StoreWrapper):
    """A process's view of a store, whose client goes on sending the put of a chunk that is not answered."""

    def __init__(self, store: ObjectStore, sent: list[tuple[Process, str]]) -> None:
        super().__init__(store)
        self.sent = sent

    async def around(self, method: str, key: str, data: Any, call: Any) -> Any:
        if not method.startswith("put") or chunk_of_key(key) is None:
            return await call(data)
        assert isinstance(self.store, SimulatedStore)
        self.sent.append((self.store._process, key))
        for _ in range(30):
            with suppress(StoreFailed):
                return await call(data)
            await asyncio.sleep(1)
        raise StoreFailed("The store does not answer.")


@pytest.mark.parametrize("under_way", [False, True])
def test_a_write_of_a_node_that_was_evicted_is_in_no_snapshot_later(
    under_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reaches the store late, or is sent again; its node was told of no snapshot."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    loop, sent = VirtualLoop(), list[tuple[Process, str]]()
    cluster = SimulatedCluster(loop, 1, wrap=lambda store: Persistent(store, sent), versions=True)
    clock = VirtualClock(loop, random.Random(1))
    root = new_root_id(clock)
    id = new_id("datasets", root, clock)

    async def shown(key: str) -> bytes:
        """Return an object as a node reads it that knows nothing."""
        return (await with_versions(cluster.store, Shared(), clock)[0].get(key)).data

    async def main() -> None:
        for _ in range(2):
            cluster.start_data_node()
        first, second = cluster.start_service_node(), cluster.start_service_node()
        await cluster.recover()
        node = second.node
        await node.create(root, group_record(root, 1) | {"root": root})
        await node.create(id, dataset_record(id, root, 4, sparse=False))
        await node.create(PATH, {"owner": "ann", "acls": {}, "created": 1, "lastModified": 1, "root": root})
        await node.write(id, [0], 1)
        owner, key = sent[-1]
        landed = clock.now() + UNDER_WAY
        if under_way:
            cluster.put_rates = replace(CALM, late=1.0, patience=UNDER_WAY, lateness=0.0)
        else:
            cluster.network.cut(owner.name, STORE)
        loop.spawn(first.process, first.node.write(id, [0], 2))
        await asyncio.sleep(0.1)
        first.process.kill()  # so that nobody sends the write to the next owner
        cluster.put_rates = None
        if under_way:
            owner.freeze()
        taken = await node.take("")
        [evicted] = [entry.modified async for page in cluster.store.list(KEY) for entry in page.entries]
        assert landed - 5 < evicted < landed
        there = key.replace(root[2:19], taken["root"][2:19])
        before = await shown(there)
        cluster.network.heal()
        await asyncio.sleep(30)
        assert await shown(there) == before
        assert (await node.read(id, [0]))[0] == 1 + under_way

    loop.run(main(), seconds=600)
