"""Sources as files, and the cache of blocks of a remote file."""

from __future__ import annotations

from concurrent.futures import Future
from io import SEEK_CUR, SEEK_END
from pathlib import Path

import pytest

from hsparse.errors import BadRequest, Corrupt, NotFound
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer import block_cache
from hsparse.hdf5.importer.block_cache import BlockCache
from hsparse.hdf5.importer.source import LocalSource

DATA = bytes(range(256)) * 5


def test_a_source_is_a_file_that_is_read_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.source.FETCH_BYTES", 100)
    path = tmp_path / "data"
    path.write_bytes(DATA)
    with LocalSource(path) as source:
        with source.file() as file, source.file() as other:
            assert other.read(10) == DATA[:10]
            assert file.read() == DATA
            assert file.read(5) == b""
            assert file.seek(-7, SEEK_END) == len(DATA) - 7
            assert file.read(100) == DATA[-7:]
            assert file.seek(1000) == file.tell() == 1000
            assert file.seek(-300, SEEK_CUR) == 700
            assert file.read(300) == DATA[700:1000]
            file.seek(len(DATA) + 5)
            assert file.read(1) == b""
            with pytest.raises(OSError, match="before the file"):
                file.seek(-len(DATA) - 1, SEEK_END)
            assert other.read(10) == DATA[10:20]
        assert source.read(0, 3) == DATA[:3]
        path.write_bytes(DATA[:100])
        with pytest.raises(Corrupt, match="became shorter"), source.file() as file:
            file.read()


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        LocalSource(tmp_path / "none")
    with pytest.raises(BadRequest, match="is no file"):
        LocalSource(tmp_path)


def test_each_block_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_cache, "BLOCK_BYTES", 10)
    monkeypatch.setattr(block_cache, "MAX_BLOCKS", 2)
    data, asked = bytes(range(35)), []

    monkeypatch.setattr(block_cache, "MAX_CACHED_RANGE_BYTES", 30)

    def begin(wanted: ByteRange) -> Future[bytes]:
        asked.append((wanted.address, wanted.size))
        found = Future[bytes]()
        found.set_result(data[wanted.address : wanted.address + wanted.size])
        return found

    cache = BlockCache(len(data), begin)
    ranges = [ByteRange(*one) for one in ((3, 4), (8, 4), (0, 0), (30, 5), (12, 3), (3, 1), (2, 31))]
    assert cache.read(ranges) == [data[one.address : one.address + one.size] for one in ranges]
    assert asked == [(0, 10), (10, 10), (30, 5), (0, 10), (2, 31)], "what is large is not taken from blocks"
