"""The form of records: memory, checksum, schema and size."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from contextvars import Token
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.dn import record_changes as record_size
from hsparse.dn import record_objects, records
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.record_form import (
    RecordCodec,
    add_checksum,
    check_checksum,
    drop_checksum,
    has_checksum,
    memory_of_json,
    wrong_part,
)
from hsparse.dn.record_objects import RecordDelta, WholeRecord, decode_delta
from hsparse.dn.service import DataService
from hsparse.errors import Corrupt, ErrorKind, Unsupported
from hsparse.model.acl import Principal
from hsparse.model.ids import storage_key
from hsparse.wire.record_message import (
    ChangeObjects,
    CreateObject,
    DeleteAttributes,
    DeleteLinks,
    Outcome,
    PutAttributes,
    PutLinks,
    ReadObjects,
    RecordChange,
)
from tests.sn.test_co_tenant import OWNER, PRIVATE, paths_of, private_domain
from tests.sn.value_client import SETTINGS, create, sparse, value_client
from tests.support.endurance import repeats
from tests.support.rest_client import ROUTES, RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
from tests.testing.record_conformance import remove_checksum

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


CODEC_CODEC = RecordCodec("key")


def weight(record: dict[str, Any]) -> int:
    data = CODEC_CODEC.encode(record)
    assert CODEC_CODEC.decode(data) == record
    return CODEC_CODEC.nbytes(record, data)


@pytest.mark.parametrize(
    "more",
    [
        {"links": {str(i): {"id": "g-1"} for i in range(100)}},
        {"attributes": {str(i): {"value": 1} for i in range(100)}},
        {"attributes": {"a": {"value": list(range(1000))}}},
        {"creationProperties": {"layout": {"chunks": {str(i): [i, 9] for i in range(100)}}}},
    ],
)
def test_what_is_long_counts(more: dict[str, Any]) -> None:
    assert weight(more) > weight({}) + 8_000


def test_work_is_a_part_of_the_memory() -> None:
    links = {str(n): {"class": "H5L_TYPE_HARD", "id": "g-" + "0" * 36, "created": 1.5} for n in range(100)}
    assert 2_500 < weight({"links": links}) // WholeRecord.speed < 3_500


ARRAY = {"class": "H5T_ARRAY", "base": {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}, "dims": [2, 2]}
CODEC_SHAPE = {"class": "H5S_SIMPLE", "dims": [10, 10], "maxdims": [10, 0]}
LAYOUT = {"class": "H5D_CHUNKED", "dims": [5, 5]}


@pytest.mark.parametrize(
    "record",
    [
        {"id": "g-" + "0" * 36, "root": "g-" + "1" * 36, "created": 1.5, "attributes": {}, "links": {}},
        {
            "links": {
                f"g{n}": {"class": "H5L_TYPE_HARD", "id": f"g-{n:036}", "created": 1.5 * n} for n in range(99)
            }
        },
        {
            "attributes": {
                f"a{n}": {"type": ARRAY, "shape": CODEC_SHAPE, "value": [1.5, 2.5]} for n in range(9)
            }
        },
        {"attributes": {"a": {"value": [1.5 * n for n in range(999)]}}},
        {"attributes": {"a": {"value": [f"text {n}" for n in range(999)]}}},
        {
            "type": "H5T_IEEE_F32LE",
            "shape": CODEC_SHAPE,
            "layout": LAYOUT,
            "creationProperties": {"layout": LAYOUT},
        },
        {
            "links": {
                f"g{n}": {"class": "H5L_TYPE_HARD", "id": f"g-{n:036}", "created": 1.5} for n in range(2000)
            }
        },
        {"a": "x" * 9999},
    ],
)
def test_the_memory_of_json_is_estimated(record: dict[str, Any]) -> None:
    data = orjson.dumps(record)
    gc.collect()
    tracemalloc.start()
    parsed = [orjson.loads(data) for _ in range(64)]  # the first ones take what was freed before
    nbytes = tracemalloc.get_traced_memory()[0] / len(parsed)
    tracemalloc.stop()
    assert 0.8 * nbytes < memory_of_json(data) < 1.7 * nbytes


def test_floats_that_are_no_json_are_read_by_name() -> None:
    data = b'{"a": {"value": [NaN, Infinity, -Infinity, 1.5]}, "b": "NaN"}'
    assert CODEC_CODEC.decode(data) == {"a": {"value": ["nan", "inf", "-inf", 1.5]}, "b": "NaN"}


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"NaN", b"{'NaN': 1}", b'{"a": "NaN', b"\xff NaN"])
def test_what_is_no_record_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="key"):
        CODEC_CODEC.decode(data)


ROOT = "g-00000001-00000002-8888-888988-88888a"
GROUP = "g-00000001-00000002-0000-000000-000003"
OTHER = "g-00000001-00000002-0000-000000-000005"
DATASET = "d-00000001-00000002-0000-000000-000004"
TYPE = "t-00000001-00000002-0000-000000-000004"
SHAPE = {"class": "H5S_SIMPLE", "dims": [10], "maxdims": [10]}
OBJECT: dict[str, Any] = {"root": ROOT, "created": 1.5, "lastModified": 2.5, "attributes": {}}
RECORDS: dict[str, dict[str, Any]] = {
    GROUP: OBJECT | {"id": GROUP, "links": {"x": {"class": "H5L_TYPE_HARD", "id": DATASET}}},
    DATASET: OBJECT | {"id": DATASET, "type": "H5T_STD_I8LE", "shape": SHAPE},
    TYPE: OBJECT | {"id": TYPE, "type": "H5T_STD_I8LE"},
    "/home/f.h5": {"root": ROOT, "owner": "ada", "acls": {}, "created": 1.5, "lastModified": 2.5},
}
every_record = pytest.mark.parametrize("id", RECORDS)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def flipped(data: bytes) -> list[bytes]:
    """Return the bytes with each of their bits flipped."""
    return [
        data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
        for place in range(len(data))
        for bit in range(8)
    ]


@given(st.dictionaries(st.text(), JSON, min_size=1))
def test_json_with_a_checksum_is_the_same_json(value: dict[str, Any]) -> None:
    data = orjson.dumps(value)
    stored = add_checksum(data)
    assert has_checksum(stored)
    assert not has_checksum(data)
    check_checksum(stored, "key")
    found = json.loads(stored)
    assert found.keys() == value.keys() | {"crc32"}
    drop_checksum(found)
    assert found == {name: one for name, one in value.items() if name != "crc32"}
    assert remove_checksum(stored) == data


@every_record
def test_a_flipped_bit_in_a_record_is_found(id: str) -> None:
    """One in the checksum's own key makes a record without a checksum of it, which says the same."""
    codec = RecordCodec(storage_key(id))
    data = codec.encode(RECORDS[id])
    assert codec.decode(data) == RECORDS[id]
    for damaged in flipped(data):
        if has_checksum(damaged):
            with pytest.raises(Corrupt, match=re.escape(storage_key(id))):
                codec.decode(damaged)
            continue
        with suppress(Corrupt):
            found = codec.decode(damaged)
            assert RECORDS[id].items() <= found.items(), damaged
            assert len(found) <= len(RECORDS[id]) + 1


