"""A deletion that stops anywhere is finished by another node, or has not begun; a second one does no harm."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence

import pytest

from hsparse.dn.deletions import Deletions, DeletionState, Resumed, born_of
from hsparse.errors import Busy, Conflict, Gone, NotFound, StoreFailed, Unsupported
from hsparse.format.chunk_spec import chunk_key
from hsparse.model.ids import DELETION_FOLDER, deletion_key, delta_key, storage_key, tree_prefix
from hsparse.model.stripes import Stripes
from hsparse.storage.object_store import Entry, Page
from hsparse.stripes.joining import joined
from hsparse.stripes.merge import merged
from hsparse.wire.record_message import BeginDeletion, DeleteObject, DeleteTree, WithdrawDeletion
from tests.support.deletion_world import CHUNKS, Node, World, crash_everywhere
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

A, B, M = "/a.h5", "/b.h5", "/m.h5"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.close()


async def two_domains(world: World) -> None:
    for path in (A, B):
        await world.make(path)


async def check_resumed(world: World) -> None:
    """A data node alone, without a sweep, leaves a domain whole or nothing of it; the other domain is whole."""
    roots = list(world.datasets)
    assert await world.is_whole(roots[1])
    world.pass_days()
    node = world.node()
    await node.resume()
    unsettled = await node.data.deletions.notes.read(roots[0])
    domains = await world.domains()
    if A in domains:
        assert await world.is_whole(roots[0])
    elif unsettled is None:
        assert await world.is_gone(roots[0])
    else:  # it died between two calls: only a look at all domains tells
        assert unsettled.state is DeletionState.INTENDED
        assert await world.is_whole(roots[0])
    await node.close()
    await world.settle()
    assert await (world.is_whole(roots[0]) if A in domains else world.is_gone(roots[0]))
    assert await world.is_whole(roots[1])


async def test_the_deletion_of_a_domain_that_dies_anywhere_is_finished() -> None:
    assert await crash_everywhere(lambda world, node: node.delete(A), check_resumed, two_domains) >= 14


async def test_the_deletion_of_a_dataset_that_dies_anywhere_is_finished() -> None:
    async def delete(world: World, node: Node) -> None:
        [dataset] = next(iter(world.datasets.values()))
        await node.remove(dataset)

    async def check(world: World) -> None:
        [root, other] = world.datasets
        [dataset] = world.datasets[root]
        is_there = storage_key(dataset) in await world.keys()
        if not is_there:
            world.datasets[root].clear()
        world.pass_days()
        node = world.node()
        await node.resume()
        await node.close()
        keys = await world.keys()
        assert not any(key.startswith(DELETION_FOLDER) for key in keys)
        assert is_there == any(chunk_key(dataset, (n,)) in keys for n in range(CHUNKS))
        assert await world.is_whole(root)
        assert await world.is_whole(other)
        await world.settle()

    assert await crash_everywhere(delete, check, two_domains) >= 8


@pytest.mark.parametrize("stripes", [Stripes(2), Stripes.of(["b", "c/deep"])], ids=["prefixes", "buckets"])
async def test_the_deletion_of_a_striped_dataset_that_dies_anywhere_is_finished(stripes: Stripes) -> None:
    others = [MemoryStore("b", page_size=2), MemoryStore("c")] if stripes.places else []

    async def prepare(world: World) -> None:
        world.others = others
        world.store = joined([world.store, *others])[0] if others else world.store
        await world.make(A)
        [dataset] = next(iter(world.datasets.values()))
        for place in stripes.places:  # as they are put with a record that has them
            await world.store.put(f"{tree_prefix(dataset)}.stripe/~/{place}/~", b"{}")
        node = world.node()
        await node.write(dataset, stripes)
        await node.close()

    async def delete(world: World, node: Node) -> None:
        [dataset] = next(iter(world.datasets.values()))
        await node.remove(dataset)

    async def check(world: World) -> None:
        [root] = world.datasets
        [dataset] = world.datasets[root]
        keys = {chunk_key(dataset, (n,), stripes) for n in range(CHUNKS)}
        is_there = storage_key(dataset) in await world.keys()
        if not is_there:
            world.datasets[root].clear()
        world.pass_days()
        node = world.node()
        await node.resume()
        await node.close()
        assert keys & await world.keys() == (keys if is_there else set())
        await world.settle()
        assert keys & await world.keys() == (keys if is_there else set())
        left = [
            entry async for page in merged([one.list("") for one in world.others]) for entry in page.entries
        ]
        assert len(left) == (len(others) and len(keys)) * is_there

    assert await crash_everywhere(delete, check, prepare) >= 8


@pytest.mark.parametrize("what", ["create", "link", "move"])
async def test_what_dies_while_it_creates_leaves_nothing_after_a_sweep(what: str) -> None:
    async def act(world: World, node: Node) -> None:
        if what == "create":
            await node.fill(await node.create(M))
        elif what == "link":
            await node.create(M, linked_domain=A)
        else:
            await node.move(A, M)

    async def check(world: World) -> None:
        await world.settle()
        domains = await world.domains()
        for root in world.datasets:
            assert await world.is_whole(root)
            assert root in domains.values()

    await crash_everywhere(act, check, two_domains)


async def test_a_deletion_notes_decides_deletes_and_forgets(world: World) -> None:
    """What a deletion costs: the root group is read, the note is put twice, read once and once a page, and removed."""
    root, _ = await world.make(A)
    store = CountingStore(world.store)
    node = world.node(store)
    await node.owners.record(A)
    store.reset()
    await node.delete(A)
    assert store.calls["put_if_absent"] == store.calls["put"] == 1
    assert store.keys["get", deletion_key(root)] == 2
    assert store.keys["delete_if_match", storage_key(root)] == 1
    assert await world.keys() == set()


async def test_a_page_is_deleted_together_while_the_next_is_listed(world: World) -> None:
    """Deltas after what they are beside, the root group alone and last: each durable before the next."""

    class Together(FaultyStore):
        async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
            if entries:
                batches.append([entry.key for entry in entries])
            await second_page.wait()
            return await self.store.delete_all(entries)

        def list(self, prefix: str, *, delimiter: bool = False, start_after: str = "") -> AsyncIterator[Page]:
            async def pages() -> AsyncIterator[Page]:
                entries = [e async for page in super(Together, self).list(prefix) for e in page.entries]
                yield Page(tuple(entries[:3]))
                second_page.set()
                yield Page(tuple(entries[3:6]))
                yield Page(tuple(entries[6:]))

            return pages()

    root, dataset = await world.make(A)
    delta = delta_key(storage_key(dataset), "0123")
    beside = delta_key(storage_key(root), "0123")
    for key in (delta, beside):
        await world.store.put(key, b"{}")
    batches: list[list[str]] = []
    second_page = asyncio.Event()
    deletions = Deletions(Together(world.store), world.clock)
    count = len(await world.keys())
    objects = sum(key.startswith(tree_prefix(root)) for key in await world.keys())
    note = await deletions.notes.decide(root, await born_of(world.store, root))
    assert await deletions.finish(note) == objects
    assert batches[-2:] == [[storage_key(root)], [beside]]
    assert len(batches) >= 5
    assert all(delta not in batch or batch == [delta] for batch in batches)
    assert len(await world.keys()) == count - objects


async def test_a_late_deletion_leaves_a_new_domain_with_the_same_root(world: World) -> None:
    """The first node stops before it decides; the second finishes; then somebody takes the root again."""
    root, dataset = await world.make(A)
    late, quick = world.node(), world.node()
    born = await late.owners.ask_any(BeginDeletion(root, A))
    await quick.delete(A)
    assert await world.keys() == set()
    world.clock.time += 1
    assert await quick.create(B, root_id=root) == root
    await quick.fill(root, dataset)
    assert await late.data.send(DeleteTree(root, born)) == 0
    assert await world.is_whole(root)
    assert deletion_key(root) not in await world.keys()


@pytest.mark.parametrize("keep_root", [False, True])
@pytest.mark.parametrize("noted", [False, True])
async def test_a_late_deletion_leaves_a_new_domain_at_the_same_path(
    world: World, keep_root: bool, noted: bool
) -> None:
    """The first node stops before or after its note; the second deletes the domain, and creates another one there."""
    root, _ = await world.make(A)
    store = FaultyStore(world.store)
    late, quick = world.node(store), world.node()
    fault = (
        store.hang("delete_if_match", "a.h5/.domain.json")
        if noted
        else store.hang("put_if_absent", deletion_key(root))
    )
    deleting = asyncio.create_task(late.delete(A))
    await fault.entered.wait()
    await quick.delete(A, keep_root=keep_root)
    world.clock.time += 1
    new, _ = await world.make(A)
    fault.release()
    with pytest.raises(NotFound, match="another object was created"):
        await deleting
    assert await world.domains() == {A: new}
    assert await world.is_whole(new)
    assert {key for key in await world.keys() if key.startswith(DELETION_FOLDER)} == set()
    assert await (world.is_whole if keep_root else world.is_gone)(root)


@pytest.mark.parametrize(
    ("tokens", "taken_back"),
    [
        (["a"], ["a"]),
        (["a", "a"], ["a"]),
        (["a", "b"], []),
        (["a", "b", "a"], []),
        ([""], []),
        (["", "a"], []),
        (["a", ""], []),
    ],
)
async def test_a_note_is_taken_back_by_its_only_user(
    world: World, tokens: list[str], taken_back: list[str]
) -> None:
    root, _ = await world.make(A)
    node = world.node()
    for token in tokens:
        assert await node.owners.ask_any(BeginDeletion(root, A, token=token))
    for token in ("", "c", "b", "a"):
        await node.owners.ask_any(WithdrawDeletion(root, token))
        assert (await node.data.deletions.notes.read(root) is None) is (token in taken_back)


async def test_a_decided_note_and_one_of_a_former_version_are_not_taken_back(world: World) -> None:
    root, _ = await world.make(A)
    node = world.node()
    born = await node.owners.ask_any(BeginDeletion(root, A, token="a"))
    await node.owners.ask_any(BeginDeletion(root, A, decided=born))
    await node.owners.ask_any(WithdrawDeletion(root, "a"))
    note = await node.data.deletions.notes.read(root)
    assert note is not None
    assert note.state is DeletionState.DECIDED
    former = {"id": root, "state": "intended", "domain": A, "born": born, "token": "a"}
    await world.store.put(deletion_key(root), json.dumps(former).encode())
    await node.owners.ask_any(WithdrawDeletion(root, "a"))
    assert await node.data.deletions.notes.read(root) is not None


async def test_a_late_page_of_deletes_leaves_a_new_domain_with_the_same_root(world: World) -> None:
    """The first node stops after a listing; the second finishes; then somebody creates the same objects again."""
    root, dataset = await world.make(A)
    store = FaultyStore(world.store)
    late, quick = world.node(store), world.node()
    fault = store.hang("delete_if_match", chunk_key(dataset, (0,)))
    deleting = await fault.holding(late.delete(A))
    world.pass_days()
    await quick.resume()
    assert await world.keys() == set()
    await quick.create(B, root_id=root)
    await world.node().fill(root, dataset)
    fault.release()
    await asyncio.wait([deleting])
    assert await world.is_whole(root)


async def test_a_domain_cannot_have_a_root_that_is_being_deleted(world: World) -> None:
    root, _ = await world.make(A)
    node = world.node()
    await node.owners.ask_any(BeginDeletion(root, A))
    with pytest.raises(Conflict, match="being deleted"):
        await node.create(B, linked_domain=A)
    assert set(await world.domains()) == {A}
    assert await world.is_whole(root)
    world.pass_days()
    await node.resume()
    await node.create(B, linked_domain=A)


async def test_a_link_to_what_is_deleted_meanwhile_is_taken_back(world: World) -> None:
    root, _ = await world.make(A)
    store = FaultyStore(world.store)
    linking, deleting = world.node(store), world.node()
    fault = store.hang("put_if_absent", "b.h5/.domain.json")
    link = await fault.holding(linking.create(B, linked_domain=A))
    await deleting.delete(A)
    fault.release()
    with pytest.raises(Conflict, match="deleted or being deleted"):
        await link
    assert await world.keys() == set()
    assert await world.is_gone(root)


async def test_a_note_of_a_domain_that_was_moved_is_not_believed(world: World) -> None:
    """A deletion stopped before the domain's record was deleted; then the domain was moved."""
    root, _ = await world.make(A)
    node = world.node()
    await node.create(M, linked_domain=A)
    await node.owners.ask_any(BeginDeletion(root, A))
    await node.delete(A, keep_root=True)
    world.pass_days()
    [note] = [note async for note in node.data.deletions.notes.older_than(600)]
    assert await node.data.deletions.resume(note) is Resumed.UNSETTLED
    assert await world.is_whole(root)
    await world.settle()
    assert await world.is_whole(root)
    assert await world.domains() == {M: root}


