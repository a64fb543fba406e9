"""Reading values in pieces: of bounded size, in order, and each chunk from the store once."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.compute import MAX_INLINE_BYTES, compute
from hsparse.dn.service import DataService
from hsparse.format.plan.chunk_plan import plan
from hsparse.format.selections.points import Orthogonal, Points, Selection
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values import chunk_fanout
from hsparse.sn.values.chunk_fanout import PLAN_WORK, REPLY_PAGES, ChunkFanout, DefinedRead
from hsparse.sn.values.defined_read import count_defined
from hsparse.wire.chunk_message import ReadDefined
from hsparse.wire.message import Message
from hsparse.wire.record_message import CreateObject, Forget
from tests.model.type_strategies import length_prefixed, text
from tests.sn.dataset_kinds import F64, I8, I16, chunked, sparse
from tests.sn.value_client import create, put, value_client
from tests.support.driver import DatasetSpec, dataset_record
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

TEXT = text("H5T_VARIABLE")
SIZES = [0, 500, 3, 3, 0, 2000, 90, 1] * 25
WORDS = ["w" * size for size in SIZES]


async def written(client: RestClient) -> StoredDataset:
    """Make a dataset of 200 words in chunks of 16, and forget its chunks."""
    path = await create(client, [len(WORDS)], TEXT, layout=chunked(16))
    await put(client, path, _bytes(WORDS))
    id = path.rpartition("/")[2]
    owners = client.service.owners
    await owners.ask_all(Forget(id))
    return StoredDataset.of(await owners.record(id))


def _bytes(words: list[str]) -> bytes:
    return b"".join(length_prefixed(TEXT, word) for word in words)


SELECTIONS: list[Selection] = [
    Orthogonal.all((200,)),
    Orthogonal.box((200,), (3,), (150,)),
    Points((200,), np.array([[5], [199], [5], [0]] * 50, np.uint64)),
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=["all", "box", "points"])
@pytest.mark.parametrize("limit", [1, 100, 1500, 10**6])
async def test_pieces_are_within_the_limit(client: RestClient, selection: Selection, limit: int) -> None:
    fanout = ChunkFanout(client.service.owners, await written(client))
    pieces = [piece async for piece in fanout.pages(selection, (), limit)]
    model = [length_prefixed(TEXT, WORDS[at]) for at in selection.offsets().tolist()]
    assert [word for piece in pieces for word in piece] == model
    assert all(len(piece.heap) <= limit or piece.size == 1 for piece in pieces)


async def test_each_chunk_is_got_once(client: RestClient, store: CountingStore) -> None:
    dataset = await written(client)
    fanout = ChunkFanout(client.service.owners, dataset)
    store.reset()
    pieces = [piece async for piece in fanout.pages(SELECTIONS[0], (), 1000)]
    assert len(pieces) > 20
    gets: Counter[Any] = Counter(
        {key: count for (call, key), count in store.keys.items() if call == "get" and dataset.id[-6:] in key}
    )
    assert len(gets) == 13
    assert set(gets.values()) == {1}


async def test_much_work_is_done_aside() -> None:
    here = threading.get_ident()
    assert await compute(MAX_INLINE_BYTES, threading.get_ident) == here
    assert await compute(MAX_INLINE_BYTES + 1, threading.get_ident) != here


async def test_many_chunks_are_planned_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[tuple[int, bool]] = []

    def noted(*args: Any) -> Any:
        planned = plan(*args)
        threads.append((len(planned), threading.current_thread() is threading.main_thread()))
        return planned

    monkeypatch.setattr(chunk_fanout, "plan", noted)
    async with value_client() as client:
        path = await create(client, [2000], I8, layout=sparse(1))
        await put(client, path, {"start": [0], "stop": [900], "value": 1})
        assert (await client("DELETE", f"{path}/value", select="[5:905]")).status == 200
    assert [here for count, here in threads if count > MAX_INLINE_BYTES // PLAN_WORK] == [False] * 2


async def test_whole_chunks_are_counted_by_their_footers(client: RestClient, store: CountingStore) -> None:
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [4, 5], "flags": ["H5D_SPARSE_DATA"]}
    path = await create(client, [46, 33], I16, layout=layout)
    values = np.arange(46 * 33).reshape(46, 33) % 7
    body = {"value": values.tolist()}
    await put(client, path, body, drop_fill=1)
    id = path.rpartition("/")[2]
    owners = client.service.owners
    await owners.ask_all(Forget(id))
    dataset = StoredDataset.of(await owners.record(id))
    store.reset()
    assert await count_defined(owners, dataset, Orthogonal.all((46, 33))) == np.count_nonzero(values)
    assert store.calls["get"] <= 1, "of the chunk map alone"
    part = Orthogonal.box((46, 33), (1, 0), (46, 33))
    assert await count_defined(owners, dataset, part) == np.count_nonzero(values[1:])
    assert store.calls["get"] <= 9
    assert await count_defined(owners, dataset, Orthogonal.box((46, 33), (0, 0), (9, 9))) == np.count_nonzero(
        values[:9, :9]
    )


CHUNK, CHUNKS, ELEMENT = 64, 500, 4 + 8
DENSITIES = {
    "all": [CHUNK] * CHUNKS,
    "few": [1] * CHUNKS,
    "none": [0] * CHUNKS,
    "suddenly": [0] * 400 + [CHUNK] * 100,
    "now and then": [0, 1, CHUNK, 3, 0] * 100,
}


class CountingNode(DataService):
    """Counts the messages that read elements."""

    reads = 0

    async def send(self, message: Message[Any]) -> Any:
        self.reads += isinstance(message, ReadDefined)
        return await super().send(message)


@pytest.mark.parametrize("counts", DENSITIES.values(), ids=DENSITIES)
@pytest.mark.parametrize("page", [1, 300, 5_000, 10**6])
async def test_pieces_are_bounded_and_in_order(counts: list[int], page: int) -> None:
    """A chunk is the smallest piece; a run of chunks has at most the pages of a reply."""
    clock = ManualClock()
    node = CountingNode(MemoryStore(clock=clock), clock)
    owners = Owners(FixedNodes({node.id: node}))
    extent = (CHUNK * CHUNKS,)
    record = dataset_record(DatasetSpec(F64, extent, (CHUNK,), extent[0]))
    await owners.apply(CreateObject(record["id"], record))
    dataset = StoredDataset.of(record)
    fanout = ChunkFanout(owners, dataset)
    places = np.concatenate([CHUNK * n + np.arange(count) for n, count in enumerate(counts)])
    values = np.arange(len(places), dtype="<f8")
    if len(places):
        await fanout.write(Points(extent, places.astype(np.uint64)[:, None]), values)
    read = DefinedRead(fanout, page)
    pieces = [piece async for piece in read.pieces(Orthogonal.all(extent))]
    empty: list[Any] = [np.zeros(0)]
    assert np.concatenate([column for (column,), _ in pieces] or empty).tolist() == places.tolist()
    assert np.concatenate([some for _, some in pieces] or empty).tolist() == values.tolist()
    assert all(len(some) * ELEMENT <= max(REPLY_PAGES * page, CHUNK * ELEMENT) for _, some in pieces)
    if page == 10**6:
        assert node.reads <= 2
    await node.close()


CHOSEN: list[Selection] = [
    Orthogonal.all((400,)),
    Orthogonal.box((400,), (3,), (350,)),
    Points((400,), np.array([[10], [398], [10], [0]] * 50, np.uint64)),
]


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("selection", CHOSEN, ids=["all", "box", "points"])
@pytest.mark.parametrize("page", [1, 100, 1500, 10**6])
async def test_pieces_are_within_a_page_and_in_order(nodes: int, selection: Selection, page: int) -> None:
    """Each second element is defined, in chunks of 16 that several data nodes own; a page is of each of them."""
    store, clock = MemoryStore(), SystemClock()
    names = tuple(f"dn-{number}" for number in range(nodes))
    services = {name: DataService(store, clock, id=name) for name in names}
    owners = Owners(FixedNodes(dict(services)))
    record = dataset_record(DatasetSpec(TEXT, (400,), (16,), 400))
    await owners.apply(CreateObject(record["id"], record))
    dataset = StoredDataset.of(record)
    fanout = ChunkFanout(owners, dataset)
    words = {2 * n: length_prefixed(TEXT, "w" * size) for n, size in enumerate(SIZES)}
    places = Points((400,), np.array(list(words), np.uint64)[:, None])
    await fanout.write(places, VlenArray.of(words.values()))
    read = DefinedRead(fanout, page)
    pieces = [piece async for piece in read.pieces(selection)]
    found = [(int(at), word) for (column,), values in pieces for at, word in zip(column, values, strict=True)]
    wanted = sorted(set(selection.offsets().tolist()) & set(words))
    assert found == [(at, words[at]) for at in wanted]
    assert all(len(values.heap) <= nodes * page or values.size == 1 for _, values in pieces)
    for service in services.values():
        await service.close()