def test_a_flipped_bit_in_a_delta_is_found() -> None:
    token = "0123456789abcdef"
    before: dict[str, Any] = {"links": {}, "attributes": {}}
    delta = RecordDelta(token, 10**6).then(before, before | {"links": {"a": {"id": GROUP}}}, "links", ("a",))
    assert delta is not None
    data = delta.encode()
    found, _ = decode_delta(data, token, 10**6, "key")
    assert found.links == delta.links
    for damaged in flipped(data):
        if has_checksum(damaged):
            with pytest.raises(Corrupt, match="key"):
                decode_delta(damaged, token, 10**6, "key")
            continue
        with suppress(Corrupt):
            found, sealed = decode_delta(damaged, token, 10**6, "key")
            assert (found.links, found.fields, sealed) == (delta.links, delta.fields, False)


@every_record
@pytest.mark.parametrize("dumps", [orjson.dumps, lambda value: json.dumps(value).encode()])
def test_a_record_that_another_program_has_changed_is_read(id: str, dumps: Any) -> None:
    """HSDS and older versions of hsparse keep the checksum of the record that they have read."""
    codec = RecordCodec(storage_key(id))
    read = json.loads(codec.encode(RECORDS[id]))
    changed = read | {"lastModified": 3.5}
    assert codec.decode(dumps(changed)) == RECORDS[id] | {"lastModified": 3.5}
    moved = {"crc32": changed.pop("crc32"), **changed}
    assert codec.decode(dumps(moved)) == RECORDS[id] | {"lastModified": 3.5}


