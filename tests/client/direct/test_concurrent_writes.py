"""Reads while others write: what was acknowledged before a read began is in it, and each chunk is of one state."""

from __future__ import annotations

import threading

import numpy as np

from hsparse.format.selections.points import Orthogonal
from tests.client.access_ways import Access

SHAPE = (6, 8)
WRITES = 60


def test_acknowledged_writes_are_seen(direct_access: Access) -> None:
    """A writer counts up in two rows of chunks by one request each; small objects are written in place."""
    writes = WRITES if direct_access.way in ("directory", "embedded") else WRITES // 6
    dataset = direct_access.create(SHAPE, np.int64, chunks=(3, 4))
    dataset.write_region("[:,:]", 0)
    source = direct_access.source(dataset)
    acknowledged, ended = [0, 0], threading.Event()

    def write() -> None:
        for number in range(1, writes + 1):
            for half, select in enumerate(("[0:3,:]", "[3:6,:]")):
                dataset.write_region(select, number)
                acknowledged[half] = number
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not ended.is_set() or not reads:
        before = list(acknowledged)
        found = source.dense_values(Orthogonal.all(SHAPE))
        for half, part in enumerate((found[:3], found[3:])):
            assert part.min() >= before[half]
            for chunk in (part[:, :4], part[:, 4:]):
                assert (chunk == chunk[0, 0]).all()
        reads += 1
    writer.join()
    assert (source.dense_values(Orthogonal.all(SHAPE)) == writes).all()
