"""The cache of bands; sparse datasets as AnnData's and Binsparse's groups: against scipy, by ranges."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import subprocess
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy import sparse as sp

from hsparse.errors import Corrupt, StoreFailed
from hsparse.format.selections.select_syntax import parse_select
from hsparse.hdf5.format.plan.file_form import FileForm
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from hsparse.hdf5.format.plan.matrix_plan import MatrixBands, SortedBand
from hsparse.hdf5.virtual_file import file_chunks as chunk_reads
from hsparse.hdf5.virtual_file import matrix_pieces
from hsparse.hdf5.virtual_file.file_pieces import FilePieces
from hsparse.hdf5.virtual_file.file_plans import FilePlans
from hsparse.hdf5.virtual_file.matrix_pieces import BandCache
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records import dataset
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.wire.record_message import BeginAppend
from tests.format.hdf5.test_matrix_plan import Stored, made, stored_matrix
from tests.sn.file_domain import GZIP, INT, POINT, TEXT, fetch, place
from tests.sn.value_client import SETTINGS, sparse, value_client
from tests.support.endurance import repeats
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

BANDS, CHUNKS = stored_matrix(sp.coo_array(np.ones((4, 5))), (1, 5), 0)


class Making:
    """Makes bands, and says which."""

    def __init__(self, held: BandCache) -> None:
        self.held = held
        self.done: list[int] = []

    async def get(self, band: int) -> SortedBand:
        async def make() -> SortedBand:
            await asyncio.sleep(0)
            self.done.append(band)
            return made(BANDS, CHUNKS, band)

        return await self.held.get(BANDS, band, make)


async def test_many_who_want_one_band() -> None:
    making = Making(BandCache())
    found = await asyncio.gather(*(making.get(2) for _ in range(9)))
    assert making.done == [2]
    assert len({id(one) for one in found}) == 1


async def test_the_oldest_are_forgotten() -> None:
    size = made(BANDS, CHUNKS, 0).nbytes
    making = Making(BandCache(2 * size))
    for band in (0, 1, 0, 2, 0, 1):
        await making.get(band)
    assert making.done == [0, 1, 2, 1]


async def test_what_is_larger_than_all_that_may_be_kept_is_not_kept() -> None:
    making = Making(BandCache(made(BANDS, CHUNKS, 0).nbytes - 1))
    for band in (0, 0, 1, 0):
        await making.get(band)
    assert making.done == [0, 0, 1, 0]


async def test_a_matrix_that_is_forgotten() -> None:
    held = BandCache()

    async def take(bands: MatrixBands, chunks: Stored) -> None:
        async def make() -> SortedBand:
            return made(bands, chunks, 1)

        await held.get(bands, 1, make)

    bands, chunks = stored_matrix(sp.coo_array(np.ones((4, 5))), (1, 5), 0)
    making = Making(held)
    await making.get(0)
    alive = weakref.ref(bands)
    await take(bands, chunks)
    held.forget([bands])
    await take(bands, chunks)  # by a reader who began before
    del bands
    gc.collect()
    assert alive() is None
    await making.get(0)
    assert making.done == [0], "others stay"


async def test_one_that_cannot_be_made() -> None:
    held = BandCache()

    async def make() -> SortedBand:
        raise Corrupt("no")

    with pytest.raises(Corrupt):
        await held.get(BANDS, 0, make)
    making = Making(held)
    await making.get(0)
    assert making.done == [0]


F64 = "H5T_IEEE_F64LE"
SHAPE = (50, 37)
ENCODINGS = [one.value for one in MatrixEncoding]
BOOLEAN = {
    "class": "H5T_ENUM",
    "base": {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"},
    "members": [{"name": "FALSE", "value": 0}, {"name": "TRUE", "value": 1}],
}


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


def random_matrix(seed: int = 1, density: float = 0.1, shape: tuple[int, int] = SHAPE) -> sp.coo_array:
    """Return a matrix with some zeros stored, in row-major order."""
    rng = np.random.default_rng(seed)
    found = sp.random_array(
        shape, density=density, rng=rng, data_sampler=lambda size: rng.integers(-9, 9, size)
    )
    return found.tocsr().tocoo()


async def place_matrix(
    client: RestClient,
    h5path: str,
    matrix: sp.coo_array,
    chunk: tuple[int, int],
    kind: Any = F64,
    **given: Any,
) -> str:
    """Create a sparse dataset with a matrix's stored elements."""
    id = await place(client, h5path, kind, list(matrix.shape), layout=sparse(*chunk), **given)
    points = np.stack((matrix.row, matrix.col), 1).tolist()
    if points:
        body = {"points": points, "value": matrix.data.tolist()}
        wrote = await client("PUT", f"/datasets/{id}/value", body)
        assert wrote.status == 200, wrote.body
    return id


