"""Blocks of a file far away."""

from __future__ import annotations

import pytest

from hsparse.cli.importer import block_cache
from hsparse.cli.importer.block_cache import BlockCache
from hsparse.format.hdf5.reads import ByteRange


def test_each_block_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_cache, "BLOCK", 10)
    monkeypatch.setattr(block_cache, "BLOCKS", 2)
    data, asked = bytes(range(35)), []

    def fetch(wanted: ByteRange) -> bytes:
        asked.append(wanted.address // 10)
        return data[wanted.address : wanted.address + wanted.size]

    cache = BlockCache(len(data), fetch)
    for address, size in ((3, 4), (8, 4), (0, 0), (30, 5), (12, 3), (3, 1), (0, 35)):
        assert cache.read(ByteRange(address, size)) == data[address : address + size]
    assert asked == [0, 1, 3, 0, 2, 3]
