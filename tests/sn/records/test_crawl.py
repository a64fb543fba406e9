"""Reading many records by name, and crawling: each object once, in batches of bounded bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import NotFound
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.records.crawl import (
    FIRST_READS,
    MAX_READS,
    READ_BYTES,
    Crawl,
    Pace,
    RecordReader,
    VisitedSet,
    require_records,
)
from hsparse.wire.record_message import ReadObjects
from tests.sn.records.test_object_path import GRAPHS, Graph, build, depths, name
from tests.support.memory_node import MemoryNode

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
    assert sizes[:7] == [
        1,
        2 * FIRST_READS,
        4 * FIRST_READS,
        MAX_READS,
        MAX_READS,
        MAX_READS,
        MAX_READS // 10,
    ]
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
