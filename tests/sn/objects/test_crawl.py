"""Crawling: every object is met once, in batches whose size follows what the last one weighed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import ManualClock
from hsparse.cluster.membership import Membership
from hsparse.sn.objects.crawl import Crawl, Met
from hsparse.sn.objects.reading import FIRST_READS, MOST_READS, READ_BYTES
from hsparse.sn.owners import Owners
from hsparse.testing.dict_data_node import DictDataNode
from hsparse.wire.record_message import ReadObjects
from tests.sn.objects.test_walk import GRAPHS, Graph, build, depths, name


async def met(crawl: Crawl) -> list[str]:
    return [id async for batch in crawl.batches() for id, _ in batch]


@given(GRAPHS)
async def test_everything_that_is_reached_is_read_once(graph: Graph) -> None:
    start = min(graph)
    owners, _ = build(graph)
    expected = sorted(map(name, depths(graph, start)))
    assert sorted(await met(Crawl(owners, name(start), leaves=True))) == expected


@given(GRAPHS)
async def test_without_leaves_groups_alone_are_read(graph: Graph) -> None:
    start = min(graph)
    owners, node = build(graph)
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
    found = Met()
    for part in parts:
        assert found.add(np.array(part, np.uint64)).tolist() == sorted(set(part) - known)
        known |= set(part)
    assert found.all().tolist() == sorted(known)


async def test_batches_grow_and_shrink_with_what_they_weigh() -> None:
    node = DictDataNode(ManualClock())
    ids = [f"d-00000000-00000000-0000-000000-{n:06x}" for n in range(3000)]
    links = {f"{n}": {"class": "H5L_TYPE_HARD", "id": id} for n, id in enumerate(ids)}
    node.records = {id: {"id": id} for id in ids} | {name(0): {"id": name(0), "links": links}}
    crawl = Crawl(Owners(Membership(1, ("dn-001",)), {"dn-001": node}), name(0), leaves=True)
    sizes = []
    async for batch in crawl.batches():
        sizes.append(len(batch))
        crawl.pace.weigh(10 * READ_BYTES if len(sizes) == 6 else 1)
    assert sizes[:7] == [
        1,
        2 * FIRST_READS,
        4 * FIRST_READS,
        MOST_READS,
        MOST_READS,
        MOST_READS,
        MOST_READS // 10,
    ]
    assert sum(sizes) == 3001


async def test_links_out_of_the_domain_are_passed_over() -> None:
    node = DictDataNode(ManualClock())
    away = "g-11111111-00000000-0000-000000-000001"
    links = {
        "away": {"class": "H5L_TYPE_HARD", "id": away},
        "gone": {"class": "H5L_TYPE_HARD", "id": name(1)},
    }
    node.records = {name(0): {"id": name(0), "links": links}, away: {"id": away}}
    owners = Owners(Membership(1, ("dn-001",)), {"dn-001": node})
    assert await met(Crawl(owners, name(0), leaves=True)) == [name(0)]
