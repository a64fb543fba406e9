"""A sweep removes what crashes have left, and nothing else; it may stop anywhere, and run twice at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from hsparse.dn.deletions import born_of
from hsparse.dn.record_form import RecordCodec
from hsparse.dn.sweep import Finding, Waste
from hsparse.errors import Gone
from hsparse.format.chunk_spec import chunk_key
from hsparse.model.ids import deletion_key, storage_key, summary_id
from hsparse.wire.record_message import BeginDeletion, DeleteObject
from tests.conftest import MakeStore
from tests.support.deletion_world import CHUNKS, Node, World, crash_everywhere
from tests.testing.faulty_store import FaultyStore
from tests.testing.store_wrapper import CountingStore

A, B, M = "/a.h5", "/b.h5", "/m.h5"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A store with one domain, of which nothing may ever be swept."""
    world = World()
    await world.make(B)
    yield world
    await world.close()


@pytest.fixture
def node(world: World) -> Node:
    return world.node()


async def check_that_a_sweep_finds(world: World, *expected: Finding) -> None:
    """Young waste is not found; later a dry run finds it, a sweep finds and removes it, a second one finds nothing."""
    node = world.node()
    before = await world.keys()
    assert await node.sweep() == []
    world.pass_days()
    assert await node.sweep(dry_run=True) == list(expected)
    assert await world.keys() == before
    assert await node.sweep() == list(expected)
    assert await node.sweep() == []
    await node.close()
    for root in world.datasets:
        assert await world.is_whole(root)
    await world.settle()


async def sizes(world: World, prefix: str) -> tuple[int, int]:
    """Return the number of objects below a prefix, and their bytes."""
    entries = [entry async for page in world.store.list(prefix) for entry in page.entries]
    return len(entries), sum(entry.size for entry in entries)


def prefix_of(root: str) -> str:
    return storage_key(root).removesuffix(".group.json")


async def test_a_store_without_waste_is_left_alone(world: World) -> None:
    await check_that_a_sweep_finds(world)


async def test_a_root_group_whose_domain_was_not_stored(world: World, node: Node) -> None:
    root, _ = await world.make(A)
    await world.store.delete("a.h5/.domain.json")
    del world.datasets[root]
    count, nbytes = await sizes(world, prefix_of(root))
    await check_that_a_sweep_finds(world, Finding(Waste.DOMAIN, root, count, nbytes))


async def test_the_objects_of_a_domain_deleted_with_keep_root(world: World, node: Node) -> None:
    root, _ = await world.make(A)
    await node.delete(A, keep_root=True)
    del world.datasets[root]
    await check_that_a_sweep_finds(world, Finding(Waste.DOMAIN, root, *await sizes(world, prefix_of(root))))


async def test_a_late_summary_of_a_deleted_domain(world: World, node: Node) -> None:
    root, _ = await world.make(A)
    await node.delete(A)
    await world.store.put(storage_key(summary_id(root)), b"{}")
    await world.store.put(prefix_of(root) + "d/0000-000000-000000/0_0", b"chunk")
    del world.datasets[root]
    await check_that_a_sweep_finds(world, Finding(Waste.LEFTOVERS, root, 2, 7))


async def test_chunks_whose_dataset_is_gone(world: World) -> None:
    [(root, [dataset])] = world.datasets.items()
    await world.store.delete(storage_key(dataset))
    world.datasets[root] = set()
    count, nbytes = await sizes(world, storage_key(dataset).removesuffix(".dataset.json"))
    assert count == CHUNKS
    await check_that_a_sweep_finds(world, Finding(Waste.CHUNKS, dataset, count, nbytes))


async def test_a_probe_that_was_killed(world: World) -> None:
    await world.store.put("db/.probe-0123456789abcdef", b"first")
    await check_that_a_sweep_finds(world, Finding(Waste.PROBE, "db/.probe-0123456789abcdef", 1, 5))


async def test_what_it_does_not_know_stays(world: World, node: Node) -> None:
    kept = [
        "db/.schema.json",
        "db/.jobs/0-0-0.json",
        "db/.deleting/notes.txt",
        "db/something/else",
        "data/file.h5",
        "dbx/file.h5",
    ]
    for key in kept:
        await world.store.put(key, b"x")
    world.pass_days(1000)
    assert await node.sweep() == []
    assert set(kept) <= await world.keys()


async def test_what_sorts_before_the_record_it_belongs_to_stays(world: World, node: Node) -> None:
    [(root, [dataset])] = world.datasets.items()
    for record in (storage_key(root), storage_key(dataset)):
        await world.store.put(record.rpartition("/")[0] + "/!note", b"another program's")
    world.pass_days()
    before = await world.keys()
    assert await node.sweep() == []
    assert await world.keys() == before


