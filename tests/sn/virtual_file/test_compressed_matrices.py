"""The layout `auto`: datasets that declare a matrix are compressed groups, by ranges too."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.format.filters import pipeline
from hsparse.hdf5.format.plan import matrix_plan as matrix_chunks
from hsparse.hdf5.format.plan.file_form import AUTO
from hsparse.hdf5.virtual_file import matrix_pieces as compressed_matrices
from hsparse.hdf5.virtual_file import sized_chunks
from hsparse.hdf5.virtual_file.file_pieces import FilePieces
from hsparse.hdf5.virtual_file.file_plans import FilePlans
from tests.sn.file_domain import INT, TEXT, fetch, place
from tests.sn.value_client import SETTINGS, sparse, value_client
from tests.sn.virtual_file.test_file_chunks import file_map
from tests.sn.virtual_file.test_matrix_pieces import assert_same, place_matrix, random_matrix, read_matrix
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

LAYOUTS = {
    "csr": {"encoding-type": "csr_matrix"},
    "csc": {"encoding-type": "csc_matrix"},
    "coo": {"binsparse": '{"binsparse": {"format": "COO"}}'},
}


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


async def declare(client: RestClient, id: str, name: str) -> None:
    for title, value in LAYOUTS[name].items():
        body = {"type": TEXT, "shape": [], "value": value}
        assert (await client("PUT", f"/datasets/{id}/attributes/{title}", body)).status == 201


async def place_declared(client: RestClient) -> dict[str, str]:
    """Create a matrix for each way to declare one; return their ids."""
    ids = {}
    for seed, name in enumerate(LAYOUTS):
        ids[name] = await place_matrix(client, f"/{name}", random_matrix(seed, 0.4), (16, 8))
        await declare(client, ids[name], name)
    return ids


def opened(data: bytes) -> h5py.File:
    return h5py.File(io.BytesIO(data))


async def test_declared_matrices_are_compressed_groups(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix_chunks, "ENTRIES", 100)
    await place_declared(client)
    await place(client, "/none", INT, [40], 5, select="[3:9]", layout=sparse(10))
    with opened(await fetch(client)) as file:
        for seed, name in enumerate(LAYOUTS):
            assert_same(read_matrix(file[name]), random_matrix(seed, 0.4))
            for title, array in file[name].items():
                assert (array.compression, array.shuffle) == ("gzip", title not in ("data", "values"))
                assert array.chunks == (min(100, len(array)),)
        assert file[file["none"].attrs["DEFINED_SET"]][()].sum() == 6
        assert "csr.defined" not in file
    with opened(await fetch(client, layout="stock")) as file:
        assert file["csr"].shape == file["csr.defined"].shape
    with opened(await fetch(client, matrices="anndata-csr")) as file:
        assert file["csr/data"].chunks is None
        assert file["csc"].attrs["encoding-type"] == "csr_matrix"


async def test_any_range_is_that_part_of_the_whole(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix_chunks, "ENTRIES", 100)
    await place_declared(client)
    whole = await fetch(client)
    files = client.service.component(FilePlans)
    file = await files.current((await client("GET", "/"))["root"], AUTO, check=True)
    pieces = FilePieces(client.service.owners, file.plan, 4096, files.bands)
    rng = np.random.default_rng(7)
    bounds = [sorted(rng.integers(0, len(whole) + 1, 2).tolist()) for _ in range(150)]
    for start, stop in [*bounds, *((at, at + 1) for at in range(len(whole) - 300, len(whole)))]:
        parts = [bytes(part) async for part in pieces.read(start, stop)]
        assert b"".join(parts) == whole[start:stop]
        assert pieces.memory(start, stop) > 0


async def test_a_matrix_without_elements(client: RestClient) -> None:
    id = await place(client, "/m", INT, [5, 6], layout=sparse(2, 2))
    await declare(client, id, "csr")
    with opened(await fetch(client)) as file:
        assert read_matrix(file["m"]).nnz == 0
        assert file["m/indptr"].compression == "gzip"


async def test_only_changed_matrices_are_compressed_again() -> None:
    store = CountingStore(MemoryStore())
    async with value_client(store) as client:
        ids = await place_declared(client)
        path = f"/files{client.domain}"
        await client("HEAD", path, domain=None)
        store.reset()
        root = (await client("GET", "/"))["root"]
        body = {"type": INT, "shape": [], "value": 1}
        assert (await client("PUT", f"/groups/{root}/attributes/n", body)).status == 201
        assert (await client("HEAD", path, domain=None)).status == 200
        assert store.gets == 0, "the sizes are known"
        await client("PUT", f"/datasets/{ids['csr']}/value", {"select": "[0:1,0:1]", "value": 5})
        store.reset()
        with opened(await fetch(client)) as file:
            assert read_matrix(file["csr"]).tocsr()[0, 0] == 5


async def test_large_matrices_are_not_compressed(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_matrices, "MAX_COMPRESSED", 12_500)
    await place_declared(client)
    with opened(await fetch(client)) as file:
        assert (
            sum(file[name]["indices" if name != "coo" else "indices_1"].chunks is None for name in LAYOUTS)
            == 2
        )
        for seed, name in enumerate(LAYOUTS):
            assert_same(read_matrix(file[name]), random_matrix(seed, 0.4))


async def test_another_codec_on_another_node_is_refused(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place_declared(client)
    path = f"/files{client.domain}"
    size = int((await client("HEAD", path, domain=None)).headers["Content-Length"])
    encoded = matrix_chunks.apply_filters

    def longer(*given: Any) -> Any:
        data, mask = encoded(*given)
        return bytes(data) + b"x", mask

    monkeypatch.setattr(matrix_chunks, "apply_filters", longer)
    assert matrix_chunks.apply_filters is not pipeline.apply_filters
    refused = await client("GET", path, domain=None, headers={"Range": f"bytes=8-{size - 1}"})
    assert refused.status == 412


async def test_a_band_that_is_too_large_names_the_other_layout() -> None:
    async with value_client(settings=replace(SETTINGS, answer_memory=3000)) as client:
        await declare(client, await place_matrix(client, "/m", random_matrix(), (16, 8)), "csr")
        refused = await client("GET", f"/files{client.domain}", domain=None)
        assert (refused.status, refused["error"]["kind"]) == (413, "too_large")
        assert "layout=stock" in refused["error"]["message"]
        assert (await client("GET", f"/files{client.domain}", domain=None, layout="stock")).status == 200


async def test_a_map_of_the_file_says_which_datasets_are_matrices(client: RestClient) -> None:
    await place_declared(client)
    await place(client, "/x", INT, [40], 5, select="[3:9]")
    await place(client, "/s", INT, [40], 5, select="[3:9]", layout=sparse(10))
    found = await file_map(client, layout="auto")
    assert found["file"]["layout"] == "auto"
    assert "is a matrix in this file" in found["datasets"]["/csr"]["error"]["message"]
    assert "ask for layout=stock" in found["datasets"]["/s"]["error"]["message"]
    assert found["datasets"]["/x"]["chunks"][0]["file"]["size"] > 0
    stock = await file_map(client)
    assert stock["file"]["layout"] == "stock"
    assert stock["datasets"]["/s"]["chunks"][0]["file"]["size"] == 40


SPARSE_TYPES: dict[str, tuple[Any, Any, Any]] = {
    "numbers": (INT, 7, None),
    "filled": (INT, -3, -3),
    "other order": ({"class": "H5T_INTEGER", "base": "H5T_STD_U16BE"}, 7, 5),
    "compounds": (
        {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": INT}, {"name": "b", "type": INT}]},
        [1, 2],
        [0, 3],
    ),
}


@pytest.mark.parametrize("case", SPARSE_TYPES)
async def test_other_sparse_datasets_are_deflated(client: RestClient, case: str) -> None:
    kind, value, fill = SPARSE_TYPES[case]
    options = {} if fill is None else {"fillValue": fill}
    await place(
        client, "/one", kind, [300, 200], value, select="[3:9,150]", layout=sparse(100, 80), **options
    )
    whole = await fetch(client)
    plain = await fetch(client, layout="stock")
    assert len(whole) < len(plain) / 4
    with opened(whole) as file, opened(plain) as other:
        for name in ("one", "one.defined"):
            assert (file[name].compression, file[name].compression_opts) == ("gzip", 1)
            assert other[name].compression is None
            assert file[name].chunks == other[name].chunks
            assert file[name].id.get_num_chunks() == other[name].id.get_num_chunks() == 1
            assert (file[name][()] == other[name][()]).all()
        assert file["one.defined"][()].sum() == 6
    parts = [
        await client("GET", f"/files{client.domain}", domain=None, headers={"Range": f"bytes={at}-{at + 99}"})
        for at in range(0, len(whole), 100)
    ]
    assert b"".join(part.body for part in parts) == whole


async def test_what_is_too_much_or_has_addresses_is_not_deflated(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place(client, "/one", INT, [40], 5, select="[3:9]", layout=sparse(10))
    await place(client, "/two", INT, [40], 5, select="[3:9]", layout=sparse(10))
    await place(client, "/words", TEXT, [40], "x", select="[3:9]", layout=sparse(10))
    monkeypatch.setattr(sized_chunks, "MAX_PACKED", 10 * 5)
    with opened(await fetch(client)) as file:
        assert sorted(str(file[name].compression) for name in ("one", "two")) == ["None", "gzip"]
        assert file["words"].compression is None
        assert file["words"].asstr()[3:9].tolist() == ["x"] * 6
        assert file["one"][()].tolist() == file["two"][()].tolist() == [0] * 3 + [5] * 6 + [0] * 31
