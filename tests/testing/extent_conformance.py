"""Conformance tests of a `DataNode` for extents and appends, over a fixture `node` on an empty store.

A test module of an implementation provides the fixture and imports all tests of this and the other conformance
modules by `*`. Tests must not be overridden.
"""

from __future__ import annotations

from hsparse.errors import ErrorKind
from hsparse.model.dataset_state import appended_before, extents_of_change, part_with_key
from hsparse.wire.message import DataNode
from hsparse.wire.record_message import AbandonAppends, BeginAppend, EndAppend, EndTrim, SetExtent
from tests.testing.record_conformance import change, created, kind, record_of


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
    first = SetExtent(id, (2,), extend_dim=0, token="a")
    for _ in range(2):
        record = (await change(node, first)).unwrap()
        assert extents_of_change(record, "a") == ((4,), (6,))
    await change(node, SetExtent(id, (3,), extend_dim=0, token="b"))
    record = (await change(node, first)).unwrap()
    assert (record["shape"]["dims"], extents_of_change(record, "a")) == ([9], ((4,), (6,)))
    assert extents_of_change(record, "b") == ((6,), (9,))
    expecting = SetExtent(id, (5,), expect=(9,), token="c")
    for _ in range(2):
        assert (await change(node, expecting)).unwrap()["shape"]["dims"] == [5]


async def appendable(node: DataNode, dims: list[int]) -> str:
    """Create a dataset whose dimension 0 is unlimited and whose other dimensions can grow to 10; return its id."""
    maxdims = [0, *(10 for _ in dims[1:])]
    return await created(node, shape={"class": "H5S_SIMPLE", "dims": dims, "maxdims": maxdims})


async def extent_of(node: DataNode, id: str) -> list[int]:
    dims: list[int] = (await record_of(node, id))["shape"]["dims"]
    return dims


async def test_appends_become_visible_in_order(node: DataNode) -> None:
    id = await appendable(node, [4, 5])
    for token, count in (("a", 2), ("b", 3), ("a", 2)):  # repeating "a" renews its lease and adds no part
        begun = (await change(node, BeginAppend(id, token, (count, 5), 0, 60.0))).unwrap()
    assert [part["token"] for part in begun["appends"]["parts"]] == ["a", "b"]
    waiting = (await change(node, EndAppend(id, "b"))).unwrap()
    assert [part["done"] for part in waiting["appends"]["parts"]] == [False, True]
    assert await extent_of(node, id) == [4, 5]
    assert "appends" not in (await change(node, EndAppend(id, "a"))).unwrap()
    assert await extent_of(node, id) == [9, 5]
    assert not (await change(node, EndAppend(id, "b"))).changed  # "b" is visible already: no change


async def test_a_key_is_appended_once(node: DataNode) -> None:
    """A part has the idempotency keys of several requests; no other part with one of these keys is accepted."""
    id = await appendable(node, [4, 5])
    first = BeginAppend(id, "a", (5, 5), 0, 60.0, (("k", 0, 2), ("l", 3, 2)))
    for _ in range(2):
        (await change(node, first)).unwrap()
    again = BeginAppend(id, "b", (3, 5), 0, 60.0, (("m", 0, 1), ("l", 1, 2)))
    assert kind(await change(node, again)) == ErrorKind.MOVED
    record = await record_of(node, id)
    assert [part["token"] for part in record["appends"]["parts"]] == ["a"]
    assert part_with_key(record, "l") == {"token": "a", "count": 2}
    (await change(node, EndAppend(id, "a"))).unwrap()
    (await change(node, BeginAppend(id, "other", (1, 5), 0, 60.0))).unwrap()
    assert kind(await change(node, again)) == ErrorKind.MOVED
    record = await record_of(node, id)
    assert record["shape"]["dims"] == [9, 5]
    assert appended_before(record, "l") == {"dim": 0, "start": 7, "count": 2}
    assert appended_before(record, "m") is None
    (await change(node, BeginAppend(id, "c", (1, 5), 0, 60.0, (("m", 0, 1),)))).unwrap()


async def test_an_append_with_a_key_that_was_dropped_begins_again(node: DataNode) -> None:
    id = await appendable(node, [4])
    keys = (("k", 0, 2),)
    (await change(node, BeginAppend(id, "a", (2,), 0, 60.0, keys))).unwrap()
    (await change(node, AbandonAppends(id))).unwrap()
    record = await record_of(node, id)
    await change(node, EndTrim(id, record["generation"]))
    assert kind(await change(node, BeginAppend(id, "a", (2,), 0, 60.0, keys))) == ErrorKind.MOVED
    begun = (await change(node, BeginAppend(id, "b", (2,), 0, 60.0, keys))).unwrap()
    assert [part["token"] for part in begun["appends"]["parts"]] == ["b"]
    assert kind(await change(node, EndAppend(id, "a"))) == ErrorKind.MOVED
    assert await extent_of(node, id) == [4]


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