async def test_a_late_change_of_an_object_is_deleted_too(world: World) -> None:
    root, dataset = await world.make(A)
    store = FaultyStore(world.store)
    node = world.node(store)
    key = chunk_key(dataset, (0,))
    fault = store.hang("delete_if_match", key)
    deleting = await fault.holding(node.delete(A))
    await world.store.put(key, b"a write that was under way")
    fault.release()
    await deleting
    assert await world.is_gone(root)


async def test_objects_that_always_change_make_a_deletion_busy_and_keep_its_note(world: World) -> None:
    root, dataset = await world.make(A)

    class Restless(FaultyStore):
        async def delete_if_match(self, key: str, etag: str) -> None:
            if key == chunk_key(dataset, (0,)):
                await self.store.put(key, b"again")
            await super().delete_if_match(key, etag)

    node = world.node(Restless(world.store))
    with pytest.raises(Busy):
        await node.delete(A)
    assert {deletion_key(root), storage_key(root)} <= await world.keys()
    await node.close()
    await world.settle()
    assert await world.is_gone(root)


async def test_one_deletion_that_fails_does_not_keep_the_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    roots = [(await world.make(path))[0] for path in (A, B)]
    node = world.node()
    for path, root in zip((A, B), roots, strict=True):
        born = await node.owners.ask_any(BeginDeletion(root, path))
        await node.owners.apply(DeleteObject(path))
        await node.data.deletions.notes.decide(root, born)
    store = FaultyStore(world.store)
    store.fail_before("delete_if_match")
    world.pass_days()
    other = world.node(store)
    with caplog.at_level(logging.WARNING, "hsparse.dn.deletions"):
        await other.resume()
    assert "cannot be resumed" in caplog.text
    assert [await world.is_gone(root) for root in roots].count(True) == 1
    await other.resume()
    assert await world.keys() == set()