def read_matrix(group: h5py.Group) -> sp.sparray:
    """Return what a group says, as scipy has it."""
    if "binsparse" in group.attrs:
        about = json.loads(group.attrs["binsparse"])["binsparse"]
        kind, shape = about["format"], tuple(about["shape"])
        values = group["values"][()]
        assert about["number_of_stored_values"] == len(values)
        for name, title in about["data_types"].items():
            assert group[name].dtype == np.dtype(title)
        if kind == "COO":
            return sp.coo_array((values, (group["indices_0"][()], group["indices_1"][()])), shape)
        arrays = values, group["indices_1"][()], group["pointers_to_1"][()]
    else:
        kind, shape = group.attrs["encoding-type"][:3].upper(), tuple(group.attrs["shape"])
        assert group.attrs["encoding-version"] == "0.1.0"
        arrays = group["data"][()], group["indices"][()], group["indptr"][()]
    made: sp.sparray = (sp.csr_array if kind == "CSR" else sp.csc_array)(arrays, shape)
    made.check_format()
    assert made.has_sorted_indices
    return made


def assert_same(found: sp.sparray, expected: sp.coo_array) -> None:
    """Compare stored elements, zeros too, and their order."""
    expected = expected.tocsc() if isinstance(found, sp.csc_array) else expected.tocsr()
    expected.sort_indices()
    assert found.shape == expected.shape
    one, other = found.tocoo(), expected.tocoo()
    for name in ("row", "col", "data"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


@pytest.mark.parametrize("form", ENCODINGS)
@pytest.mark.parametrize("chunk", [(16, 8), (1, 37), (50, 1), SHAPE, (7, 5)])
async def test_scipy_reads_them(client: RestClient, form: str, chunk: tuple[int, int]) -> None:
    matrix = random_matrix()
    await place_matrix(client, "/m", matrix, chunk, filters=GZIP)
    with h5py.File(io.BytesIO(await fetch(client, matrices=form))) as file:
        assert sorted(file) == ["m"]
        assert_same(read_matrix(file["m"]), matrix)


@pytest.mark.endurance
@pytest.mark.parametrize("form", ENCODINGS)
async def test_any_range_is_that_part_of_the_whole(client: RestClient, form: str) -> None:
    for number, chunk in enumerate([(16, 8), (1, 37), (50, 1)]):
        await place_matrix(client, f"/m{number}", random_matrix(number, 0.3), chunk)
    hollow = random_matrix(5, 0.0001, (repeats(40_000, short=8_000), 500))
    await place_matrix(client, "/hollow", hollow, (8, 100))
    whole = await fetch(client, matrices=form)
    root = (await client("GET", "/"))["root"]
    files = client.service.component(FilePlans)
    file = await files.current(root, FileForm(matrices=MatrixEncoding(form)), check=True)
    pieces = FilePieces(client.service.owners, file.plan, 4096, files.bands)
    rng = np.random.default_rng(7)
    for start, stop in [
        sorted(rng.integers(0, len(whole) + 1, 2).tolist()) for _ in range(repeats(150, short=12))
    ]:
        stop = min(stop, start + 20_000)
        parts = [bytes(part) async for part in pieces.read(start, stop)]
        assert b"".join(parts) == whole[start:stop]
        assert pieces.memory(start, stop) > 0
    for start in range(len(whole) - repeats(300, short=40), len(whole)):
        part = [bytes(part) async for part in pieces.read(start, start + 1)]
        assert b"".join(part) == whole[start : start + 1]


async def test_it_is_in_the_place_of_the_dataset(client: RestClient) -> None:
    matrix = random_matrix()
    id = await place_matrix(client, "/g/m", matrix, (16, 8))
    root = (await client("GET", "/"))["root"]
    assert (await client("PUT", f"/groups/{root}/links/again", {"id": id})).status == 201
    reference = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
    for owner, name, kind, value in (
        (f"/datasets/{id}", "unit", TEXT, "mm"),
        (f"/datasets/{id}", "shape", TEXT, "of another kind"),
        (f"/groups/{root}", "to", reference, f"datasets/{id}"),
    ):
        body = {"type": kind, "shape": [], "value": value}
        assert (await client("PUT", f"{owner}/attributes/{name}", body)).status == 201
    await place(client, "/refs", reference, [2], [f"datasets/{id}", ""])
    with h5py.File(io.BytesIO(await fetch(client, matrices="anndata-csr"))) as file:
        assert sorted(file) == ["again", "g", "refs"]
        assert list(file["g"]) == ["m"]
        assert file["again"] == file["g/m"] == file[file.attrs["to"]] == file[file["refs"][0]]
        assert file["g/m"].attrs["unit"] == "mm"
        assert sorted(file["g/m"].attrs) == ["encoding-type", "encoding-version", "shape", "unit"]
        assert_same(read_matrix(file["again"]), matrix)


async def test_what_is_no_matrix_stays(client: RestClient) -> None:
    await place(client, "/one", INT, [9], 1, select="[3:5]", layout=sparse(4))
    await place(client, "/words", TEXT, [9, 9], "w", select="[3:5,2]", layout=sparse(4, 4))
    await place(client, "/points", POINT, [9, 9], [[[0.5, -3]]], select="[3:4,2:3]", layout=sparse(4, 4))
    await place(client, "/none", INT, [0, 9], layout=sparse(4, 4), maxdims=[0, 9])
    await place(client, "/dense", INT, [2, 2], [[1, 2], [3, 4]])
    with h5py.File(io.BytesIO(await fetch(client, matrices="binsparse-coo"))) as file:
        for name in ("one", "words", "points", "none"):
            assert file[file[name].attrs["DEFINED_SET"]].name == f"/{name}.defined"
        assert file["dense"].shape == (2, 2)
    with h5py.File(io.BytesIO(await fetch(client, matrices="anndata-csr"))) as file:
        assert isinstance(file["points"], h5py.Group)
        assert file["points/data"][()].tolist() == [(0.5, -3)]


@pytest.mark.parametrize("form", ENCODINGS)
async def test_types_fill_values_and_nothing_at_all(client: RestClient, form: str) -> None:
    matrix = random_matrix()
    numbers = matrix.data.astype(int)
    for name, kind, data in (
        ("big", "H5T_STD_I16BE", numbers),
        ("small", "H5T_STD_U8LE", numbers % 200),
        ("bool", BOOLEAN, numbers % 2),
        ("float", "H5T_IEEE_F32LE", matrix.data / 2),
    ):
        some = sp.coo_array((data, (matrix.row, matrix.col)), SHAPE)
        await place_matrix(client, f"/{name}", some, (16, 8), kind, fillValue=1)
        with h5py.File(io.BytesIO(await fetch(client, matrices=form))) as file:
            group = file[name]
            values = group["values" if "binsparse" in form else "data"]
            assert values.fillvalue == 1
            order = some.tocsc() if form.endswith("csc") else some.tocsr()
            assert values[()].tolist() == order.data.tolist()
            if "binsparse" in form:
                about = json.loads(group.attrs["binsparse"])["binsparse"]
                assert about["fill"] is True
                assert about["data_types"]["fill_value"] == about["data_types"]["values"]
                assert group["fill_value"][()].tolist() == [1]
            assert (values.dtype == bool) == (name == "bool")
    await place(client, "/nothing", INT, [5, 6], layout=sparse(2, 2))
    with h5py.File(io.BytesIO(await fetch(client, matrices=form))) as file:
        assert read_matrix(file["nothing"]).nnz == 0


async def test_each_form_has_an_etag_of_its_own(client: RestClient) -> None:
    await place_matrix(client, "/m", random_matrix(), (16, 8))
    path, etags = f"/files{client.domain}", set()
    for form in ("", *ENCODINGS):
        reply = await client("HEAD", path, domain=None, matrices=form)
        etags.add(reply.headers["ETag"])
        assert int(reply.headers["Content-Length"]) == len(await fetch(client, matrices=form))
    assert len(etags) == 6
    for options in ({"matrices": "csr"}, {"matrices": "anndata-csr", "layout": "structured"}):
        refused = await client("GET", path, domain=None, **options)
        assert (refused.status, refused["error"]["kind"]) == (400, "bad_request")


async def test_a_range_reads_its_bands_and_no_others() -> None:
    store = CountingStore(MemoryStore())
    async with value_client(store) as client:
        matrix = sp.coo_array(np.ones((40, 20)))
        await place_matrix(client, "/m", matrix, (10, 5))
        whole = await fetch(client, matrices="anndata-csr")
        with h5py.File(io.BytesIO(whole)) as file:
            places = {name: file["m"][name].id.get_offset() for name in file["m"]}
        for name, start, size, gets in (
            ("data", 0, 8, 4),
            ("data", 199 * 8, 16, 8),
            ("indices", 0, 800 * 4, 16),
            ("indptr", 0, 4, 0),
            ("indptr", 10 * 4, 4, 0),
            ("indptr", 11 * 4, 4, 4),
            ("indptr", 0, 41 * 4, 16),
        ):
            client.service.component(FilePlans).bands = type(client.service.component(FilePlans).bands)()
            store.reset()
            begin = places[name] + start
            part = await client(
                "GET",
                f"/files{client.domain}",
                domain=None,
                matrices="anndata-csr",
                headers={"Range": f"bytes={begin}-{begin + size - 1}"},
            )
            assert part.body == whole[begin : begin + size]
            assert store.gets == gets, (name, start)


async def test_bands_are_kept_for_the_next_part() -> None:
    store = CountingStore(MemoryStore())
    async with value_client(store) as client:
        await place_matrix(client, "/m", sp.coo_array(np.ones((40, 20))), (10, 5))
        await client("HEAD", f"/files{client.domain}", domain=None, matrices="binsparse-csr")
        store.reset()
        await fetch(client, matrices="binsparse-csr")
        assert store.gets == 16, "values, indices and pointers are of one reading"


async def test_bands_go_with_their_plan(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    id = await place_matrix(client, "/m", random_matrix(), (16, 8))
    root = (await client("GET", "/"))["root"]
    files, alive = client.service.component(FilePlans), []
    csr, csc = (FileForm(matrices=MatrixEncoding(f"anndata-{kind}")) for kind in ("csr", "csc"))

    async def planned(form: FileForm) -> str:
        """Have the whole file made; return its etag."""
        await fetch(client, matrices=form.params["matrices"])
        file = await files.current(root, form, check=False)
        alive.append(weakref.ref(next(iter(file.plan.columns.values())).bands))
        return file.etag

    def count() -> int:
        gc.collect()
        return sum(one() is not None for one in alive)

    for value in range(3):
        await client("PUT", f"/datasets/{id}/value", {"select": "[0:1,0:1]", "value": value})
        etag = await planned(csr)
        assert count() == 1, "another plan came in its place"
    files.drop(root, csr, etag)
    assert count() == 0
    await planned(csr)
    monkeypatch.setattr(files._cached, "limit", 1)
    await planned(csc)
    assert count() == 1, "there is room for the last one alone"


async def test_a_shrink_that_was_interrupted_is_finished(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(owners: Owners, dataset: StoredDataset) -> None:
        raise StoreFailed("The store is away.")

    matrix = random_matrix().tocsr()
    id = await place_matrix(client, "/m", matrix.tocoo(), (16, 8), maxdims=[0, 0])
    for form, shape in (("anndata-csr", (41, 37)), ("binsparse-csc", (41, 19))):
        with monkeypatch.context() as patch:
            patch.setattr(dataset, "_trim", fail)
            assert (await client("PUT", f"/datasets/{id}/shape", {"shape": shape})).status == 500
        with h5py.File(io.BytesIO(await fetch(client, matrices=form))) as file:
            assert_same(read_matrix(file["m"]), matrix[: shape[0], : shape[1]].tocoo())
        assert "trim" not in await client.service.owners.record(id)


async def test_what_a_dead_append_left_outside_is_not_in_a_file(client: RestClient) -> None:
    matrix = random_matrix().tocsr()
    id = await place_matrix(client, "/m", matrix.tocoo(), (16, 8), maxdims=[0, 0])
    owners = client.service.owners
    rows, columns = matrix.shape
    record = (await owners.apply(BeginAppend(id, "dead", (1, columns), 0, -1.0))).unwrap()
    grown = StoredDataset.of({**record, "shape": {**record["shape"], "dims": [rows + 1, columns]}})
    await ChunkFanout(owners, grown).write(parse_select(f"[{rows},:]", grown.extent), np.array(1.0))
    with h5py.File(io.BytesIO(await fetch(client, matrices="anndata-csr"))) as file:
        assert_same(read_matrix(file["m"]), matrix.tocoo())
    assert not (await owners.record(id))["appends"]["parts"]


async def test_a_change_meanwhile_is_refused(client: RestClient) -> None:
    id = await place_matrix(client, "/m", random_matrix(), (16, 8))
    path = f"/files{client.domain}"
    size = int((await client("HEAD", path, domain=None, matrices="anndata-csc")).headers["Content-Length"])
    await client("PUT", f"/datasets/{id}/value", {"select": "[0:1,0:1]", "value": 5})
    headers = {"Range": f"bytes=8-{size - 1}"}
    changed = await client("GET", path, domain=None, matrices="anndata-csc", headers=headers)
    assert changed.status == 412


async def test_a_band_that_is_too_large() -> None:
    async with value_client(settings=replace(SETTINGS, answer_memory=3000)) as client:
        id = await place_matrix(client, "/m", random_matrix(), (16, 8))
        refused = await client("GET", f"/files{client.domain}", domain=None, matrices="anndata-csr")
    assert (refused.status, refused["error"]["kind"]) == (413, "too_large")
    assert f"16 rows of {id}" in refused["error"]["message"]


@pytest.mark.needs("h5dump")
async def test_hdf5s_own_tools_read_it(client: RestClient, tmp_path: Path) -> None:
    await place_matrix(client, "/m", random_matrix(), (16, 8), fillValue=2)
    for form in ENCODINGS:
        path = tmp_path / f"{form}.h5"
        path.write_bytes(await fetch(client, matrices=form))
        done = await asyncio.to_thread(
            subprocess.run, ["h5dump", "-B", str(path)], capture_output=True, text=True, check=True
        )
        assert "error" not in done.stderr
        assert 'GROUP "m"' in done.stdout


async def test_small_pages_and_small_caches(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_pieces, "ENTRIES_AT_ONCE", 3)
    monkeypatch.setattr(chunk_reads, "CHUNKS_AT_ONCE", 2)
    client.service.component(FilePlans).bands = type(client.service.component(FilePlans).bands)(1)
    matrix = random_matrix()
    await place_matrix(client, "/m", matrix, (16, 8))
    for form in ENCODINGS:
        with h5py.File(io.BytesIO(await fetch(client, matrices=form))) as file:
            assert_same(read_matrix(file["m"]), matrix)