@every_record
def test_a_record_without_a_checksum_is_read(id: str) -> None:
    assert RecordCodec(storage_key(id)).decode(orjson.dumps(RECORDS[id])) == RECORDS[id]


@pytest.mark.parametrize("id", [GROUP, DATASET, TYPE])
def test_a_record_without_a_checksum_must_be_that_of_its_key(id: str) -> None:
    codec = RecordCodec(storage_key(id))
    other_root = "g-00000001-00000003-8888-888988-88888b"
    for wrong in ({"id": OTHER}, {"id": "g-1"}, {"id": "d-x"}, {"root": OTHER}, {"root": other_root}):
        with pytest.raises(Corrupt, match=next(iter(wrong))):
            codec.decode(orjson.dumps(RECORDS[id] | wrong))
    for name in RECORDS[id].keys() - {"created", "lastModified"}:
        lacking = {key: value for key, value in RECORDS[id].items() if key != name}
        with pytest.raises(Corrupt, match=name):
            codec.decode(orjson.dumps(lacking))


def test_other_objects_have_no_checksum() -> None:
    assert RecordCodec("db/.jobs/1.json").encode({"id": "j-1"}) == b'{"id":"j-1"}'


CODEC = RecordCodec("db/1/.group.json")
INT = "H5T_STD_I32LE"
CHUNKED = {"class": "H5D_CHUNKED", "dims": [4]}


def stored(**schema: Any) -> bytes:
    return json.dumps({"id": "g-1", "schema": {"version": 1} | schema}).encode()


def test_a_record_without_new_features_is_stored_as_0_1_does() -> None:
    """But for a checksum, which 0.1 ignores."""
    assert remove_checksum(CODEC.encode({"id": "g-1", "links": {}})) == b'{"id":"g-1","links":{}}'


def test_an_append_under_way_is_a_feature() -> None:
    record = {"id": "d-1", "appends": {"dim": 0, "parts": [], "dropped": {"a": 1.0}}}
    data = CODEC.encode(record)
    assert json.loads(data)["schema"] == {"version": 1, "readFeatures": [], "writeFeatures": ["appends"]}
    assert CODEC.decode(data) == record


@pytest.mark.parametrize(
    ("schema", "named"), [({"version": 2}, "version 2"), ({"readFeatures": ["spirals"]}, "'spirals'")]
)
def test_what_cannot_be_read_is_refused(schema: dict[str, Any], named: str) -> None:
    with pytest.raises(Unsupported) as refused:
        CODEC.decode(stored(**schema))
    for part in ("db/1/.group.json", named, "newer hsparse"):
        assert part in refused.value.message


def test_a_schema_of_an_unknown_form_is_corrupt() -> None:
    with pytest.raises(Corrupt, match=r"db/1/\.group\.json"):
        CODEC.decode(stored(writeFeatures=3))


@asynccontextmanager
async def next_server(store: MemoryStore) -> AsyncIterator[RestClient]:
    """A client of another server over the store."""
    clock = SystemClock()
    node = DataService(store, clock)
    client = await RestClient(node, clock, Principal("admin", admin=True), settings=SETTINGS).open()
    client.domain = "/home/admin/values.h5"
    yield client
    await client.close()
    await node.close()


