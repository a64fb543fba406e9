"""Large records: a base that HSDS can read and a delta beside it, changed by one put, stored again in four steps."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.dn import record_objects
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.record_changes import DeletedNames, change_record, changed_entries
from hsparse.dn.record_objects import LARGE_RECORD, RecordDelta, decode_delta
from hsparse.dn.service import DataService
from hsparse.errors import Corrupt, ErrorKind, HsparseError
from hsparse.model.ids import delta_key, is_delta_key, storage_key
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.message import DataNode
from hsparse.wire.record_message import (
    ChangeObjects,
    CreateObject,
    DeleteAttributes,
    DeleteLinks,
    DeleteObject,
    DeleteTree,
    PutAttributes,
    PutLinks,
    ReadObjects,
    RecordChange,
    SetFields,
)
from tests.testing.extent_conformance import *  # noqa: F403
from tests.testing.faulty_store import CHANGES, CrashingStore, CrashPoint, FaultyStore
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
from tests.testing.record_conformance import *  # noqa: F403
from tests.testing.record_conformance import remove_checksum, stored_attribute
from tests.testing.store_wrapper import METHODS, CountingStore

ROOT = "g-00000001-00000002-8888-888988-88888a"
GROUP = "g-00000001-00000002-0000-000000-000003"
DATASET = "d-00000001-00000002-0000-000000-000004"
LONG = "x" * 2000
ID = GROUP


@pytest.fixture(params=[1, 300], ids=["every record is split", "records of 300 bytes are split"])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[DataNode]:
    service = DataService(MemoryStore(), SystemClock(), DataSettings(large_record_size=request.param))
    yield service
    await service.close()


def open_node(store: ObjectStore, size: int = 1000) -> DataService:
    return DataService(store, ManualClock(), DataSettings(large_record_size=size))


async def change(node: DataNode, change: RecordChange) -> dict[str, Any]:
    return (await node.send(ChangeObjects((change,))))[0].unwrap()


async def read(node: DataNode, id: str = ID) -> dict[str, Any]:
    return (await node.send(ReadObjects((id,))))[0].unwrap()


def record(id: str = ID, long: str = LONG) -> dict[str, Any]:
    return {"id": id, "root": ROOT, "long": long, "links": {}, "attributes": {}}


def soft(name: str) -> PutLinks:
    return PutLinks(ID, {name: {"class": "H5L_TYPE_SOFT", "h5path": "/"}})


async def made(**options: str) -> tuple[MemoryStore, DataService]:
    """Return a store with a record, by default a large one, and the node that has put it there."""
    store = MemoryStore()
    node = open_node(store)
    await change(node, CreateObject(ID, record(**options)))
    return store, node


async def keys(store: ObjectStore) -> list[str]:
    return [entry.key async for page in store.list("") for entry in page.entries]


async def delta_keys(store: ObjectStore) -> list[str]:
    return [key for key in await keys(store) if is_delta_key(key)]


async def stored(store: ObjectStore, key: str) -> Any:
    """Return the record of an object, without its checksum."""
    return json.loads(remove_checksum((await store.get(key)).data))


def test_keys_of_deltas_have_seven_components_and_follow_the_record() -> None:
    for id in (ROOT, GROUP, DATASET):
        key = storage_key(id)
        beside = delta_key(key, "0" * 16)
        assert beside.count("/") == 6
        assert beside > key
        assert beside.startswith(key.rpartition("/")[0])
        assert is_delta_key(beside)
        assert not is_delta_key(key)


def test_the_limit_is_that_of_the_settings() -> None:
    assert DataSettings().large_record_size == LARGE_RECORD


async def test_a_change_of_a_large_record_is_one_small_put() -> None:
    store = CountingStore(MemoryStore())
    node = open_node(store)
    await change(node, CreateObject(ID, record()))
    assert store.calls == {"delete": 1, "put_if_absent": 2}
    store.reset()
    await change(node, soft("a"))
    await change(node, PutAttributes(ID, {"b": stored_attribute(1)}))
    assert store.calls == {"put_if_match": 2}
    assert store.bytes_in < 800
    store.reset()
    fresh = open_node(store)
    found = await read(fresh)
    assert (list(found["links"]), found["attributes"]["b"]["value"]) == (["a"], 1)
    assert store.calls == {"get": 2}


async def test_what_is_large_is_worked_on_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delta is sealed, decoded and applied beside other requests."""
    seen: list[tuple[str, bool]] = []
    loop = threading.current_thread()

    def watch(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            seen.append((name, threading.current_thread() is loop))
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    watch(RecordDelta, "apply")
    watch(record_objects, "decode_delta")
    store = MemoryStore()
    node = open_node(store)
    await change(node, CreateObject(ID, record(long=300 * LONG)))
    await change(node, PutAttributes(ID, {"a": stored_attribute(150 * LONG)}))
    await read(node := open_node(store))
    watch(RecordDelta, "encode")
    await change(node, DeleteObject(ID))
    assert seen == [("decode_delta", False), ("apply", False), ("encode", False)]


async def test_a_base_is_stored_again_by_four_calls() -> None:
    store = CountingStore(MemoryStore())
    node = open_node(store)
    await change(node, CreateObject(ID, record()))
    puts = 0
    while store.puts < 3 or store.calls["delete_if_match"] == 0:
        puts += 1
        store.reset()
        await change(node, soft(f"{puts}"))
    assert store.calls == {"put_if_match": 2, "put_if_absent": 1, "delete_if_match": 1}
    assert puts > 3
    assert len(await delta_keys(store)) == 1
    assert list((await stored(store, storage_key(ID)))["links"]) == [str(n + 1) for n in range(puts)]
    assert list((await read(open_node(store)))["links"]) == [str(n + 1) for n in range(puts)]


async def test_a_record_becomes_large_and_small_again() -> None:
    store, node = await made(long="")
    assert await delta_keys(store) == []
    await change(node, PutAttributes(ID, {"a": stored_attribute(LONG)}))
    assert len(await delta_keys(store)) == 1
    for number in range(40):
        await change(node, PutAttributes(ID, {"b": stored_attribute(number)}, replace=True))
        assert (await read(open_node(store)))["attributes"]["b"]["value"] == number
    await change(node, DeleteAttributes(ID, ("a",)))
    while await delta_keys(store):
        await change(node, PutAttributes(ID, {"b": stored_attribute(-number)}, replace=True))
        number += 1
    base = await stored(store, storage_key(ID))
    assert (list(base["attributes"]), base.keys()) == (["b"], record().keys() | {"lastModified"})


async def test_the_base_is_a_record_as_any_that_says_what_it_needs() -> None:
    store, _ = await made()
    base = await stored(store, storage_key(ID))
    [key] = await delta_keys(store)
    assert key == delta_key(storage_key(ID), base["delta"])
    schema = {"version": 1, "readFeatures": ["deltas"], "writeFeatures": []}
    assert base == record() | {"delta": base["delta"], "schema": schema}
    assert await read(open_node(store)) == record()


async def test_features_of_a_large_record_are_kept() -> None:
    store = MemoryStore()
    appended = record(DATASET) | {"appends": {"dim": 0, "parts": []}}
    await change(open_node(store), CreateObject(DATASET, appended))
    base = await stored(store, storage_key(DATASET))
    assert base["schema"] == {"version": 1, "readFeatures": ["deltas"], "writeFeatures": ["appends"]}
    assert await read(open_node(store), DATASET) == appended


async def test_the_generation_of_a_large_dataset_counts_its_changes() -> None:
    store = MemoryStore()
    node = open_node(store)
    shape = {"class": "H5S_SIMPLE", "dims": [4], "maxdims": [4]}
    await change(node, CreateObject(DATASET, record(DATASET) | {"shape": shape}))
    await change(node, SetExtent(DATASET, (2,)))  # noqa: F405
    assert "generation" not in await stored(store, storage_key(DATASET))
    assert await open_node(store)._records.generation(DATASET) == 1
    await change(node, DeleteObject(DATASET))
    assert await open_node(store)._records.generation(DATASET) == 0


async def test_a_deleted_record_leaves_nothing() -> None:
    store = MemoryStore()
    node = open_node(store)
    for _ in range(2):
        await change(node, CreateObject(ID, record()))
        await change(node, soft("a"))
        await change(node, DeleteObject(ID))
        assert await keys(store) == []


async def test_a_tree_is_deleted_with_its_deltas_after_its_records() -> None:
    store = MemoryStore()
    deleted: list[str] = []

    class Noting(FaultyStore):
        async def delete_if_match(self, key: str, etag: str) -> None:
            deleted.append(key)
            await super().delete_if_match(key, etag)

    node = open_node(Noting(store))
    for id in (ROOT, GROUP):
        await change(node, CreateObject(id, record(id)))
    await node.send(DeleteTree(ROOT))
    assert await keys(store) == []
    for id in (ROOT, GROUP):
        folder = storage_key(id).removesuffix(".group.json") + ".record/"
        [beside] = [key for key in deleted if key.startswith(folder)]
        assert deleted.index(storage_key(id)) < deleted.index(beside)


async def test_a_record_without_its_delta_is_not_believed() -> None:
    store, _ = await made()
    [key] = await delta_keys(store)
    await store.delete(key)
    [outcome] = await open_node(store).send(ReadObjects((ID,)))
    assert outcome.failure is not None
    assert outcome.failure.kind == ErrorKind.CORRUPT
    assert ".record/" in outcome.failure.message


@pytest.mark.parametrize("token", ["../x", 5, ""])
async def test_a_delta_of_an_unknown_name_is_corrupt(token: object) -> None:
    store = MemoryStore()
    await store.put(storage_key(ID), json.dumps(record() | {"delta": token}).encode())
    with pytest.raises(Corrupt, match="'delta'"):
        await read(open_node(store))


async def test_what_cannot_be_tidied_up_does_not_fail_a_change(caplog: pytest.LogCaptureFixture) -> None:
    faulty = FaultyStore(MemoryStore())
    node = open_node(faulty, 1)
    await change(node, CreateObject(ID, record(long="")))
    faulty.fail_before("delete_if_match")
    with caplog.at_level(logging.WARNING):
        await change(node, PutAttributes(ID, {"a": stored_attribute(LONG)}))
    assert "left over" in caplog.text
    assert len(await delta_keys(faulty)) == 2
    assert (await read(open_node(faulty, 1)))["attributes"]["a"]["value"] == LONG


async def test_a_new_base_that_comes_too_late_leaves_no_delta() -> None:
    faulty = FaultyStore(MemoryStore())
    await change(open_node(faulty), CreateObject(ID, record(long="")))
    node, other = open_node(faulty), open_node(faulty)
    await read(node)
    await read(other)
    fault = faulty.hang("put_if_match", storage_key(ID))
    growing = await fault.holding(change(node, PutAttributes(ID, {"a": stored_attribute(LONG)})))
    await change(other, soft("b"))
    fault.release()
    await growing
    assert len(await delta_keys(faulty)) == 1
    found = await read(open_node(faulty))
    assert (list(found["attributes"]), list(found["links"])) == (["a"], ["b"])


Act = Callable[[DataNode], Awaitable[object]]


async def grow(node: DataNode) -> None:
    """Change a record until its base was stored again."""
    for number in range(8):
        await change(node, PutAttributes(ID, {"n": stored_attribute(number)}, replace=True))


async def become_large(node: DataNode) -> None:
    await change(node, PutAttributes(ID, {"n": stored_attribute(0), "long": stored_attribute(LONG)}))


async def delete(node: DataNode) -> None:
    await change(node, soft("a"))
    await change(node, DeleteObject(ID))


async def create(node: DataNode) -> None:
    await delete(node)
    await change(node, CreateObject(ID, record() | {"attributes": {"n": stored_attribute(0)}}))


async def run_to_the_crash(store: MemoryStore, point: CrashPoint, act: Act) -> tuple[bool, int]:
    """Run `act` on a node that dies there; say whether it got there, and how many changes were acknowledged."""
    crashing = CrashingStore(store)
    node = open_node(crashing)
    acknowledged = 0

    class Noting:
        async def send(self, message: Any) -> Any:
            nonlocal acknowledged
            outcomes = await node.send(message)
            for outcome in outcomes:
                outcome.unwrap()
            acknowledged += 1
            return outcomes

    crashing.arm(point)
    acting = asyncio.ensure_future(act(Noting()))  # type: ignore[arg-type]
    died = asyncio.create_task(crashing.died.wait())
    await asyncio.wait((acting, died), return_when=asyncio.FIRST_COMPLETED)
    died.cancel()
    reached = not acting.done()
    if reached:
        acting.cancel()
    else:
        acting.result()
    await crashing.settle()
    return reached, acknowledged


def state_of(found: dict[str, Any] | None) -> tuple[object, ...] | None:
    return None if found is None else (found["attributes"].get("n", {}).get("value"), sorted(found["links"]))


@pytest.mark.parametrize("act", [grow, become_large, delete, create])
async def test_a_node_that_dies_leaves_what_was_acknowledged(act: Act) -> None:
    """Or one change more; and the record can be changed afterwards."""
    states: list[tuple[object, ...] | None] = []

    async def start() -> MemoryStore:
        return (await made(long="" if act is become_large else LONG))[0]

    async def now(store: MemoryStore) -> tuple[object, ...] | None:
        [outcome] = await open_node(store).send(ReadObjects((ID,)))
        gone = outcome.failure is not None and outcome.failure.kind != "corrupt"
        return None if gone else state_of(outcome.unwrap())

    store = await start()

    class Watching:
        async def send(self, message: Any) -> Any:
            outcomes = await watched.send(message)
            states.append(await now(store))
            return outcomes

    watched = open_node(store)
    states.append(await now(store))
    await act(Watching())  # type: ignore[arg-type]
    points = 0
    for applied, methods in ((False, METHODS), (True, CHANGES)):
        skip = 0
        while True:
            store = await start()
            reached, acknowledged = await run_to_the_crash(
                store, CrashPoint(skip, applied, fatal=True, methods=methods), act
            )
            found = await now(store)
            assert found in states[acknowledged : acknowledged + 2], f"{skip} {applied}"
            next_node = open_node(store)
            if found is None:
                await change(next_node, CreateObject(ID, record()))
            for number in range(100, 106):
                await change(next_node, PutAttributes(ID, {"n": stored_attribute(number)}, replace=True))
                assert state_of(await read(open_node(store))) == (number, found[1] if found else [])
            if not reached:
                break
            skip, points = skip + 1, points + 1
    assert points >= 6


async def test_only_the_state_that_was_seen_is_deleted() -> None:
    """A delta that another node has added to is not the one that a deletion was decided on."""
    store = FaultyStore(MemoryStore())
    await change(open_node(store), CreateObject(ID, record()))
    one, other = open_node(store), open_node(store)
    await read(one)
    await change(other, soft("a"))
    assert list((await change(one, DeleteObject(ID)))["links"]) == ["a"]
    assert await keys(store) == []


TOKEN = "0123456789abcdef"
KEY = f"db/1/g/2/.record/v1/{TOKEN}.json"
LARGE = 10**9
NAMES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=2, unique=True)


