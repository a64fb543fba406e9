"""Files in a bucket of a loopback S3 server."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from hsparse.errors import Conflict, Corrupt
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer import block_cache, s3_source, source
from hsparse.hdf5.importer.s3_source import S3Source
from hsparse.storage.object_store import Stored
from hsparse.storage.s3.s3_store import S3Store
from tests.cli.importer.conftest import Import, Refused, value_bytes
from tests.cli.importer.domain_picture import assert_is_file
from tests.cli.importer.test_command import write_file
from tests.cli.importer.test_file_formats import directory
from tests.cli.importer.test_sparse_matrix import elements_at, elements_of, random_matrix, write_h5ad
from tests.support.s3_servers import make_bucket

Put = Callable[[str, bytes], str]


@pytest.fixture(scope="module")
def bucket(moto_endpoint: str) -> None:
    make_bucket(moto_endpoint, "files")


@pytest.fixture
def put(bucket: None, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Put an object, and return its URL."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    async def send(key: str, data: bytes) -> None:
        async with S3Store("files", endpoint=moto_endpoint, region="us-east-1") as store:
            await store.put(key, data)

    def run(key: str, data: bytes) -> str:
        asyncio.run(send(key, data))
        return f"s3://files/{key}"

    return run


def flags(endpoint: str) -> tuple[str, ...]:
    return ("--s3-endpoint", endpoint, "--s3-region", "us-east-1")


def test_a_file_of_a_bucket(imported: Import, tmp_path: Path, moto_endpoint: str, put: Put) -> None:
    path = write_file(tmp_path / "all.h5")
    assert_is_file(imported(put("some/all.h5", path.read_bytes()), *flags(moto_endpoint)), path)


@pytest.mark.parametrize("name", ["graph.mtx", "graph.MTX.gz", "graph.npz", "graph.h5ad"])
def test_a_matrix_of_a_bucket(
    imported: Import, tmp_path: Path, moto_endpoint: str, put: Put, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(source, "FETCH_BYTES", 1000)  # so that it comes in many pieces
    matrix = random_matrix(7, shape=(300, 400))
    path = tmp_path / name
    dataset = "/matrix"
    if name.endswith("npz"):
        scipy.sparse.save_npz(path, matrix)
    elif name.endswith("h5ad"):
        dataset = "/X"
        write_h5ad(path, matrix)
    else:
        text = BytesIO()
        scipy.io.mmwrite(text, matrix, precision=17)
        path.write_bytes(gzip.compress(text.getvalue()) if name.endswith("gz") else text.getvalue())
    connection = imported(put(name, path.read_bytes()), *flags(moto_endpoint))
    assert elements_at(connection, dataset) == elements_of(matrix)


def test_a_matrix_that_is_damaged(refused: Refused, moto_endpoint: str, put: Put) -> None:
    text = b"%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1\n2 2 2\n"
    for name, data, words in (
        ("cut.mtx", text[:-6], "its header says 2"),
        ("cut.mtx.gz", gzip.compress(text)[:-9], "s3://files/cut.mtx.gz is damaged"),
        ("cut.npz", b"PK\x03\x04", "s3://files/cut.npz is no .npz file"),
    ):
        assert words in refused(put(name, data), *flags(moto_endpoint))


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("s3://files/none.h5", "There is no object s3://files/none.h5"),
        ("s3://files", "s3://files does not name an object"),
        ("s3://none/a.h5", "There is no bucket 'none'"),
        ("s3://files/none.mtx.gz", "There is no object s3://files/none.mtx.gz"),
    ],
)
def test_what_is_no_object(refused: Refused, put: Put, moto_endpoint: str, where: str, words: str) -> None:
    assert words in refused(where, *flags(moto_endpoint))


def test_an_endpoint_that_does_not_answer_is_told_soon(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_source, "START_SECONDS", 0.2)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    assert "'files' gave no answer" in refused("s3://files/a.h5", *flags("http://127.0.0.1:1"))


def test_sources_are_objects_of_the_bucket(
    refused: Refused,
    imported: Import,
    tmp_path: Path,
    moto_endpoint: str,
    put: Put,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sources of a virtual dataset, and external data, lie below the prefix of the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()
    with h5py.File(tmp_path / "raw" / "s.h5", "w") as file:
        file["data"] = np.arange(12).reshape(3, 4)
    (tmp_path / "raw" / "s.bin").write_bytes(np.arange(5).tobytes())
    layout = h5py.VirtualLayout((4, 4), "<i8")
    layout[1:] = h5py.VirtualSource("raw/s.h5", "data", (3, 4))
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_virtual_dataset("v", layout, fillvalue=-1)
        file.create_dataset("x", (7,), "<i8", external=[("raw/s.bin", 0, 56)])
    for name in ("raw/s.h5", "raw/s.bin", "v.h5"):
        put(f"run/{name}", (tmp_path / name).read_bytes())
    connection = imported("s3://files/run/v.h5", *flags(moto_endpoint))
    assert_is_file(connection, tmp_path / "v.h5")
    layout = h5py.VirtualLayout((3, 4), "<i8")
    layout[:] = h5py.VirtualSource("../raw/s.h5", "data", (3, 4))
    with h5py.File(tmp_path / "up.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
    url = put("run/deep/up.h5", (tmp_path / "up.h5").read_bytes())
    assert "'../raw/s.h5' is outside of the places" in refused(url, *flags(moto_endpoint))
    connection = imported(url, *flags(moto_endpoint), "--sources", "s3://files/run")
    assert value_bytes(connection, "/v") == np.arange(12).tobytes()


def test_ranges(moto_endpoint: str, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_cache, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(block_cache, "MAX_BLOCKS", 3)
    monkeypatch.setattr(block_cache, "MAX_CACHED_RANGE_BYTES", 1500)
    rng = np.random.default_rng(1)
    data = rng.bytes(20_500)
    with S3Source(put("ranges", data), endpoint=moto_endpoint, region="us-east-1") as found:
        assert found.size == len(data)
        for _ in range(10):
            starts = rng.integers(0, len(data), 5).tolist()
            wanted = tuple(
                ByteRange(at, int(rng.integers(0, min(4000, len(data) - at) + 1))) for at in starts
            )
            expected = [data[one.address : one.address + one.size] for one in wanted]
            assert list(found.fetch(wanted)) == expected
        with pytest.raises(Corrupt, match="the file ends at 20500"):
            found.read(20_000, 501)


def test_chunks_that_are_small_share_requests(
    imported: Import, tmp_path: Path, moto_endpoint: str, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100 datasets with 1000 chunks, 8 MB, each block of 1 MiB is requested once."""
    rng = np.random.default_rng(1)
    with h5py.File(tmp_path / "many.h5", "w") as file:
        for number in range(100):
            data = rng.integers(0, 2**60, 10_000)
            file.create_dataset(f"{number % 10}/{number}", data=data, chunks=(1000,))
    path = tmp_path / "many.h5"
    asked: list[tuple[int, int | None]] = []
    real = S3Store.get_range

    async def get_range(self: S3Store, key: str, start: int, length: int | None = None) -> Stored:
        asked.append((start, length))
        return await real(self, key, start, length)

    monkeypatch.setattr(S3Store, "get_range", get_range)
    imported(put("many.h5", path.read_bytes()), *flags(moto_endpoint))
    blocks = -(-path.stat().st_size // block_cache.BLOCK_BYTES)
    assert len(asked) == 1 + blocks
    assert sorted(start for start, _ in asked[1:]) == [
        number * block_cache.BLOCK_BYTES for number in range(blocks)
    ]


def test_what_is_wanted_is_under_way_at_once(
    moto_endpoint: str, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_cache, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(block_cache, "MAX_CACHED_RANGE_BYTES", 500)
    data = bytes(range(200)) * 25
    url = put("at-once", data)
    real = S3Store.get_range
    waiting: list[asyncio.Future[None]] = []

    async def get_range(self: S3Store, key: str, start: int, length: int | None = None) -> Stored:
        if start >= 0:
            waiting.append(asyncio.get_running_loop().create_future())
            if len(waiting) == 3:  # none is answered before all are asked
                for one in waiting:
                    one.set_result(None)
            await waiting[len(waiting) - 1]
        return await real(self, key, start, length)

    monkeypatch.setattr(S3Store, "get_range", get_range)
    with S3Source(url, endpoint=moto_endpoint, region="us-east-1") as found:
        wanted = (ByteRange(10, 20), ByteRange(900, 200), ByteRange(2000, 2500), ByteRange(1100, 7))
        assert list(found.fetch(wanted)) == [data[one.address :][: one.size] for one in wanted]
    assert len(waiting) == 3


def test_a_range_of_many_bytes_has_time(
    moto_endpoint: str, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 MiB take 9 minutes at 1 Mbit/s."""
    url = put("large", b"data")
    deadlines: list[float] = []
    real = S3Store._retry

    async def retry(self: S3Store, *given: Any) -> Any:
        deadlines.append(self._deadline)
        return await real(self, *given)

    monkeypatch.setattr(S3Store, "_retry", retry)
    with S3Source(url, endpoint=moto_endpoint, region="us-east-1") as found:
        assert found.read(0, 4) == b"data"
    assert deadlines[-1] >= 64 * 8


def test_an_object_that_changes(moto_endpoint: str, put: Put) -> None:
    url = put("changes", bytes(200_000))
    with S3Source(url, endpoint=moto_endpoint, region="us-east-1") as source:
        put("changes", bytes(100_000) + b"x" * 100_000)
        with pytest.raises(Conflict, match="changed while it was read"):
            source.read(0, 100_000)


def test_a_directory_of_cell_ranger_in_a_bucket(
    imported: Import, tmp_path: Path, moto_endpoint: str, put: Put
) -> None:
    path = directory(tmp_path / "cells")
    for one in path.iterdir():
        put(f"run/cells/{one.name}", one.read_bytes())
    connection = imported("s3://files/run/cells/", *flags(moto_endpoint))
    assert elements_at(connection, "/X") == elements_at(imported(path), "/X")
    imported("s3://files/run/", *flags(moto_endpoint), status=2)