async def demand(store: MemoryStore, id: str, **schema: Any) -> None:
    """Let the record of an object need something."""
    record = json.loads((await store.get(storage_key(id))).data)
    await store.put(storage_key(id), json.dumps(record | {"schema": {"version": 1} | schema}).encode())


async def content(store: MemoryStore) -> dict[str, bytes]:
    keys = [entry.key async for page in store.list("") for entry in page.entries]
    return {key: (await store.get(key)).data for key in keys}


@pytest.mark.parametrize("layout", [CHUNKED, sparse(4)], ids=["dense", "sparse"])
@pytest.mark.parametrize("shrunk", [False, True])
async def test_an_unknown_write_feature_makes_it_read_only(layout: dict[str, Any], shrunk: bool) -> None:
    store = MemoryStore()
    async with value_client(store) as client:
        dataset = await create(client, [8], INT, maxdims=[0], layout=layout)
        assert (await client("PUT", f"{dataset}/value", {"value": list(range(8))})).status == 200
        if shrunk:  # a chunk message then tells the generation before the record is read
            assert (await client("PUT", f"{dataset}/shape", {"shape": [6]})).status == 201
        attribute = {"type": INT, "value": 1}
        assert (await client("PUT", f"{dataset}/attributes/a", attribute)).status == 201
    await demand(store, dataset.removeprefix("/datasets/"), writeFeatures=["spirals"])
    before = await content(store)
    async with next_server(store) as client:
        count = 6 if shrunk else 8
        for _ in range(2):
            assert (await client("GET", f"{dataset}/value"))["value"] == list(range(count))
            assert (await client("GET", f"{dataset}/attributes/a"))["value"] == 1
            changes: list[tuple[str, str, Any]] = [
                ("PUT", f"{dataset}/value", {"value": [9] * count}),
                ("PUT", f"{dataset}/value", {"append": 1, "value": [9]}),
                ("PUT", f"{dataset}/shape", {"shape": [3]}),
                ("PUT", f"{dataset}/shape", {"shape": [30]}),
                ("PUT", f"{dataset}/attributes/b", attribute),
                ("DELETE", f"{dataset}/attributes/a", None),
                ("DELETE", dataset, None),
            ]
            if layout is not CHUNKED:
                changes.append(("DELETE", f"{dataset}/value?select=[0:2]", None))
            for method, path, body in changes:
                path, _, select = path.partition("?select=")
                reply = await client(method, path, body, **({"select": select} if select else {}))
                assert (reply.status, reply["error"]["kind"]) == (400, "unsupported"), (method, path)
                assert "'spirals'" in reply["error"]["message"]
    assert await content(store) == before


async def test_an_object_with_an_unknown_read_feature_is_refused_alone() -> None:
    store = MemoryStore()
    async with value_client(store) as client:
        known = await create(client, [8], INT)
        unknown = await create(client, [8], INT)
    await demand(store, unknown.removeprefix("/datasets/"), readFeatures=["spirals"])
    before = (await store.get(storage_key(unknown.removeprefix("/datasets/")))).data
    async with next_server(store) as client:
        for method, path, body in (
            ("GET", unknown, None),
            ("GET", f"{unknown}/value", None),
            ("PUT", f"{unknown}/value", {"value": [1] * 8}),
            ("DELETE", unknown, None),
        ):
            reply = await client(method, path, body)
            assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
            assert "'spirals'" in reply["error"]["message"]
        assert (await client("GET", f"{known}/value")).status == 200
        assert (await client("PUT", f"{known}/value", {"value": [1] * 8})).status == 200
    assert (await store.get(storage_key(unknown.removeprefix("/datasets/")))).data == before


LIMIT = 64 * 1024
ID, OTHER_ID = (f"g-00000000-00000000-000{number}-000000-000000" for number in (1, 2))


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DataService]:
    """A node with a small limit, and a record."""
    monkeypatch.setattr(record_size, "UNMEASURED_BYTES", 1024)
    node = DataService(MemoryStore(), ManualClock(), DataSettings(max_record_size=LIMIT))
    await made(node)
    yield node
    await node.close()