async def test_a_domain_whose_objects_were_deleted_by_another_name(world: World, node: Node) -> None:
    root, _ = await world.make(A)
    await node.create(M, linked_domain=A)
    await node.delete(A)
    del world.datasets[root]
    await check_that_a_sweep_finds(world, Finding(Waste.DANGLING, M, 1))
    record = json.loads((await world.store.get("m.h5/.domain.json")).data)
    assert (record["root"], record["deleted"]) == (root, world.clock.time - 4 * 86400.0)


async def test_a_marked_domain_does_not_get_the_objects_of_a_new_one(world: World, node: Node) -> None:
    root, _ = await world.make(A)
    await node.create(M, linked_domain=A)
    await node.delete(A)
    world.pass_days()
    await node.sweep()
    assert await node.create("/new.h5", root_id=root) == root
    world.pass_days()
    assert await node.sweep() == []
    record = await world.node().owners.record(M)
    assert "deleted" in record
    with pytest.raises(Gone, match="deleted by another name"):
        await world.node().create("/x.h5", linked_domain=M)


async def test_a_domain_that_cannot_be_read_keeps_all_objects(world: World, node: Node) -> None:
    root, _ = await world.make(A)
    await world.store.put("a.h5/.domain.json", b"{")
    await world.store.put("odd.h5/.domain.json", b'{"root": "g-0"}')
    world.pass_days()
    found = await node.sweep()
    assert sorted((one.waste, one.name) for one in found) == [
        (Waste.UNREADABLE, A),
        (Waste.UNREADABLE, "/odd.h5"),
    ]
    assert await world.is_whole(root)


