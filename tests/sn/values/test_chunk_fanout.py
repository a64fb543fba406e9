"""Reading variable-length data in pieces: of bounded size, in order, and each chunk from the store once."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

from hsparse.compute import MAX_INLINE_BYTES, compute
from hsparse.format.plan.chunk_plan import plan
from hsparse.format.selections.points import Orthogonal, Points, Selection
from hsparse.sn.http import stream
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values import chunk_fanout
from hsparse.sn.values.chunk_fanout import PLAN_WORK, ChunkFanout
from hsparse.sn.values.defined_read import count_defined
from hsparse.wire.record_message import Forget
from tests.model.type_strategies import length_prefixed, text
from tests.sn.value_client import BINARY, create, sparse, value_client
from tests.support.rest_client import RestClient
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

TEXT = text("H5T_VARIABLE")
SIZES = [0, 500, 3, 3, 0, 2000, 90, 1] * 25
WORDS = ["w" * size for size in SIZES]


async def written(client: RestClient) -> StoredDataset:
    """Make a dataset of 200 words in chunks of 16, and forget its chunks."""
    path = await create(client, [len(WORDS)], TEXT, layout={"class": "H5D_CHUNKED", "dims": [16]})
    assert (await client("PUT", f"{path}/value", _bytes(WORDS))).status == 200
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
async def test_pieces_are_within_the_limit(selection: Selection, limit: int) -> None:
    async with value_client() as client:
        fanout = ChunkFanout(client.service.owners, await written(client))
        pieces = [piece async for piece in fanout.pages(selection, (), limit)]
        model = [length_prefixed(TEXT, WORDS[at]) for at in selection.offsets().tolist()]
        assert [word for piece in pieces for word in piece] == model
        assert all(len(piece.heap) <= limit or piece.size == 1 for piece in pieces)


async def test_each_chunk_is_got_once() -> None:
    store = CountingStore(MemoryStore())
    async with value_client(store) as client:
        dataset = await written(client)
        fanout = ChunkFanout(client.service.owners, dataset)
        store.reset()
        pieces = [piece async for piece in fanout.pages(SELECTIONS[0], (), 1000)]
        assert len(pieces) > 20
        gets: Counter[Any] = Counter(
            {
                key: count
                for (call, key), count in store.keys.items()
                if call == "get" and dataset.id[-6:] in key
            }
        )
        assert len(gets) == 13
        assert set(gets.values()) == {1}


async def test_a_failure_late_in_an_answer_breaks_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)
    store = FaultyStore(MemoryStore())
    async with value_client(store) as client:
        dataset = await written(client)
        keys = [entry.key async for page in store.list("db/") for entry in page.entries]
        last = next(key for key in keys if key.endswith("/12"))
        store.fail_before("gets", last, times=100)
        with pytest.raises(Exception, match=r"payload|disconnected|closed|reset"):
            await client("GET", f"/datasets/{dataset.id}/value", accept=BINARY)
        store.clear()
        reply = await client("GET", f"/datasets/{dataset.id}/value", accept=BINARY)
        assert reply.body == _bytes(WORDS)


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
        path = await create(client, [2000], "H5T_STD_I8LE", layout=sparse(1))
        assert (await client("PUT", f"{path}/value", {"start": [0], "stop": [900], "value": 1})).status == 200
        assert (await client("DELETE", f"{path}/value", select="[5:905]")).status == 200
    assert [here for count, here in threads if count > MAX_INLINE_BYTES // PLAN_WORK] == [False] * 2


async def test_whole_chunks_are_counted_by_their_footers() -> None:
    store = CountingStore(MemoryStore())
    async with value_client(store) as client:
        layout = {"class": "H5D_STRUCT_CHUNK", "dims": [4, 5], "flags": ["H5D_SPARSE_DATA"]}
        path = await create(client, [46, 33], "H5T_STD_I16LE", layout=layout)
        values = np.arange(46 * 33).reshape(46, 33) % 7
        body = {"value": values.tolist()}
        assert (await client("PUT", f"{path}/value", body, drop_fill=1)).status == 200
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
        assert await count_defined(
            owners, dataset, Orthogonal.box((46, 33), (0, 0), (9, 9))
        ) == np.count_nonzero(values[:9, :9])