def put_links(names: list[str]) -> RecordChange:
    return PutLinks("g-1", {name: {"class": "H5L_TYPE_SOFT", "h5path": "/"} for name in names})


def put_attributes(names: list[str], value: int) -> RecordChange:
    return PutAttributes("g-1", {name: {"value": value} for name in names}, replace=True)


DELTA_CHANGES = st.one_of(
    NAMES.map(put_links),
    NAMES.map(lambda names: DeleteLinks("g-1", tuple(names), skip_missing=True)),
    st.builds(put_attributes, NAMES, st.integers(0, 3)),
    NAMES.map(lambda names: DeleteAttributes("g-1", tuple(names))),
    st.dictionaries(st.sampled_from("xyz"), st.integers(0, 3)).map(
        lambda fields: SetFields("g-1", fields, renew=True)
    ),
)


def changed(record: dict[str, Any], change: RecordChange) -> dict[str, Any]:
    try:
        return change_record(change, record, 1.0, DeletedNames())[0] or {}
    except HsparseError:
        return record


def ordered(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return a record and the order in its long dicts, to compare."""
    return record, list(record.get("links", ())), list(record["attributes"])


@given(
    st.lists(DELTA_CHANGES, max_size=6),
    st.lists(st.one_of(DELTA_CHANGES, st.none()), max_size=12),
    st.booleans(),
)
def test_a_delta_and_its_base_are_the_record(
    first: list[RecordChange], later: list[RecordChange | None], has_links: bool
) -> None:
    """None stands for a restart: the delta is read from what was stored."""
    record: dict[str, Any] = {"id": "g-1", "attributes": {}} | ({"links": {}} if has_links else {})
    for change in first:
        record = changed(record, change)
    base, delta = deepcopy(record), RecordDelta(TOKEN, LARGE)
    for step in later:
        if step is None:
            data = delta.encode()
            delta, sealed = decode_delta(data, TOKEN, LARGE, KEY)
            assert not sealed
            continue
        after = changed(record, step)
        kept = delta
        delta = delta.then(record, after, *changed_entries(step)) or kept
        assert delta is not kept
        record = after
    found = deepcopy(base)
    delta.apply(found)
    assert ordered(found) == ordered(record)


def test_a_base_is_stored_again_when_deltas_have_cost_as_much() -> None:
    """Then small changes and large ones both cost about the least: twice the base, however often it is changed."""
    base = 10_000
    for count in (1, 20):
        record: dict[str, Any] = {"links": {}}
        delta: RecordDelta | None = RecordDelta(TOKEN, base)
        written = states = 0
        while delta is not None:
            written, states = delta.written, states + 1
            after = changed(record, change := put_links([f"{states}-{n}" for n in range(count)]))
            delta = delta.then(record, after, *changed_entries(change))
            record = after
            if delta is not None:
                delta = delta.stored(len(delta.encode()))
        assert base / 2 < written <= base * 1.1
        assert states > 3


def test_a_table_that_another_change_has_replaced_is_stored_as_a_whole() -> None:
    record: dict[str, Any] = {"links": {}, "attributes": {}}
    delta = RecordDelta(TOKEN, LARGE)
    assert delta.then(record, {"links": {"a": {}}, "attributes": {}}, "attributes", ("a",)) is None
    assert delta.then(record, {"attributes": {}}, "links", ("a",)) is None


def test_a_sealed_delta_says_so() -> None:
    delta = RecordDelta(TOKEN, 5).then({}, {"x": 1}, "", ()) or RecordDelta(TOKEN, LARGE)
    found, sealed = decode_delta(delta.encode(sealed=True), TOKEN, 5, KEY)
    assert sealed
    assert found.fields == delta.fields


WHOLE = json.loads(remove_checksum(RecordDelta(TOKEN, 0).encode()))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        *(
            json.dumps({name: value for name, value in WHOLE.items() if name != gone}).encode()
            for gone in WHOLE
        ),
        *(json.dumps(WHOLE | {name: 3.5}).encode() for name in WHOLE),
        json.dumps(WHOLE | {"links": {"removed": {}, "put": {}}}).encode(),
        json.dumps(WHOLE | {"links": {"removed": [[]], "put": {}}}).encode(),
    ],
)
def test_what_is_no_delta_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match=TOKEN):
        decode_delta(data, TOKEN, 0, KEY)