async def test_a_domain_in_which_a_bit_was_flipped_keeps_its_objects() -> None:
    world = World()
    await world.make(A)
    world.pass_days()
    node, key = world.node(), storage_key(A)
    data = (await world.store.get(key)).data
    before = await world.keys()
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        await world.store.put(key, bytes(flipped))
        await node.sweep()
        assert await world.keys() == before, bytes(flipped)
    await node.close()


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"owner": "ada", "acls": {}, "created": 1.5, "lastModified": 1.5}',
        b'{"owner": "ada", "roou": "g-1"}',
        b'{"root": null}',
        b"{",
    ],
)
async def test_objects_stay_while_their_own_domain_names_no_root(
    world: World, node: Node, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    root, _ = await world.make(A)
    await world.store.put(storage_key(A), damaged)
    world.pass_days()
    await node.sweep(dry_run=True)
    found = await node.sweep()
    assert found == [Finding(Waste.UNREADABLE, A)] or f"The objects of {root} are kept" in caplog.text
    assert await world.is_whole(root)
    assert deletion_key(root) not in await world.keys()


async def test_objects_go_when_their_own_domain_has_others(world: World, node: Node) -> None:
    root, _ = await world.make(A)
    await node.delete(A, keep_root=True)
    await world.make(A)
    del world.datasets[root]
    await world.settle()
    assert await world.is_gone(root)


async def test_objects_go_when_a_folder_is_where_their_own_domain_was_to_be(world: World, node: Node) -> None:
    """A creation died after its root group; then somebody created a folder of that name."""
    root, _ = await world.make(A)
    await world.store.delete(storage_key(A))
    await node.create(A, folder=True)
    del world.datasets[root]
    await world.settle()
    assert await world.is_gone(root)


@pytest.mark.parametrize("path", ["/a//b", "/a\n", "/" + "x" * 2000])
async def test_an_impossible_path_of_a_root_ends_no_sweep(world: World, node: Node, path: str) -> None:
    root, _ = await world.make(A)
    await world.store.delete(storage_key(A))
    key = storage_key(root)
    record = json.loads((await world.store.get(key)).data)
    await world.store.put(key, RecordCodec(key).encode({**record, "domain": path}))
    del world.datasets[root]
    await world.settle()
    assert await world.is_gone(root)


async def test_objects_stay_while_their_root_group_cannot_be_read(world: World, node: Node) -> None:
    root, _ = await world.make(A)
    await world.store.put(storage_key(root), b"{")
    await world.store.delete(storage_key(A))
    world.pass_days()
    assert await node.sweep() == []
    assert await world.is_whole(root)


async def test_a_young_root_group_is_left_to_who_creates_it(world: World, node: Node) -> None:
    world.pass_days()
    creating = world.node(store := FaultyStore(world.store))
    fault = store.hang("put_if_absent", "a.h5/.domain.json")
    created = await fault.holding(creating.create(A))
    assert await node.sweep() == []
    fault.release()
    root = await created
    assert storage_key(root) in await world.keys()


async def test_a_dataset_created_again_during_a_sweep_keeps_its_chunks(world: World) -> None:
    """The sweep has listed old chunks without a record; before it deletes them, somebody makes them his own."""
    [(root, [dataset])] = world.datasets.items()
    await world.store.delete(storage_key(dataset))
    world.pass_days()
    sweeping = world.node(store := FaultyStore(world.store))
    fault = store.hang("delete_if_match", chunk_key(dataset, (0,)))
    sweep = await fault.holding(sweeping.sweep())
    other = world.node()
    await other.fill(root, dataset)
    fault.release()
    await sweep
    assert storage_key(dataset) in await world.keys()
    await other.write(dataset)
    assert await world.is_whole(root)


async def test_a_move_during_a_sweep_is_seen(world: World) -> None:
    """The scan has passed the new name when it is made, and the old name is gone when the scan gets there."""
    root, _ = await world.make("/z.h5")
    world.pass_days()
    sweeping = world.node(store := FaultyStore(world.store))
    fault = store.hang("get", "b.h5/.domain.json")
    sweep = await fault.holding(sweeping.sweep())
    await world.node().move("/z.h5", "/a.h5")
    await world.store.delete("b.h5/.domain.json")
    fault.release()
    await sweep
    assert await world.is_whole(root)
    assert deletion_key(root) not in await world.keys()


async def test_an_interrupted_sweep_is_taken_over(world: World, node: Node) -> None:
    """Claims of a sweep that died: of a root that has a domain by now, and of one that has none."""
    named, _ = await world.make(A)
    unnamed, _ = await world.make(M)
    for root in (named, unnamed):
        await node.data.deletions.notes.claim(root, await born_of(world.store, root))
    await world.store.delete("m.h5/.domain.json")
    del world.datasets[unnamed]
    await world.settle()
    assert await world.is_whole(named)
    assert await world.is_gone(unnamed)


async def waste_of_every_kind(world: World) -> None:
    """Leave what deaths at different places leave; B is whole, as is what M had."""
    node = world.node()
    await world.make(B)
    roots = [(await world.make(f"/{name}.h5"))[0] for name in ("c", "d", "e", "f", "g")]
    await node.create("/h.h5", linked_domain="/g.h5")
    await node.delete("/g.h5")  # h.h5 dangles
    await node.owners.ask_any(BeginDeletion(roots[0], "/c.h5"))
    await node.owners.apply(DeleteObject("/c.h5"))  # not decided
    born = await node.owners.ask_any(BeginDeletion(roots[1], "/d.h5"))
    await node.owners.apply(DeleteObject("/d.h5"))
    await node.data.deletions.notes.decide(roots[1], born)  # decided
    [dataset] = world.datasets[roots[1]]
    await world.store.delete(chunk_key(dataset, (0,)))
    await node.delete("/e.h5", keep_root=True)  # unnamed
    await node.delete("/f.h5")
    await world.store.put(storage_key(summary_id(roots[3])), b"{}")  # a late summary
    root = next(iter(world.datasets))
    lost = await node.fill(root)
    await node.owners.ask_any(BeginDeletion(lost))
    await node.owners.apply(DeleteObject(lost))  # chunks with a note
    await world.store.delete(storage_key(await node.fill(root)))  # chunks without one
    await world.store.put("db/.probe-0123456789abcdef", b"first")
    for gone in roots:
        del world.datasets[gone]
    await node.close()
    world.pass_days()


async def check_all_clean(world: World) -> None:
    """Two nodes sweep at once; B is whole, and nothing else is left."""
    nodes = world.node(), world.node()
    await asyncio.gather(*(node.sweep() for node in nodes))
    for node in nodes:
        await node.close()
    await world.settle()
    [root] = world.datasets
    assert await world.domains() == {B: root}
    assert await world.is_whole(root)
    count = 1 + 1 + 1 + CHUNKS
    assert len(await world.keys()) == count + 1, "the domain, its objects, and the marked h.h5"


async def test_a_sweep_that_dies_anywhere_is_finished_by_two_others() -> None:
    calls = await crash_everywhere(lambda world, node: node.sweep(), check_all_clean, waste_of_every_kind)
    assert calls > 60


@pytest.mark.parametrize("kind", ["posix", "s3"])
async def test_every_store_is_swept(make_store: MakeStore, kind: str) -> None:
    world = World(await make_store(kind, 5))
    await waste_of_every_kind(world)
    await check_all_clean(world)


async def test_a_sweep_lists_all_objects_once_and_reads_no_records_of_them(world: World) -> None:
    """Its cost: a page for each 1000 objects, and a get for each domain."""
    node = world.node(store := CountingStore(world.store))
    await node.sweep()
    objects = await sizes(world, "db/")
    assert (store.keys["list", "db/"], store.calls["get"]) == (-(-objects[0] // 5) + 1, 1)
    assert store.puts == 0


async def test_it_says_how_many_bytes_it_has_looked_at(world: World, node: Node) -> None:
    seen: list[int] = []
    await node.sweep(advance=seen.append)
    assert sum(seen) == (await sizes(world, "db/"))[1]
