"""Defined elements of a fixed size, in pieces: within bounds of bytes, in order, in few messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hsparse.dn.service import DataService
from hsparse.format.selections.points import Orthogonal, Points
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values.chunk_fanout import REPLY_PAGES, ChunkFanout, DefinedRead
from hsparse.wire.chunk_message import ReadDefined
from hsparse.wire.message import Message
from hsparse.wire.record_message import CreateObject
from tests.support.direct_driver import dataset_record
from tests.support.driver import DatasetSpec
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

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
    record = dataset_record(DatasetSpec("H5T_IEEE_F64LE", extent, (CHUNK,), extent[0]))
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
