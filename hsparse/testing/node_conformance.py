"""What every `DataNode` must do, as tests over a fixture `node` on an empty store.

A test module of an implementation imports all of these by `*` and provides the fixture; none is to be
overridden.

Tests: tests/dn/test_service.py, tests/testing/test_dict_data_node.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparse.clock import ManualClock, SystemClock
from hsparse.errors import BadRequest, Conflict, ErrorKind, Gone, Moved
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.selection import Boxes, Orthogonal, Points, Selection, Span, gather, scatter
from hsparse.model.ids import (
    chunk_key,
    chunk_prefix,
    job_id_of_key,
    job_key_prefix,
    new_id,
    new_job_id,
    new_root_id,
    summary_id,
)
from hsparse.wire.chunk_message import (
    CountDefined,
    EraseChunks,
    FenceDeleted,
    FindElements,
    ReadChunks,
    ReadDefined,
    TrimChunks,
    UpdateElements,
    WriteChunks,
)
from hsparse.wire.message import DataNode, GetInfo
from hsparse.wire.record_message import (
    AbandonAppends,
    BeginAppend,
    ChangedLately,
    ChangeObjects,
    CreateObject,
    DeleteAttributes,
    DeleteLinks,
    DeleteObject,
    DeleteTree,
    EndAppend,
    EndTrim,
    Forget,
    ListKeys,
    Outcome,
    PutAcl,
    PutAttributes,
    PutLinks,
    PutRecord,
    ReadObjects,
    RecordChange,
    SetExtent,
    SettleChanges,
    UpdateJob,
    extents_of_change,
)

CLOCK = SystemClock()
INT = {"type": "H5T_STD_I32LE", "shape": {"class": "H5S_SCALAR"}, "value": 1}
HARD = {"class": "H5L_TYPE_HARD", "id": "g-1"}
DIMS = (6, 8)
SHUFFLE_DEFLATE = (Filter(2, (4,)), Filter(1, (1,)))


def new_group() -> tuple[str, dict[str, Any]]:
    id = new_root_id(CLOCK)
    return id, {"id": id, "root": id, "links": {}, "attributes": {}, "created": 1.0, "lastModified": 1.0}


async def change(node: DataNode, change: RecordChange) -> Outcome:
    return (await node.send(ChangeObjects((change,))))[0]


async def created(node: DataNode, **fields: Any) -> str:
    id, record = new_group()
    (await change(node, CreateObject(id, {**record, **fields}))).unwrap()
    return id


async def record_of(node: DataNode, id: str) -> dict[str, Any]:
    return (await node.send(ReadObjects((id,))))[0].unwrap()


def kind(outcome: Outcome) -> str | None:
    return None if outcome.failure is None else outcome.failure.kind


async def test_what_is_created_is_read(node: DataNode) -> None:
    id, record = new_group()
    outcome = await change(node, CreateObject(id, record))
    assert (outcome.created, outcome.changed, outcome.failure) == (True, True, None)
    assert await record_of(node, id) == record


async def test_records_keep_json_as_it_is(node: DataNode) -> None:
    value = {"list": [1, 2.5, None, "é", [True, {}]], "empty": [], "!": "x", "deep": {"a": {"b": [[]]}}}
    id = await created(node, odd=value)
    assert (await record_of(node, id))["odd"] == value


async def test_creating_twice_is_a_conflict(node: DataNode) -> None:
    id = await created(node)
    assert kind(await change(node, CreateObject(id, {"id": id}))) == ErrorKind.CONFLICT
    assert (await record_of(node, id))["root"] == id


async def test_what_never_was_is_not_found_and_what_was_deleted_is_gone(node: DataNode) -> None:
    id, _ = new_group()
    assert kind((await node.send(ReadObjects((id,))))[0]) == ErrorKind.NOT_FOUND
    assert kind(await change(node, DeleteObject(id))) == ErrorKind.NOT_FOUND
    id = await created(node)
    assert kind(await change(node, DeleteObject(id))) is None
    assert kind((await node.send(ReadObjects((id,))))[0]) == ErrorKind.GONE
    assert kind(await change(node, PutLinks(id, {"a": HARD}))) == ErrorKind.GONE


async def test_a_path_can_be_created_again(node: DataNode) -> None:
    path = "/home/user/file.h5"
    for owner in "ab":
        assert (await change(node, CreateObject(path, {"owner": owner}))).created
        assert (await record_of(node, path))["owner"] == owner
        assert kind(await change(node, DeleteObject(path))) is None


async def test_a_record_is_put_whatever_is_there(node: DataNode) -> None:
    id = "s-00000000-00000001"
    outcome = await change(node, PutRecord(id, {"n": 1, "lastModified": 5.0}))
    assert (outcome.changed, outcome.failure) == (True, None)
    assert (await change(node, PutRecord(id, {"m": 2, "lastModified": 4.0}))).changed
    assert await record_of(node, id) == {"m": 2, "lastModified": 4.0}


async def test_a_job_is_updated_until_it_has_ended(node: DataNode) -> None:
    id = new_job_id("ada", CLOCK)
    assert kind(await change(node, UpdateJob(id, {"done": 1}))) == ErrorKind.NOT_FOUND
    (await change(node, CreateObject(id, {"owner": "ada", "lastModified": 1.0}))).unwrap()
    record = (await change(node, UpdateJob(id, {"done": 1}))).unwrap()
    assert (record["owner"], record["done"]) == ("ada", 1)
    assert record["lastModified"] > 1.0
    (await change(node, UpdateJob(id, {"ended": 5.0, "status": "done"}))).unwrap()
    assert kind(await change(node, UpdateJob(id, {"done": 2}))) == ErrorKind.CONFLICT
    assert (await record_of(node, id))["done"] == 1


async def test_jobs_of_a_user_are_listed_by_age(node: DataNode) -> None:
    clock = ManualClock()
    made = {}
    for owner in ("ada", "ben", "ada"):
        clock.time += 1
        made[clock.time] = new_job_id(owner, clock)
        await change(node, CreateObject(made[clock.time], {"owner": owner}))
    listing = await node.send(ListKeys(job_key_prefix("ada")))
    assert [job_id_of_key(key) for key in listing.keys] == [id for _, id in sorted(made.items())][::2]
    (await change(node, DeleteObject(job_id_of_key(listing.keys[0])))).unwrap()
    assert len((await node.send(ListKeys(job_key_prefix("ada")))).keys) == 1


async def test_attributes(node: DataNode) -> None:
    id = await created(node)
    outcome = await change(node, PutAttributes(id, {"a": INT}))
    assert (outcome.created, outcome.changed) == (True, True)
    outcome = await change(node, PutAttributes(id, {"a": INT}))
    assert (outcome.created, outcome.changed, kind(outcome)) == (False, False, None)
    other = {**INT, "value": 2}
    assert kind(await change(node, PutAttributes(id, {"b": INT, "a": other}))) == ErrorKind.CONFLICT
    assert set((await record_of(node, id))["attributes"]) == {"a"}
    first = (await record_of(node, id))["attributes"]["a"]["created"]
    assert first > 0
    outcome = await change(node, PutAttributes(id, {"a": {**INT, "value": 3, "created": 9}}, replace=True))
    assert (outcome.created, outcome.changed) == (False, True)
    assert (await record_of(node, id))["attributes"]["a"]["created"] == first
    outcome = await change(node, PutAttributes(id, {"a": other}, replace=True))
    assert (outcome.created, outcome.changed) == (False, True)
    stored = (await record_of(node, id))["attributes"]["a"]
    assert stored["value"] == 2
    assert stored["created"] == first
    await change(node, PutAttributes(id, {"b": {**INT, "created": 7}}))
    assert (await record_of(node, id))["attributes"]["b"]["created"] == 7
    assert kind(await change(node, DeleteAttributes(id, ("a", "z")))) == ErrorKind.NOT_FOUND
    assert kind(await change(node, DeleteAttributes(id, ("a",)))) is None
    assert kind(await change(node, DeleteAttributes(id, ("a",)))) == ErrorKind.GONE
    outcome = await change(node, DeleteAttributes(id, ("a", "z"), skip_missing=True))
    assert (outcome.changed, kind(outcome)) == (False, None)
    assert (await change(node, DeleteAttributes(id, ("a", "b", "z"), skip_missing=True))).changed
    assert kind(await change(node, DeleteAttributes(id, ("b",)))) == ErrorKind.GONE
    assert kind(await change(node, DeleteAttributes(id, ("z",)))) == ErrorKind.NOT_FOUND


async def test_links(node: DataNode) -> None:
    id = await created(node)
    assert (await change(node, PutLinks(id, {"x": HARD, "y": HARD}))).created
    outcome = await change(node, PutLinks(id, {"x": HARD}))
    assert (outcome.created, outcome.changed, kind(outcome)) == (False, False, None)
    assert kind(await change(node, PutLinks(id, {"x": {**HARD, "id": "g-2"}}))) == ErrorKind.CONFLICT
    assert kind(await change(node, DeleteLinks(id, ("x", "z")))) == ErrorKind.NOT_FOUND
    assert kind(await change(node, DeleteLinks(id, ("x",)))) is None
    assert kind(await change(node, DeleteLinks(id, ("x",)))) == ErrorKind.GONE
    outcome = await change(node, DeleteLinks(id, ("x", "z"), skip_missing=True))
    assert (outcome.changed, kind(outcome)) == (False, None)
    assert kind(await change(node, DeleteLinks(id, ("z",)))) == ErrorKind.NOT_FOUND
    assert list((await record_of(node, id))["links"]) == ["y"]
    await change(node, PutLinks(id, {"then": {**HARD, "created": 7.25}}))
    assert (await record_of(node, id))["links"]["then"]["created"] == 7.25
    await change(node, PutLinks(id, {"then": {**HARD, "created": 8.25}}))
    assert (await record_of(node, id))["links"]["then"]["created"] == 7.25


async def test_changes_of_one_object_at_once_all_stay(node: DataNode) -> None:
    id = await created(node)
    names = [f"a{i}" for i in range(40)]
    await asyncio.gather(*(change(node, PutAttributes(id, {name: INT})) for name in names))
    assert set((await record_of(node, id))["attributes"]) == set(names)


async def test_an_acl_is_merged(node: DataNode) -> None:
    id = await created(node, acls={"me": {"read": True, "update": True}})
    assert not (await change(node, PutAcl(id, "me", {"update": False}, "b/home/me"))).created
    assert (await change(node, PutAcl(id, "you", {"read": True}, "b/home/me"))).created
    acls = (await record_of(node, id))["acls"]
    assert acls["me"]["read"] is True
    assert acls["me"]["update"] is False
    assert acls["you"] == {
        "create": False,
        "read": True,
        "update": False,
        "delete": False,
        "readACL": False,
        "updateACL": False,
        "domain": "b/home/me",
    }


async def test_a_change_of_an_object_is_recent_until_it_is_settled(node: DataNode) -> None:
    root, other = new_root_id(CLOCK), new_root_id(CLOCK)
    assert not await node.send(ChangedLately(root, 60.0))
    await change(node, CreateObject(root, {"id": root, "root": root, "attributes": {}}))
    assert await node.send(ChangedLately(root, 60.0))
    assert not await node.send(ChangedLately(root, 0.0))
    assert not await node.send(ChangedLately(other, 60.0))
    await node.send(SettleChanges(root))
    assert not await node.send(ChangedLately(root, 60.0))
    await change(node, PutRecord(summary_id(root), {}))
    assert kind(await change(node, DeleteAttributes(root, ("a",)))) == ErrorKind.NOT_FOUND
    assert not await node.send(ChangedLately(root, 60.0)), "neither a summary nor a failure is a change"
    await change(node, PutAttributes(root, {"a": INT}))
    assert await node.send(ChangedLately(root, 60.0))


async def test_extents(node: DataNode) -> None:
    shape = {"class": "H5S_SIMPLE", "dims": [4, 5], "maxdims": ["H5S_UNLIMITED", 10]}
    id = await created(node, shape=shape)
    assert (await change(node, SetExtent(id, (6, 5)))).unwrap()["shape"]["dims"] == [6, 5]
    assert (await change(node, SetExtent(id, (2,), extend_dim=0))).unwrap()["shape"]["dims"] == [8, 5]
    assert kind(await change(node, SetExtent(id, (8, 11)))) == ErrorKind.CONFLICT
    assert kind(await change(node, SetExtent(id, (8,)))) == ErrorKind.BAD_REQUEST
    shrunk = (await change(node, SetExtent(id, (3, 5)))).unwrap()
    assert shrunk["generation"] == 1
    assert shrunk["trim"]
    assert kind(await change(node, SetExtent(id, (4, 5)))) == ErrorKind.CONFLICT
    await change(node, EndTrim(id, 0))
    assert (await record_of(node, id))["trim"]
    await change(node, EndTrim(id, 1))
    assert "trim" not in await record_of(node, id)
    assert kind(await change(node, SetExtent(id, (4, 5)))) is None
    fixed = await created(node, shape={"class": "H5S_SIMPLE", "dims": [4]})
    assert kind(await change(node, SetExtent(fixed, (3,)))) == ErrorKind.BAD_REQUEST


async def test_an_extent_that_is_expected(node: DataNode) -> None:
    id = await created(node, shape={"class": "H5S_SIMPLE", "dims": [4], "maxdims": [0]})
    assert kind(await change(node, SetExtent(id, (2,), expect=(5,)))) == ErrorKind.CONFLICT
    assert (await record_of(node, id))["shape"]["dims"] == [4]
    assert (await change(node, SetExtent(id, (2,), expect=(4,)))).unwrap()["shape"]["dims"] == [2]


async def test_a_change_of_the_extent_with_a_token_happens_once(node: DataNode) -> None:
    id = await created(node, shape={"class": "H5S_SIMPLE", "dims": [4], "maxdims": [0]})
    first = SetExtent(id, (2,), extend_dim=0, token="a")  # noqa: S106
    for _ in range(2):
        record = (await change(node, first)).unwrap()
        assert extents_of_change(record, "a") == ((4,), (6,))
    await change(node, SetExtent(id, (3,), extend_dim=0, token="b"))  # noqa: S106
    record = (await change(node, first)).unwrap()
    assert record["shape"]["dims"] == [9]
    assert extents_of_change(record, "a") == ((4,), (6,))
    assert extents_of_change(record, "b") == ((6,), (9,))
    expecting = SetExtent(id, (5,), expect=(9,), token="c")  # noqa: S106
    for _ in range(2):
        assert (await change(node, expecting)).unwrap()["shape"]["dims"] == [5]


async def appendable(node: DataNode, dims: list[int]) -> str:
    """Create a dataset that can grow in dimension 0 without end, and in the others up to 10."""
    maxdims = [0, *(10 for _ in dims[1:])]
    return await created(node, shape={"class": "H5S_SIMPLE", "dims": dims, "maxdims": maxdims})


async def extent_of(node: DataNode, id: str) -> list[int]:
    dims: list[int] = (await record_of(node, id))["shape"]["dims"]
    return dims


async def test_appends_become_visible_in_order(node: DataNode) -> None:
    id = await appendable(node, [4, 5])
    for token, count in (("a", 2), ("b", 3), ("a", 2)):  # the last one again: a longer lease, no other part
        begun = (await change(node, BeginAppend(id, token, (count, 5), 0, 60.0))).unwrap()
    assert [part["token"] for part in begun["appends"]["parts"]] == ["a", "b"]
    waiting = (await change(node, EndAppend(id, "b"))).unwrap()
    assert [part["done"] for part in waiting["appends"]["parts"]] == [False, True]
    assert await extent_of(node, id) == [4, 5]
    assert "appends" not in (await change(node, EndAppend(id, "a"))).unwrap()
    assert await extent_of(node, id) == [9, 5]
    assert not (await change(node, EndAppend(id, "b"))).changed  # it is visible; said twice is said once


async def test_appends_that_are_refused(node: DataNode) -> None:
    id = await appendable(node, [4, 5])
    for slab, dim, error in (
        ((2, 6), 0, ErrorKind.MOVED),
        ((2,), 0, ErrorKind.BAD_REQUEST),
        ((4, 6), 1, ErrorKind.CONFLICT),
    ):
        assert kind(await change(node, BeginAppend(id, "a", slab, dim, 60.0))) == error
    (await change(node, BeginAppend(id, "a", (1, 5), 0, 60.0))).unwrap()
    assert kind(await change(node, BeginAppend(id, "b", (4, 1), 1, 60.0))) == ErrorKind.MOVED
    assert kind(await change(node, SetExtent(id, (1, 5)))) == ErrorKind.MOVED
    assert await extent_of(node, id) == [4, 5]


async def test_abandoned_appends_are_dropped_and_trimmed(node: DataNode) -> None:
    id = await appendable(node, [4, 5])
    for token in "ab":
        (await change(node, BeginAppend(id, token, (1, 5), 0, 60.0))).unwrap()
    assert not (await change(node, AbandonAppends(id, expired=True))).changed
    assert not (await change(node, AbandonAppends(id, "c"))).changed
    dropped = (await change(node, AbandonAppends(id, "a"))).unwrap()
    assert dropped["trim"]
    assert dropped["generation"] == 1
    for late in (
        EndAppend(id, "b"),
        BeginAppend(id, "b", (1, 5), 0, 60.0),
        BeginAppend(id, "c", (1, 5), 0, 60.0),
    ):
        assert kind(await change(node, late)) == ErrorKind.MOVED
    await change(node, EndTrim(id, 1))
    (await change(node, BeginAppend(id, "c", (1, 5), 0, -1.0))).unwrap()
    assert (await change(node, AbandonAppends(id, expired=True))).changed
    assert await extent_of(node, id) == [4, 5]


async def test_outcomes_come_in_the_order_asked(node: DataNode) -> None:
    ids = [await created(node, number=i) for i in range(5)]
    missing, _ = new_group()
    outcomes = await node.send(ReadObjects((*ids[::-1], missing)))
    assert [outcome.record and outcome.record["number"] for outcome in outcomes] == [4, 3, 2, 1, 0, None]


async def test_listing_and_deleting_a_tree(node: DataNode) -> None:
    root = await created(node)
    ids = [new_id("groups", root, CLOCK) for _ in range(3)]
    for id in ids:
        (await change(node, CreateObject(id, {"id": id}))).unwrap()
    other = await created(node)
    listing = await node.send(ListKeys("db/", limit=2))
    assert len(listing.keys) == 2
    assert listing.more
    rest = await node.send(ListKeys("db/", start_after=listing.keys[-1]))
    assert len(rest.keys) == 3
    assert not rest.more
    assert len((await node.send(ListKeys("db/", delimiter=True))).prefixes) == 2
    assert await node.send(DeleteTree(root)) == 4
    assert all(kind(outcome) for outcome in await node.send(ReadObjects((root, *ids))))
    assert (await record_of(node, other))["id"] == other


async def test_deleting_the_chunks_of_a_dataset(node: DataNode) -> None:
    about, other = spec(sparse=True), spec(sparse=True)
    parts = tuple(ChunkSelection((i, 0), Orthogonal.all(DIMS)) for i in range(5))
    for one in (about, other):
        await node.send(WriteChunks(one, parts, (np.ones(DIMS),) * 5))
    assert await node.send(DeleteTree(about.dataset)) == 5
    assert await node.send(CountDefined(about, parts)) == (0,) * 5
    assert await node.send(CountDefined(other, parts)) == (48,) * 5


async def test_a_node_tells_who_it_is(node: DataNode) -> None:
    info = await node.send(GetInfo())
    assert info.state == "READY"
    assert info.id


def spec(*, sparse: bool, kind: Any = "H5T_IEEE_F64LE", fill: bytes = b"", generation: int = 0) -> ChunkSpec:
    dataset = new_id("datasets", new_root_id(CLOCK), CLOCK)
    filters = (SHUFFLE_DEFLATE, ()) if sparse else ((Filter(1, (1,)),),)
    return ChunkSpec(dataset, kind, DIMS, sparse, fill, filters, generation)


SELECTIONS: list[Selection] = [
    Orthogonal.all(DIMS),
    Orthogonal.box(DIMS, (1, 2), (4, 7)),
    Orthogonal(DIMS, (Span(0, 3, 2, 2), Span(1, 2, 3, 1))),
    Orthogonal(DIMS, (np.array([5, 0, 3], np.uint64), Span.range(2, 5))),
    Points(DIMS, np.array([[5, 7], [0, 0], [3, 3]], np.uint64)),
    Boxes(DIMS, np.array([[0, 0], [3, 4]], np.uint64), np.array([[2, 2], [6, 6]], np.uint64)),
]


def numbered(selection: Selection, start: float) -> NDArray[Any]:
    return (start + np.arange(selection.size, dtype=float)).reshape(selection.shape)


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda s: type(s).__name__)
async def test_dense_chunks_against_numpy(node: DataNode, selection: Selection) -> None:
    about = spec(sparse=False, fill=np.float64(-1).tobytes())
    model = np.full(DIMS, -1.0)
    for round, chosen in enumerate([SELECTIONS[1], selection]):
        values = numbered(chosen, 100 * round)
        scatter(model, chosen, values)
        await node.send(WriteChunks(about, (ChunkSelection((2, 3), chosen),), (values,)))
    for wanted in SELECTIONS:
        (got,) = await node.send(ReadChunks(about, (ChunkSelection((2, 3), wanted),)))
        assert got is not None
        np.testing.assert_array_equal(got.view(float), gather(model, wanted).reshape(wanted.shape))


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda s: type(s).__name__)
async def test_sparse_chunks_against_a_dict(node: DataNode, selection: Selection) -> None:
    about = spec(sparse=True, fill=np.float64(-1).tobytes())
    model: dict[int, float] = {}

    async def write(chosen: Selection, start: float) -> None:
        values = numbered(chosen, start)
        model.update(zip(chosen.offsets().tolist(), values.ravel().tolist(), strict=True))
        await node.send(WriteChunks(about, (ChunkSelection((0, 1), chosen),), (values,)))

    await write(SELECTIONS[1], 0)
    await write(selection, 100)
    await node.send(EraseChunks(about, (ChunkSelection((0, 1), SELECTIONS[2]),)))
    for offset in SELECTIONS[2].offsets().tolist():
        model.pop(offset, None)
    for wanted in SELECTIONS:
        part = ChunkSelection((0, 1), wanted)
        inside = sorted(set(model) & set(wanted.offsets().tolist()))
        assert await node.send(CountDefined(about, (part,))) == (len(inside),)
        (found,) = await node.send(ReadDefined(about, (part,)))
        assert (found.offsets.tolist() if found else []) == inside
        assert (found.values.view(float).tolist() if found else []) == [model[i] for i in inside]
        (dense,) = await node.send(ReadChunks(about, (part,)))
        expected = [model.get(i, -1.0) for i in wanted.offsets().tolist()]
        assert (dense.view(float).ravel().tolist() if dense is not None else [-1.0] * wanted.size) == expected


async def test_a_chunk_that_is_not_there_reads_as_none(node: DataNode) -> None:
    part = ChunkSelection((0, 0), Orthogonal.all(DIMS))
    assert await node.send(ReadChunks(spec(sparse=False), (part,))) == (None,)
    sparse = spec(sparse=True)
    assert await node.send(ReadChunks(sparse, (part,))) == (None,)
    assert await node.send(ReadDefined(sparse, (part,))) == (None,)
    assert await node.send(CountDefined(sparse, (part,))) == (0,)
    await node.send(EraseChunks(sparse, (part,)))


async def test_one_element_for_all_and_dropped_fill(node: DataNode) -> None:
    about = spec(sparse=True, fill=np.float64(np.nan).tobytes())
    part = ChunkSelection((0, 0), Orthogonal.box(DIMS, (0, 0), (2, 2)))
    await node.send(WriteChunks(about, (part,), (np.array([7.0]),)))
    values = np.array([[np.nan, 1.0], [np.nan, 2.0]])
    await node.send(WriteChunks(about, (part,), (values,), drop_fill=True))
    (found,) = await node.send(ReadDefined(about, (part,)))
    assert found is not None
    assert found.values.view(float).tolist() == [7.0, 1.0, 7.0, 2.0]
    (places,) = await node.send(ReadDefined(about, (part,), places_only=True))
    assert places is not None
    assert (len(places.offsets), len(places.values)) == (4, 0)


async def test_a_point_given_twice_takes_the_last(node: DataNode) -> None:
    points = Points(DIMS, np.array([[1, 1], [1, 1]], np.uint64))
    for sparse in (True, False):
        about = spec(sparse=sparse)
        await node.send(WriteChunks(about, (ChunkSelection((0, 0), points),), (np.array([1.0, 2.0]),)))
        (got,) = await node.send(ReadChunks(about, (ChunkSelection((0, 0), points),)))
        assert got is not None
        assert got.view(float).tolist() == [2.0, 2.0]


COMPOUND = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "a", "type": "H5T_STD_I16BE"},
        {
            "name": "s",
            "type": {"class": "H5T_STRING", "length": 3, "charSet": "H5T_CSET_ASCII", "strPad": "x"},
        },
    ],
}


@pytest.mark.parametrize("sparse", [True, False])
async def test_compound_elements(node: DataNode, sparse: bool) -> None:
    about = spec(sparse=sparse, kind=COMPOUND)
    values = np.zeros((2, 3), about.dtype)
    values["a"] = np.arange(6).reshape(2, 3)
    values["s"] = b"xyz"
    part = ChunkSelection((0, 0), Orthogonal.box(DIMS, (1, 1), (3, 4)))
    await node.send(WriteChunks(about, (part,), (values,)))
    (got,) = await node.send(ReadChunks(about, (part,)))
    assert got is not None
    np.testing.assert_array_equal(got.view(about.dtype), values)


ROW = np.dtype([("a", ">i2"), ("s", "S3")])


async def written(node: DataNode, about: ChunkSpec, scaled: tuple[int, ...]) -> NDArray[Any]:
    """Write a block of compound elements into a chunk, and return the chunk as it then reads."""
    model = np.full(DIMS, about.fill_value, ROW)
    part = ChunkSelection(scaled, SELECTIONS[1])
    values = np.zeros(SELECTIONS[1].shape, ROW)
    values["a"] = np.arange(values.size).reshape(values.shape)
    values["s"] = b"xyz"
    scatter(model, part.selection, values)
    await node.send(WriteChunks(about, (part,), (values,)))
    return model


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("selection", SELECTIONS[:5], ids=lambda s: type(s).__name__)
async def test_some_fields_are_written_and_read(node: DataNode, sparse: bool, selection: Selection) -> None:
    fill = np.array((-7, b"f"), ROW)
    about = spec(sparse=sparse, kind=COMPOUND, fill=fill.tobytes())
    model = await written(node, about, (0, 0))
    for names in (("s",), ("s", "a")):
        values = np.zeros(selection.shape, [(name, ROW[name]) for name in names])
        for name in names:
            values[name] = np.arange(selection.size).reshape(selection.shape).astype(ROW[name])
            merged = gather(model, selection).reshape(selection.shape).copy()
            merged[name] = values[name]
            scatter(model, selection, merged)
        part = ChunkSelection((0, 0), selection, full=selection.is_all)
        await node.send(WriteChunks(about, (part,), (values,), fields=names))
        (got,) = await node.send(ReadChunks(about, (ChunkSelection((0, 0), Orthogonal.all(DIMS)),)))
        assert got is not None
        np.testing.assert_array_equal(got.view(ROW), model)
        (some,) = await node.send(ReadChunks(about, (part,), names))
        assert some is not None
        np.testing.assert_array_equal(some.view(values.dtype), values)
    await node.send(WriteChunks(about, (part,), (np.array([(5,)], [("a", ">i2")]),), fields=("a",)))
    (some,) = await node.send(ReadChunks(about, (part,), ("a",)))
    assert some is not None
    assert set(some.view(">i2").ravel().tolist()) == {5}


QUERIES = {
    "a > 3 & s == b'xyz'": lambda rows: (rows["a"] > 3) & (rows["s"] == b"xyz"),
    "a <= 3": lambda rows: rows["a"] <= 3,
    "s != b'xyz'": lambda rows: rows["s"] != b"xyz",
    "a > 1000": lambda rows: rows["a"] > 1000,
}
ASCENDING = [SELECTIONS[0], SELECTIONS[1], SELECTIONS[2], SELECTIONS[5]]
ASCENDING += [
    Orthogonal(DIMS, (np.array([0, 3, 5], np.uint64), Span.range(2, 5))),
    Points(DIMS, np.array([[0, 0], [3, 3], [5, 7]], np.uint64)),
]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("query", QUERIES)
async def test_queries_find_what_numpy_finds(node: DataNode, sparse: bool, query: str) -> None:
    about = spec(sparse=sparse, kind=COMPOUND, fill=np.array((-7, b"f"), ROW).tobytes())
    model = await written(node, about, (0, 0))
    for selection in ASCENDING:
        part = ChunkSelection((0, 0), selection)
        rows = gather(model, selection).reshape(-1)
        places = np.flatnonzero(QUERIES[query](rows))
        (found,) = await node.send(FindElements(about, (part,), query))
        assert found is not None
        assert found.positions.tolist() == places.tolist()
        np.testing.assert_array_equal(found.values.view(ROW), rows[places])
        (some,) = await node.send(FindElements(about, (part,), query, limit=2, fields=("s",)))
        assert some is not None
        assert some.values.view("S3").tolist() == rows["s"][places[:2]].tolist()
        (none,) = await node.send(FindElements(about, (part,), query, places_only=True))
        assert none is not None
        assert (none.positions.tolist(), len(none.values)) == (places.tolist(), 0)


async def test_a_query_with_a_limit_looks_no_further(node: DataNode) -> None:
    about = spec(sparse=False)
    whole = Orthogonal.all(DIMS)
    parts = tuple(ChunkSelection((i, 0), whole) for i in range(40))
    await node.send(WriteChunks(about, parts[1:], (np.ones(DIMS),) * 39))
    found = await node.send(FindElements(about, parts, "_ == 1", limit=50, in_order=True))
    assert found[0] is None
    sizes = [len(item.positions) for item in found if item is not None]
    assert sizes[:2] == [48, 48]
    assert sizes[-1] == 0
    found = await node.send(FindElements(about, parts, "_ == 1", limit=50))
    assert [len(item.positions) for item in found if item is not None] == [48] * 39
    with pytest.raises(BadRequest):
        await node.send(FindElements(about, parts, "_ == exit()"))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("query", QUERIES)
async def test_updates_change_what_the_query_finds(node: DataNode, sparse: bool, query: str) -> None:
    about = spec(sparse=sparse, kind=COMPOUND, fill=np.array((-7, b"f"), ROW).tobytes())
    for selection in ASCENDING:
        models = [await written(node, about, (0, 0)), np.full(DIMS, about.fill_value, ROW)]
        parts = (ChunkSelection((0, 0), selection), ChunkSelection((1, 1), selection))
        value = np.array((b"new",), [("s", "S3")])
        changed = await node.send(UpdateElements(about, parts, query, value, ("s",)))
        for part, model, item in zip(parts, models, changed, strict=True):
            rows = gather(model, selection).reshape(-1).copy()
            places = np.flatnonzero(QUERIES[query](rows))
            rows["s"][places] = b"new"
            scatter(model, selection, rows.reshape(selection.shape))
            assert item.positions.tolist() == places.tolist()
            np.testing.assert_array_equal(item.values.view(ROW), rows[places])
            (got,) = await node.send(ReadChunks(about, (ChunkSelection(part.scaled, Orthogonal.all(DIMS)),)))
            seen = np.full(DIMS, about.fill_value, ROW) if got is None else got.view(ROW)
            np.testing.assert_array_equal(seen, model)
        about = replace(about, dataset=new_id("datasets", new_root_id(CLOCK), CLOCK))


async def test_updates_at_once_change_each_element_once(node: DataNode) -> None:
    about = spec(sparse=False)
    part = ChunkSelection((0, 0), Orthogonal.all(DIMS))
    changes = [UpdateElements(about, (part,), "_ == 0", np.array(float(i))) for i in range(1, 9)]
    changed = await asyncio.gather(*(node.send(change) for change in changes))
    assert sorted(len(item.positions) for (item,) in changed) == [0] * 7 + [48]


async def test_many_chunks_in_one_message(node: DataNode) -> None:
    about = spec(sparse=True)
    parts = tuple(ChunkSelection((i, 0), Orthogonal.box(DIMS, (0, 0), (1, i % 8 + 1))) for i in range(200))
    values = tuple(np.full((1, i % 8 + 1), float(i)) for i in range(200))
    await node.send(WriteChunks(about, parts, values))
    found = await node.send(
        ReadDefined(about, tuple(ChunkSelection((i, 0), Orthogonal.all(DIMS)) for i in range(200)))
    )
    assert [len(item.offsets) if item else 0 for item in found] == [i % 8 + 1 for i in range(200)]
    listing = await node.send(ListKeys(chunk_prefix(about.dataset)))
    assert set(listing.keys) == {chunk_key(about.dataset, (i, 0)) for i in range(200)}


async def test_writes_to_one_chunk_at_once_all_stay(node: DataNode) -> None:
    about = spec(sparse=True)

    async def write(row: int, column: int) -> None:
        part = ChunkSelection((0, 0), Points(DIMS, np.array([[row, column]], np.uint64)))
        await node.send(WriteChunks(about, (part,), (np.array([row * 10.0 + column]),)))

    await asyncio.gather(*(write(row, column) for row in range(DIMS[0]) for column in range(DIMS[1])))
    (got,) = await node.send(ReadChunks(about, (ChunkSelection((0, 0), Orthogonal.all(DIMS)),)))
    assert got is not None
    np.testing.assert_array_equal(got.view(float), np.add.outer(np.arange(6) * 10.0, np.arange(8)))


@pytest.mark.parametrize("sparse", [True, False])
async def test_trimming_erases_and_fences(node: DataNode, sparse: bool) -> None:
    old = spec(sparse=sparse, fill=np.float64(5).tobytes())
    whole = Orthogonal.all(DIMS)
    parts = tuple(ChunkSelection((i, j), whole) for i in range(2) for j in range(2))
    await node.send(WriteChunks(old, parts, (np.ones(DIMS),) * 4))
    new = ChunkSpec(old.dataset, old.type, old.dims, old.sparse, old.fill, old.filters, generation=1)
    await node.send(TrimChunks(new, (9, 4), tuple(part.scaled for part in parts)))
    got = await node.send(ReadChunks(new, parts))
    model = np.full((12, 16), 5.0)
    model[:9, :4] = 1.0
    for part, values in zip(parts, got, strict=True):
        row, column = part.scaled
        expected = model[row * 6 : row * 6 + 6, column * 8 : column * 8 + 8]
        np.testing.assert_array_equal(np.full(DIMS, 5.0) if values is None else values.view(float), expected)
    assert got[1] is None
    with pytest.raises(Moved):
        await node.send(WriteChunks(old, parts, (np.ones(DIMS),) * 4))
    with pytest.raises(Moved):
        await node.send(ReadChunks(old, parts))


async def test_a_shrink_is_remembered_by_the_record(node: DataNode) -> None:
    root = await created(node)
    about = spec(sparse=True)
    record = {"id": about.dataset, "root": root, "generation": 3}
    (await change(node, CreateObject(about.dataset, record))).unwrap()
    part = ChunkSelection((0, 0), Orthogonal.all(DIMS))
    with pytest.raises(Moved):
        await node.send(WriteChunks(about, (part,), (np.ones(DIMS),)))
    current = replace(about, generation=3)
    await node.send(WriteChunks(current, (part,), (np.ones(DIMS),)))
    with pytest.raises(Moved):
        await node.send(EraseChunks(about, (part,)))
    assert await node.send(CountDefined(current, (part,))) == (48,)


async def test_a_deleted_dataset_takes_nothing_more(node: DataNode) -> None:
    about = spec(sparse=True)
    part = ChunkSelection((0, 0), Orthogonal.all(DIMS))
    await node.send(WriteChunks(about, (part,), (np.ones(DIMS),)))
    await node.send(FenceDeleted(about.dataset))
    assert await node.send(DeleteTree(about.dataset)) == 1
    with pytest.raises(Gone):
        await node.send(WriteChunks(about, (part,), (np.ones(DIMS),)))
    with pytest.raises(Gone):
        await node.send(ReadChunks(about, (part,)))
    assert (await node.send(ListKeys(chunk_prefix(about.dataset)))).keys == ()


async def test_forgetting_changes_nothing(node: DataNode) -> None:
    about = spec(sparse=True)
    part = ChunkSelection((0, 0), Orthogonal.all(DIMS))
    await node.send(WriteChunks(about, (part,), (np.ones(DIMS),)))
    await node.send(Forget(about.dataset))
    assert await node.send(CountDefined(about, (part,))) == (48,)


async def test_parts_without_values_are_refused(node: DataNode) -> None:
    with pytest.raises(BadRequest):
        await node.send(WriteChunks(spec(sparse=True), (ChunkSelection((0, 0), Orthogonal.all(DIMS)),), ()))


async def test_errors_keep_their_kind_and_sentence(node: DataNode) -> None:
    id = await created(node)
    failure = (await change(node, CreateObject(id, {}))).failure
    assert failure is not None
    error = failure.error()
    assert isinstance(error, Conflict)
    assert id in error.message
