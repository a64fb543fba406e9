"""Blocks of a file far away."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from hsparse.cli.importer import block_cache
from hsparse.cli.importer.block_cache import BlockCache
from hsparse.format.hdf5.reads import ByteRange


def test_each_block_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_cache, "BLOCK", 10)
    monkeypatch.setattr(block_cache, "BLOCKS", 2)
    data, asked = bytes(range(35)), []

    monkeypatch.setattr(block_cache, "SMALL", 30)

    def begin(wanted: ByteRange) -> Future[bytes]:
        asked.append((wanted.address, wanted.size))
        found = Future[bytes]()
        found.set_result(data[wanted.address : wanted.address + wanted.size])
        return found

    cache = BlockCache(len(data), begin)
    ranges = [ByteRange(*one) for one in ((3, 4), (8, 4), (0, 0), (30, 5), (12, 3), (3, 1), (2, 31))]
    assert cache.read(ranges) == [data[one.address : one.address + one.size] for one in ranges]
    assert asked == [(0, 10), (10, 10), (30, 5), (0, 10), (2, 31)], "what is large is not taken from blocks"