async def test_a_young_deletion_is_left_to_who_runs_it(world: World) -> None:
    root, _ = await world.make(A)
    node = world.node()
    born = await node.owners.ask_any(BeginDeletion(root, A))
    await node.data.deletions.notes.decide(root, born)
    await node.resume()
    assert await world.is_whole(root)


async def test_a_domain_that_must_not_be_changed_here_is_not_noted(world: World) -> None:
    root, _ = await world.make(A)
    record = {"root": root, "schema": {"version": 1, "writeFeatures": ["spirals"]}}
    await world.store.put("a.h5/.domain.json", json.dumps(record).encode())
    before = await world.keys()
    node = world.node()
    with pytest.raises(Unsupported, match="spirals"):
        await node.delete(A)
    assert await world.keys() == before


async def test_what_is_not_there_is_not_noted(world: World) -> None:
    root, dataset = await world.make(A)
    node = world.node()
    await node.remove(dataset)
    with pytest.raises(Gone):
        await node.remove(dataset)
    assert not any(key.startswith(DELETION_FOLDER) for key in await world.keys())
    assert await node.owners.ask_any(BeginDeletion(root.replace("g-0", "g-f"), "/x.h5")) == ""


async def test_a_data_node_resumes_until_it_is_closed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    root, _ = await world.make(A)
    store = FaultyStore(world.store)
    store.fail_before("list", DELETION_FOLDER, error=StoreFailed("The store is away."))
    node = world.node(store)
    await node.data.deletions.notes.decide(root, await born_of(world.store, root))
    world.pass_days()
    pauses: list[float] = []
    swept = asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        assert len(pauses) < 10
        if await world.is_gone(root):
            swept.set()
            await asyncio.get_running_loop().create_future()

    with caplog.at_level(logging.WARNING, "hsparse.dn.deletions"):
        resuming = asyncio.create_task(node.data.deletions.keep_resuming(10.0, sleep))
        await swept.wait()
        resuming.cancel()
    assert len(pauses) == 3
    assert all(10.0 <= pause <= 15.0 for pause in pauses)
    assert "The store is away." in caplog.text
    node.data.start(3600.0)