async def change(node: DataService, *changes: RecordChange) -> list[Outcome]:
    return list(await node.send(ChangeObjects(changes)))


def attribute(size: int) -> dict[str, Any]:
    return {"type": "H5T_STD_I8LE", "shape": {"class": "H5S_SCALAR"}, "value": "a" * size, "created": 1.0}


async def made(node: DataService) -> None:
    record = {"id": ID, "root": ID, "links": {}, "attributes": {}, "created": 1.0}
    (outcome,) = await change(node, CreateObject(ID, record))
    outcome.unwrap()


async def size_of(node: DataService) -> int:
    (outcome,) = await node.send(ReadObjects((ID,)))
    return len(orjson.dumps(outcome.unwrap()))


@pytest.mark.parametrize("size", [200, 3000, 30_000], ids=str)
async def test_attributes_grow_up_to_the_limit(node: DataService, size: int) -> None:
    refused = []
    for number in range(2 * LIMIT // size):
        (outcome,) = await change(node, PutAttributes(ID, {f"a{number}": attribute(size)}))
        if outcome.failure is not None:
            assert outcome.failure.kind == ErrorKind.TOO_LARGE
            assert "max_record_size" in outcome.failure.message
            refused.append(number)
    assert refused == list(range(refused[0], 2 * LIMIT // size))
    assert LIMIT - 2 * size - 1000 < await size_of(node) <= LIMIT
    (gone,) = await change(node, DeleteAttributes(ID, ("a0",)))
    assert gone.failure is None
    (again,) = await change(node, PutAttributes(ID, {"b0": attribute(size)}))
    assert again.failure is None


async def test_changes_of_one_put_are_measured_together(node: DataService) -> None:
    puts = [PutAttributes(ID, {f"a{number}": attribute(20_000)}) for number in range(10)]
    outcomes = await asyncio.gather(*(change(node, put) for put in puts))
    assert sum(outcome.failure is None for (outcome,) in outcomes) == 3
    assert await size_of(node) <= LIMIT


async def test_many_links_are_refused_and_can_be_deleted(node: DataService) -> None:
    link = {"class": "H5L_TYPE_HARD", "id": ID, "created": 1.0}
    few = {f"link{number}": link for number in range(100)}
    many = {f"more{number}": link for number in range(2000)}
    (kept,) = await change(node, PutLinks(ID, few))
    (refused,) = await change(node, PutLinks(ID, many))
    assert kept.failure is None
    assert refused.failure is not None
    (gone,) = await change(node, DeleteLinks(ID, tuple(few)))
    assert gone.failure is None


async def test_an_object_is_not_created_too_large(node: DataService) -> None:
    record = {
        "id": OTHER_ID,
        "root": ID,
        "links": {},
        "attributes": {"a": attribute(2 * LIMIT)},
        "created": 1.0,
    }
    (outcome,) = await change(node, CreateObject(OTHER_ID, record))
    assert outcome.failure is not None
    assert outcome.failure.kind == ErrorKind.TOO_LARGE


@pytest.mark.parametrize("cached", [False, True])
async def test_large_records_are_read_in_turn(monkeypatch: pytest.MonkeyPatch, cached: bool) -> None:
    monkeypatch.setattr(record_objects, "LARGE_READ", 1024)
    monkeypatch.setattr(records, "LARGE_READ", 1024)
    monkeypatch.setattr(records, "READ_MEMORY", 1024)
    store = MemoryStore()
    first = DataService(store, ManualClock())
    await made(first)
    (outcome,) = await change(first, PutAttributes(ID, {"a": attribute(20_000)}))
    outcome.unwrap()
    node = first if cached else DataService(store, ManualClock())

    async def read() -> Token[RequestTrace | None]:
        token = begin_trace(RequestTrace("r"))
        (outcome,) = await node.send(ReadObjects((ID,)))
        outcome.unwrap()
        return token

    token = await read()
    waiting = asyncio.create_task(read())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    end_trace(token)
    await waiting
    await node.close()
