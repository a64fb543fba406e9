"""Objects by path, walks of groups against graphs in a dict, and crawls in batches of bounded bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import NotFound
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.http.response import Encoded, encode_json
from hsparse.sn.records import object_path as walking
from hsparse.sn.records import streamed_records
from hsparse.sn.records.crawl import (
    FIRST_READS,
    MAX_READS,
    READ_BYTES,
    Batch,
    Crawl,
    Pace,
    RecordReader,
    VisitedSet,
    require_records,
)
from hsparse.sn.records.object_path import paths_to, walk_groups
from hsparse.sn.records.streamed_records import ENCODED_AT_ONCE, ENCODED_BYTES, wrap_items
from hsparse.wire.message import Record
from hsparse.wire.record_message import ReadObjects
from tests.support.characters import CHARACTERS
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import RestClient, refuses


async def test_objects_by_path(rest: RestClient, root: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g1"}}))["id"]
    inner = (await rest("POST", "/groups", {"link": {"id": group, "name": "in"}}))["id"]
    await rest("PUT", f"/groups/{root}/links/soft", {"h5path": "/g1"})
    await rest("PUT", f"/groups/{group}/links/back", {"h5path": "../in"})
    found = await rest("GET", "/", h5path="/g1/in")
    assert (found["id"], found["class"]) == (inner, "group")
    assert (await rest("GET", "/", h5path="in", parent_id=group))["id"] == inner
    assert (await rest("GET", "/", h5path="/"))["id"] == root
    assert (await rest("GET", "/", h5path="/soft/in")).status == 400
    assert (await rest("GET", "/", h5path="soft/in", follow_soft_links=1))["id"] == inner
    assert (await rest("GET", "/", h5path="/g1/nope")).status == 404
    assert (await rest("GET", "/groups/", h5path="/g1"))["id"] == group
    assert (await rest("GET", "/datasets/", h5path="/g1")).status == 404
    assert (await rest("GET", "/groups/", h5path="g1")).status == 400
    many = await rest("POST", "/", {"h5paths": ["/g1", "/g1/in"]})
    assert {path: one["id"] for path, one in many["h5paths"].items()} == {"/g1": group, "/g1/in": inner}
    assert (await rest("POST", "/", {"h5paths": ["/g1", "/nope"]})).status == 404
    assert (await rest("POST", "/", {})).status == 400


async def test_a_circle_of_soft_links_ends(rest: RestClient, root: str) -> None:
    await rest("PUT", f"/groups/{root}/links/a", {"h5path": "/b"})
    await rest("PUT", f"/groups/{root}/links/b", {"h5path": "a"})
    await refuses(rest("GET", "/", h5path="/a", follow_soft_links=1), 404, "cycle")


async def test_the_paths_of_a_request_have_so_many_links_in_all(rest: RestClient, root: str) -> None:
    rest.service.settings = replace(rest.service.settings, max_path_steps=1000)
    for number in range(8):
        await rest("PUT", f"/groups/{root}/links/s{number}", {"h5path": "./" * 40 + f"s{number + 1}"})
    await rest("PUT", f"/groups/{root}/links/s8", {"id": root})
    # All lead to the root group, each by 330 links.
    paths = ["/s0", "./s0", "././s0", "./././s0"]
    assert (await rest("POST", "/", {"h5paths": paths[:2]}, follow_soft_links=1)).status == 200
    await refuses(rest("POST", "/", {"h5paths": paths}, follow_soft_links=1), 413, "max_path_steps")


async def test_an_external_link_needs_the_right_to_read(rest: RestClient, root: str) -> None:
    other = "/home/test_user2/o.h5"
    there = (await rest("PUT", "/", {}, domain=other, user="test_user2"))["root"]
    await rest("PUT", f"/groups/{root}/links/ext", {"h5path": "/", "file": "hdf5:/" + other})
    assert (await rest("GET", "/", h5path="/ext")).status == 400
    assert (await rest("GET", "/", h5path="/ext", follow_external_links=1)).status == 403
    await rest("PUT", "/acls/test_user1", {"read": True}, domain=other, user="test_user2")
    found = await rest("GET", "/", h5path="/ext", follow_external_links=1)
    assert (found["id"], found["domain"]) == (there, other)


@pytest.mark.parametrize(
    ("linking", "file", "target"),
    [
        ("/home/test_user1/a.h5", "b.h5", "/home/test_user1/b.h5"),
        ("/home/test_user1/a.h5", "./b.h5", "/home/test_user1/b.h5"),
        ("/home/test_user1/deep/a.h5", "../b.h5", "/home/test_user1/b.h5"),
        ("/home/test_user1/a.h5", "deep/b.h5", "/home/test_user1/deep/b.h5"),
        ("/home/test_user1/a.h5", "a.h5", "/home/test_user1/a.h5"),
        ("/home/test_user1/a.h5", "/home/test_user1/b.h5", "/home/test_user1/b.h5"),
        ("/home/test_user1/a.h5", "hdf5://home/test_user1/b.h5", "/home/test_user1/b.h5"),
    ],
)
async def test_external_links_name_domains_beside_theirs(
    rest: RestClient, linking: str, file: str, target: str
) -> None:
    await rest("PUT", "/", {"folder": 1}, domain="/home/test_user1/deep")
    roots = {path: (await rest("PUT", "/", {}, domain=path))["root"] for path in {linking, target}}
    place = {"link": {"id": roots[target], "name": "in"}}
    inner = (await rest("POST", "/groups", place, domain=target))["id"]
    await rest("PUT", f"/groups/{roots[linking]}/links/e", {"h5path": "in", "file": file}, domain=linking)
    found = await rest("GET", "/", h5path="/e", domain=linking, follow_external_links=1, follow_soft_links=1)
    assert (found["id"], found["domain"], found["h5path"]) == (inner, target, "/in")
    many = await rest("POST", "/", {"h5paths": ["/e", "/"]}, domain=linking, follow_external_links=1)
    assert many["h5paths"]["/e"]["h5path"] == "/in"
    assert "h5path" not in many["h5paths"]["/"]


@pytest.mark.parametrize(
    "file", ["none.h5", "C:\\none.h5", "/home/none.h5", "no//where.h5", "/home/test_user1"]
)
async def test_an_external_link_to_no_domain_is_not_found(rest: RestClient, root: str, file: str) -> None:
    await rest("PUT", f"/groups/{root}/links/e", {"h5path": "/", "file": file})
    await refuses(rest("GET", "/", h5path="/e", follow_external_links=1), 404, "external link")


Graph = dict[int, dict[str, int]]
GRAPHS = st.dictionaries(
    st.integers(0, 7), st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9), max_size=4), min_size=1
)


def name(number: int) -> str:
    """Return an id: 0 to 7 are groups, 8 and 9 datasets."""
    return f"{'g' if number < 8 else 'd'}-00000000-00000000-0000-000000-00000{number}"


async def build(graph: Graph) -> tuple[Owners, MemoryNode]:
    """Return a node with the groups of `graph` and both datasets; links to other groups lead nowhere."""
    records = {name(number): {"id": name(number)} for number in (8, 9)}
    for number, links in graph.items():
        stored = {title: {"class": "H5L_TYPE_HARD", "id": name(target)} for title, target in links.items()}
        stored["soft"] = {"class": "H5L_TYPE_SOFT", "h5path": "/a"}
        records[name(number)] = {"id": name(number), "links": stored}
    node = MemoryNode()
    await node.create(records)
    return Owners(FixedNodes({"dn-001": node})), node


def follow(graph: Graph, start: int, path: str) -> int:
    for title in path.strip("/").split("/") if path != "/" else ():
        start = graph[start][title]
    return start


def depths(graph: Graph, start: int) -> dict[int, int]:
    """Return the number of links to each object that is reached."""
    found, level = {start: 0}, [start]
    while level:
        targets = {target for number in level for target in graph.get(number, {}).values()}
        level = [target for target in targets if target not in found and (target in graph or target > 7)]
        found |= {target: found[start] + 1 + max(found.values()) for target in level}
    return found


@given(GRAPHS)
async def test_every_group_that_is_reached_is_met_once(graph: Graph) -> None:
    start = min(graph)
    owners, node = await build(graph)
    found = [(record["id"], path) async for path, record in walk_groups(owners, name(start))]
    expected = {number: depth for number, depth in depths(graph, start).items() if number < 8}
    assert sorted(id for id, _ in found) == sorted(map(name, expected))
    for id, path in found:
        number = follow(graph, start, path)
        assert name(number) == id
        assert path.strip("/").count("/") + (path != "/") == expected[number]
    reads = [message for message in node.log if isinstance(message, ReadObjects)]
    assert len(reads) <= max(expected.values()) + 2


@given(GRAPHS, st.integers(0, 9))
async def test_every_path_leads_to_the_object(graph: Graph, target: int) -> None:
    start = min(graph)
    owners, _ = await build(graph)
    paths = await paths_to(owners, name(start), name(target))
    assert len(set(paths)) == len(paths)
    assert all(follow(graph, start, path) == target for path in paths)
    assert bool(paths) == (
        target in depths(graph, start)
        or any(target in graph[number].values() for number in depths(graph, start) if number in graph)
    )


async def test_a_walk_remembers_so_many_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "MAX_GROUPS", 3)
    owners, _ = await build({0: {"a": 1, "b": 2}, 1: {"a": 3, "d": 8}, 2: {}, 3: {}})
    assert [path async for path, _ in walk_groups(owners, name(0))] == ["/", "/a", "/b"]
    assert await paths_to(owners, name(0), name(8)) == ["/a/d"]


IDS = [f"g-00000000-00000000-0000-000000-{n:06x}" for n in range(200)]


@pytest.fixture
async def owners() -> Owners:
    node = MemoryNode()
    await node.create({id: {"id": id} for id in IDS})
    return Owners(FixedNodes({"dn-001": node}))


async def test_every_record_by_its_name(owners: Owners) -> None:
    reading = RecordReader(owners, {f"/{n}": id for n, id in enumerate(IDS)})
    batches = [batch async for batch in reading.batches()]
    assert [len(batch) for batch in batches] == [FIRST_READS] * 3 + [len(IDS) - 3 * FIRST_READS]
    assert {name: record["id"] for batch in batches for name, record in batch} == {
        f"/{n}": id for n, id in enumerate(IDS)
    }


async def test_what_is_not_there_fails(owners: Owners) -> None:
    await require_records(owners, IDS)
    with pytest.raises(NotFound):
        await require_records(owners, [*IDS, "g-00000000-00000000-0000-000000-ffffff"])


def test_a_pace_follows_what_batches_weigh() -> None:
    pace = Pace()
    pace.weigh(1)
    assert pace.reads == 2 * FIRST_READS, "it at most doubles"
    for _ in range(9):
        pace.weigh(1)
    assert pace.reads == MAX_READS
    pace.weigh(50 * READ_BYTES)
    assert pace.reads == MAX_READS // 50
    pace.weigh(10**12)
    assert pace.reads == 1
    pace.weigh(0)
    assert pace.reads == 2


async def met(crawl: Crawl) -> list[str]:
    return [id async for batch in crawl.batches() for id, _ in batch]


@given(GRAPHS)
async def test_everything_that_is_reached_is_read_once(graph: Graph) -> None:
    start = min(graph)
    owners, _ = await build(graph)
    expected = sorted(map(name, depths(graph, start)))
    assert sorted(await met(Crawl(owners, name(start), leaves=True))) == expected


@given(GRAPHS)
async def test_without_leaves_groups_alone_are_read(graph: Graph) -> None:
    start = min(graph)
    owners, node = await build(graph)
    expected = sorted(map(name, depths(graph, start)))
    crawl = Crawl(owners, name(start), leaves=False)
    assert sorted(await met(crawl)) == [id for id in expected if id[0] == "g"]
    assert crawl.ids("d") == [id for id in expected if id[0] == "d"]
    read = [id for message in node.log if isinstance(message, ReadObjects) for id in message.ids]
    assert all(id[0] == "g" for id in read)
    assert len(read) == len(set(read))


@given(st.lists(st.lists(st.integers(0, 60) | st.integers(0, 2**64 - 1), max_size=30), max_size=30))
def test_a_number_is_new_once(parts: list[list[int]]) -> None:
    known: set[int] = set()
    found = VisitedSet()
    for part in parts:
        assert found.add(np.array(part, np.uint64)).tolist() == sorted(set(part) - known)
        known |= set(part)
    assert found.all().tolist() == sorted(known)


async def test_batches_grow_and_shrink_with_what_they_weigh() -> None:
    node = MemoryNode()
    ids = [f"d-00000000-00000000-0000-000000-{n:06x}" for n in range(3000)]
    links = {f"{n}": {"class": "H5L_TYPE_HARD", "id": id} for n, id in enumerate(ids)}
    await node.create({id: {"id": id} for id in ids} | {name(0): {"id": name(0), "links": links}})
    crawl = Crawl(Owners(FixedNodes({"dn-001": node})), name(0), leaves=True)
    sizes = []
    async for batch in crawl.batches():
        sizes.append(len(batch))
        crawl.pace.weigh(10 * READ_BYTES if len(sizes) == 6 else 1)
    assert sizes[:7] == [1, 2 * FIRST_READS, 4 * FIRST_READS, *[MAX_READS] * 3, MAX_READS // 10]
    assert sum(sizes) == 3001


async def test_links_out_of_the_domain_are_passed_over() -> None:
    node = MemoryNode()
    away = "g-11111111-00000000-0000-000000-000001"
    links = {
        "away": {"class": "H5L_TYPE_HARD", "id": away},
        "gone": {"class": "H5L_TYPE_HARD", "id": name(1)},
    }
    await node.create({name(0): {"id": name(0), "links": links}, away: {"id": away}})
    owners = Owners(FixedNodes({"dn-001": node}))
    assert await met(Crawl(owners, name(0), leaves=True)) == [name(0)]


TEXT = st.text(CHARACTERS, max_size=5)
VALUES = st.dictionaries(
    TEXT, st.none() | st.booleans() | st.integers(0, 9) | st.floats(0, 1) | TEXT, max_size=4
)


async def generated(parts: list[bytes]) -> AsyncGenerator[bytes, None]:
    for part in parts:
        yield part


@given(TEXT, VALUES, VALUES)
async def test_members_in_an_object(member: str, inner: dict[str, object], around: dict[str, object]) -> None:
    around.pop(member, None)
    parts = [encode_json(key) + b":" + encode_json(value) for key, value in inner.items()]
    found = b"".join([part async for part in wrap_items(member, generated(parts), around)])
    assert json.loads(found) == {member: inner, **around}


@given(st.lists(VALUES, max_size=4), VALUES)
async def test_elements_in_a_list(inner: list[dict[str, object]], around: dict[str, object]) -> None:
    around.pop("x", None)
    parts = [encode_json(value) for value in inner]
    found = b"".join([part async for part in wrap_items("x", generated(parts), around, b"[]")])
    assert json.loads(found) == {"x": inner, **around}


class OneBatch:
    """Records that are there at once."""

    def __init__(self, names: list[str]) -> None:
        self.pace = Pace()
        self._names = names

    async def batches(self) -> AsyncGenerator[Batch, None]:
        yield [(member, {"id": member}) for member in self._names]


@pytest.mark.parametrize(("count", "nbytes"), [(3 * ENCODED_AT_ONCE, 1), (3, ENCODED_BYTES)])
async def test_other_requests_run_while_records_are_encoded(count: int, nbytes: int) -> None:
    names = list(map(str, range(count)))
    turns: list[int] = []
    done = 0

    async def others() -> None:
        while True:
            turns.append(done)
            await asyncio.sleep(0)

    def to_json(member: str, record: Record) -> Encoded:
        nonlocal done
        done += 1
        return b"1" * nbytes

    async def current(record: Record) -> Record:
        return record

    running = asyncio.create_task(others())
    encoded = streamed_records._encoded_records(OneBatch(names), to_json, current)
    parts = [part async for part in wrap_items("x", encoded, {})]
    running.cancel()
    assert b"".join(parts) == b'{"x":{%b}}' % b",".join(b'"%d":' % n + b"1" * nbytes for n in range(count))
    assert set(turns) >= {count // 3, 2 * count // 3, count}
