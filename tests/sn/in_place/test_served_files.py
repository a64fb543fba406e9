"""Files of a directory are domains: what is listed, read, refused, and what a change of a file does."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from errno import EACCES, ESTALE
from functools import partialmethod
from pathlib import Path
from threading import Event
from typing import Any

import anndata
import h5py
import h5pyd
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

import hsparse
from hsparse.errors import Conflict, Forbidden, Misconfigured, NotFound
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.kinds.registry import kind_of
from hsparse.hdf5.in_place.file_chunks import MatrixChunks
from hsparse.hdf5.in_place.folders import DirectoryFiles
from hsparse.hdf5.in_place.places import named_folders
from hsparse.hdf5.in_place.served_file import ServedFile
from hsparse.hdf5.in_place.store import ServedFiles
from hsparse.model.ids import root_id, storage_key
from hsparse.storage.object_store import Entry, Stored
from tests.sn.in_place.conftest import DATA, ask, listed, served
from tests.testing.memory_store import MemoryStore
from tests.testing.store_model import Move, check_moves, moves

MATRIX = sp.random(3000, 40, 0.3, format="csr", dtype="f4", random_state=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are served, and others, some behind links."""
    place = tmp_path_factory.mktemp("files") / "runs"
    (place / "sub" / "empty").mkdir(parents=True)
    (place / ".hidden").mkdir()
    with h5py.File(place / "sub" / "run.h5", "w") as file:
        file.create_dataset("x", data=DATA, chunks=(64, 32), compression="gzip")
        file["text"] = ["a", "bb"]
        file["again"] = h5py.SoftLink("/x")
        file.attrs["n"] = 3
    layout = h5py.VirtualLayout(DATA.shape, DATA.dtype)
    layout[...] = h5py.VirtualSource("run.h5", "x", DATA.shape)
    with h5py.File(place / "sub" / "virtual.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
    for name in ("a.NC", ".secret.h5", "named.txt"):
        (place / name).write_bytes((place / "sub" / "run.h5").read_bytes())
    (place / "broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"junk" * 100)
    (place / "empty.h5").write_bytes(b"")
    (place / "b.txt").write_text("text")
    anndata.AnnData(MATRIX).write_h5ad(place / "csr.h5ad", compression="gzip")
    anndata.AnnData(MATRIX.tocsc()).write_h5ad(place / "csc.h5ad")
    outside = place.parent / "outside.h5"
    outside.write_bytes((place / "sub" / "run.h5").read_bytes())
    (place / "out.h5").symlink_to(outside)
    (place / "up").symlink_to(place.parent)
    (place / "loop.h5").symlink_to(place / "loop.h5")
    (place / "inside.h5").symlink_to(place / "sub" / "run.h5")
    return place


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("root"), folder) as url:
        yield url


def test_folders_list_what_is_served(url: str) -> None:
    """Nothing hidden, no other files, nothing that a link has outside; what is broken hides no other."""
    assert "runs" in listed(url, "/")
    names = ["a.NC", "broken.h5", "csc.h5ad", "csr.h5ad", "empty.h5", "inside.h5", "named.txt", "sub"]
    assert listed(url, "/runs/") == names
    assert listed(url, "/runs/sub/") == ["empty", "run.h5", "virtual.h5"]
    assert listed(url, "/runs/sub/empty/") == []


@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        (None, 500, "/runs is missing"),
        (PermissionError(EACCES, "Permission denied"), 403, "chmod"),
        (OSError(ESTALE, "Stale file handle"), 500, "Stale file handle"),
    ],
    ids=["unmounted", "closed", "stale"],
)
def test_a_place_out_of_reach_is_no_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: OSError | None, status: int, said: str
) -> None:
    place = tmp_path / "runs"
    (place / "sub").mkdir(parents=True)

    def scandir(path: Any) -> Any:
        if Path(path).is_relative_to(place) and failure is not None:
            raise failure
        return real(path)

    real = os.scandir
    with served(tmp_path / "root", place) as url:
        assert listed(url, "/runs/") == ["sub"]
        if failure is None:
            place.rename(tmp_path / "away")
        monkeypatch.setattr(os, "scandir", scandir)
        answer = ask(url, "/domains?domain=/runs/")
        assert answer[0] == status
        assert said in answer[1]
        monkeypatch.undo()
        if failure is None:
            (tmp_path / "away").rename(place)
        assert listed(url, "/runs/") == ["sub"]


def test_a_listing_looks_at_its_folder_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    for name in ("content", "state", "open"):

        def asking(folder: DirectoryFiles, *given: Any, name: str = name, real: Any = None) -> Any:
            asked.append((name, given[0]))
            return real(folder, *given)

        monkeypatch.setattr(
            DirectoryFiles, name, partialmethod(asking, name=name, real=getattr(DirectoryFiles, name))
        )
    assert len(listed(url, "/runs/")) == 8
    assert [one for one in asked if one[1]] == []
    assert len(asked) <= 2, "it is there, and what it has"


@pytest.mark.parametrize("name", ["sub/run.h5", "a.NC", "inside.h5"])
def test_a_file_is_a_domain(url: str, name: str) -> None:
    with hsparse.open(f"{url}/runs/{name}") as file:
        assert sorted(file) == ["again", "text", "x"]
        assert dict(file.attrs) == {"n": 3}
        assert np.array_equal(file["x"][5:300, ::7], DATA[5:300, ::7])
        assert np.array_equal(file["again"][...], DATA)
        assert file["x"].chunks == (64, 32)
        assert [bytes(text).decode() if isinstance(text, bytes) else text for text in file["text"]] == [
            "a",
            "bb",
        ]


def test_data_without_chunks_is_read_in_slabs(tmp_path: Path) -> None:
    """A frame of modules side by side, or of a contiguous dataset, has little to do with other frames."""
    place, shape = tmp_path / "modules", (99, 128, 512)
    place.mkdir()
    whole = h5py.VirtualLayout((99, 2, *shape[1:]), "<u2")
    for number in range(2):
        with h5py.File(place / f"{number}.h5", "w") as file:
            file.create_dataset("x", shape, "<u2", chunks=(1, *shape[1:]))[98] = number + 1
        whole[:, number] = h5py.VirtualSource(f"{number}.h5", "x", shape)
    with h5py.File(place / "all.h5", "w") as file:
        file.create_virtual_dataset("virtual", whole)
        file.create_dataset("contiguous", shape, "<u2")[98] = 3
    with served(tmp_path / "root", place) as url, hsparse.open(f"{url}/modules/all.h5") as file:
        assert (file["virtual"].chunks, file["contiguous"].chunks) == ((16, 2, 128, 512), (32, 128, 512))
        assert file["virtual"][98, :, 5, 5].tolist() == [1, 2]
        assert file["contiguous"][98, 5, 5] == 3


@pytest.mark.parametrize("name", ["csr.h5ad", "csc.h5ad"])
def test_a_compressed_matrix_is_a_sparse_dataset(url: str, name: str) -> None:
    with hsparse.open(f"{url}/runs/{name}") as file:
        X = file["X"]
        assert (sp.csr_matrix(X[...]) != MATRIX).nnz == 0
        rows = [1, 17, 2999]
        assert (sp.csr_matrix(X[rows]) != MATRIX[rows]).nnz == 0
        assert (sp.csr_matrix(X[:, [0, 39]]) != MATRIX[:, [0, 39]]).nnz == 0
        assert X.sum() == pytest.approx(MATRIX.sum(), rel=1e-6)
        assert min(X.chunks) < min(X.shape) or X.chunks[0] < X.shape[0]  # bands of rows, or of columns


def _write_matrix(path: Path, indices: Any, pointers: Any, chunk: int = 3) -> None:
    """Write a csr matrix of 4 rows and 300 columns, whose values count from 1."""
    options: Any = {"chunks": (chunk,), "compression": "gzip"}
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": (4, 300)})
        group.create_dataset("data", data=np.arange(1, len(indices) + 1, dtype="f4"), **options)
        group.create_dataset("indices", data=indices, **options)
        group["indptr"] = pointers


def test_indices_of_every_type_and_order(tmp_path: Path) -> None:
    place, pointers = tmp_path / "m", [0, 3, 3, 5, 7]
    place.mkdir()
    orders = [0, 2, 5, 1, 299, 0, 4], [5, 0, 2, 299, 1, 4, 0], [0, 1, 2, 0, 1, 0, 1]
    cases = {
        f"{dtype}{number}-{chunk}.h5": (dtype, order)
        for dtype in ("i2", "u2", "i8", "u8")
        for number, order in enumerate(orders)
        for chunk in (3, 7)
    }
    for name, (dtype, order) in cases.items():
        stored = np.array(order, f">{dtype}" if dtype == "i2" else dtype)
        _write_matrix(place / name, stored, pointers, int(name[-4]))
    with served(tmp_path / "root", place) as url:
        for name, (_, order) in cases.items():
            expected = sp.csr_matrix((np.arange(1, 8, dtype="f4"), order, pointers), (4, 300))
            with hsparse.open(f"{url}/m/{name}") as file:
                assert (sp.csr_matrix(file["X"][...]) != expected).nnz == 0, name


def test_threads_that_need_a_block_wait_for_one_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_matrix(tmp_path / "m.h5", np.arange(7), [0, 7, 7, 7, 7])
    folder = DirectoryFiles(tmp_path)
    state = folder.state("m.h5")
    assert state is not None
    served = ServedFile("/m.h5", root_id(b"12345678"), 0.0, lambda: folder.open("m.h5", state))
    [dataset] = [id for id in served._records.ids() if id.startswith("d-")]
    one = served._records.object(dataset)
    assert one is not None
    chunks = served._opened(one)[1]
    assert isinstance(chunks, MatrixChunks)
    column, begun, go_on = chunks._indices, Event(), Event()
    decoded, real = [], column._decoded

    def decode(number: int) -> Any:
        decoded.append(number)
        begun.set()
        assert go_on.wait(10)
        return real(number)

    monkeypatch.setattr(column, "_decoded", decode)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(column.read, 0, 3)
        assert begun.wait(10)
        others = [threads.submit(column.read, 0, 3) for _ in range(2)]
        go_on.set()
        for one in (first, *others):
            assert np.array_equal(one.result(10), np.arange(3))
    assert decoded == [0]


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("broken.h5", 400, "/runs/broken.h5"),
        ("none.h5", 404, "/runs/none.h5"),
        ("out.h5", 403, "leads out of the served directory"),
        ("up/outside.h5", 403, "leads out of the served directory"),
        ("loop.h5", 404, "/runs/loop.h5"),
        (".secret.h5", 404, "/runs/.secret.h5"),
    ],
)
def test_what_cannot_be_opened_is_named(url: str, folder: Path, name: str, status: int, said: str) -> None:
    found, message = ask(url, f"/groups?domain=/runs/{name}")
    assert (found, said in message) == (status, True), message
    assert str(folder) not in message


@pytest.mark.parametrize("query", ["", "&verbose=1"])
def test_a_file_that_cannot_be_read_is_listed_with_its_reason(url: str, query: str) -> None:
    """`verbose` opens the files; otherwise the reason is known once one was opened."""
    ask(url, "/groups?domain=/runs/empty.h5")
    found = ask(url, f"/domains?domain=/runs/{query}")["domains"]
    assert {one["name"] for one in found} >= {"/runs/broken.h5", "/runs/empty.h5", "/runs/a.NC"}
    [empty] = [one for one in found if one["name"] == "/runs/empty.h5"]
    assert empty["error"] == "unsupported"
    assert "is empty, not an HDF5 file" in empty["reason"]
    [whole] = [one for one in found if one["name"] == "/runs/a.NC"]
    assert not {"error", "reason"} & whole.keys()
    assert whole.get("num_datasets", 2) == 2


@pytest.mark.parametrize("domain", ["/runs", "/runs/sub/run.h5"])
def test_nobody_is_told_to_have_a_right_to_change_it(url: str, domain: str) -> None:
    rights = ask(url, f"/explorer/rights?domain={domain}")["rights"]
    assert [right for right, given in rights.items() if given] == ["read", "readACL"]


@pytest.mark.parametrize("kept_open", [True, False])
async def test_raw_data_that_changes_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_open: bool
) -> None:
    """The ids stay, as the file does; the etags of objects say that they are others."""
    if not kept_open:
        monkeypatch.setattr("hsparse.hdf5.importer.source_files.MAX_OPEN", 0)
    (tmp_path / "x.raw").write_bytes(DATA.tobytes())
    with h5py.File(tmp_path / "run.h5", "w") as file:
        file.create_dataset("x", DATA.shape, DATA.dtype, external=[("x.raw", 0, DATA.nbytes)])
    store = ServedFiles(MemoryStore(), {"live": DirectoryFiles(tmp_path)})

    async def chunk() -> tuple[Entry, Stored]:
        root = json.loads((await store.get("live/run.h5/.domain.json")).data)["root"]
        found = [one async for page in store.list(_tree(root)) for one in page.entries]
        entry = next(one for one in found if not one.key.endswith(".json"))
        return entry, await store.get(entry.key)

    old, before = await chunk()
    assert not store.trusts(old.key)
    (tmp_path / "x.raw").write_bytes((DATA + 1).tobytes())
    os.utime(tmp_path / "x.raw", ns=(5, 5))
    new, after = await chunk()
    assert new.key == old.key
    assert (old.etag, new.etag) == (before.etag, after.etag)
    assert before.etag != after.etag
    assert before.data != after.data
    assert (await chunk())[1].etag == after.etag


async def test_a_file_that_changes_while_it_is_read_is_a_conflict(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    path.write_bytes((folder / "sub" / "run.h5").read_bytes())
    store = ServedFiles(MemoryStore(), {"live": DirectoryFiles(tmp_path)})
    root = json.loads((await store.get("live/run.h5/.domain.json")).data)["root"]
    await store.get(storage_key(root))
    keys = [one.key async for page in store.list(_tree(root)) for one in page.entries]
    chunk = next(key for key in keys if key.endswith("/3_1"))
    os.utime(path, ns=(5, 5))
    with pytest.raises(Conflict, match="was changed while it was read"):
        await store.get(chunk)


async def test_another_process_finds_a_file_by_an_id(folder: Path) -> None:
    first, other = (ServedFiles(MemoryStore(), named_folders([str(folder)])) for _ in range(2))
    root = json.loads((await first.get("runs/sub/run.h5/.domain.json")).data)["root"]
    keys = [one.key async for page in other.list(_tree(root)) for one in page.entries]
    assert keys == sorted(keys)
    for key in keys:
        assert (await other.get(key)).data == (await first.get(key)).data
    with pytest.raises(NotFound):
        await other.get(storage_key(root[:5] + "0" + root[6:]))


@pytest.mark.parametrize("name", ["csr.h5ad", "csc.h5ad"])
async def test_a_chunk_that_is_decoded_has_the_bytes_it_decodes_from(folder: Path, name: str) -> None:
    store = ServedFiles(MemoryStore(), {"runs": DirectoryFiles(folder)})
    try:
        root = json.loads((await store.get(f"runs/{name}/.domain.json")).data)["root"]
        decoded = 0
        async for page in store.list(_tree(root)):
            for entry in page.entries:
                found = await store.get(entry.key)
                assert (await store.get_range(entry.key, 0)).data == found.data
                if found.decoded is None:
                    continue
                decoded += 1
                dataset = json.loads((await store.get(f"{entry.key.rpartition('/')[0]}/.dataset.json")).data)
                kind = kind_of(chunk_spec(dataset))
                assert kind.encode(kind.decode(found.data)) == kind.encode(found.decoded)
                tail = await store.get_range(entry.key, -4)
                assert (tail.data, tail.size) == (found.data[-4:], len(found.data))
        assert decoded
    finally:
        await store.close()


def _tree(root: str) -> str:
    return storage_key(root).rpartition("/")[0] + "/"


@given(moves())
async def test_the_store_below_is_as_it_was(moves: list[Move]) -> None:
    await check_moves(ServedFiles(MemoryStore(), {}), moves)


async def test_keys_of_files_are_refused(folder: Path) -> None:
    store = ServedFiles(MemoryStore(), named_folders([f"runs={folder}"]))
    key = "runs/sub/run.h5/.domain.json"
    etag = (await store.get(key)).etag
    for change in (
        store.put(key, b""),
        store.put_if_absent("runs/new.h5/.domain.json", b""),
        store.put_if_match(key, b"", etag),
        store.delete_if_match(key, etag),
        store.delete_all([Entry(key, 0, etag, 0.0)]),
    ):
        with pytest.raises(Forbidden, match="read-only"):
            await change


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (["/none/such"], "cannot be read"),
        (["runs="], "no place follows the ="),
        (["a/b=."], "cannot be a folder's name"),
        (["one=.", "one=.."], "already"),
    ],
)
def test_places_that_cannot_be_served(items: list[str], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        named_folders(items)


def _damaged(path: Path) -> None:
    """Write a file with what is damaged or unsupported, each thing beside what is not."""
    with h5py.File(path, "w") as file:
        for name in ("good", "header", "index", "filter"):
            file.create_dataset(name, data=np.arange(100), chunks=(10,), compression="gzip")
        group = file.create_group("group")
        group["inside"] = np.arange(3)
        file["same"] = file["header"]
        file["deep/below"] = np.arange(4)
        file["deep/broken"] = np.arange(4)
        file["group"].attrs["n"] = 7
        large = h5py.h5t.create(h5py.h5t.OPAQUE, 2**31)
        h5py.h5d.create(file.id, b"large", large, h5py.h5s.create(h5py.h5s.SCALAR))
        file.id.links.create_soft(b"soft", b"/\xff")
        at = {
            name: h5py.h5o.get_info(file[name].id).addr
            for name in ("header", "index", "filter", "group", "deep/broken")
        }
    data = bytearray(path.read_bytes())
    for name in ("header", "deep/broken", "group"):
        data[at[name]] = 77
    index = data.index(b"TREE\x01", at["index"])
    data[index : index + 4] = b"EERT"
    place = data.index(b"deflate", at["filter"]) - 8
    data[place : place + 2] = (305).to_bytes(2, "little")
    path.write_bytes(data)


def test_a_damaged_object_hides_no_other(tmp_path: Path) -> None:
    place = tmp_path / "m"
    place.mkdir()
    _damaged(place / "run.h5")
    with served(tmp_path / "root", place) as url:
        with hsparse.open(f"{url}/m/run.h5") as file, h5pyd.File("/m/run.h5", "r", endpoint=url) as other:
            names = ["deep", "filter", "good", "group", "header", "index", "large", "same"]
            for one in (file, other):
                assert sorted(one) == names
                assert sorted(one["deep"]) == ["below", "broken"]
                assert np.array_equal(one["good"][...], np.arange(100))
                assert np.array_equal(one["deep/below"][...], np.arange(4))
                for name, said in {
                    "header": "object header at address",
                    "same": "object header at address",
                    "group": "object header at address",
                    "deep/broken": "object header at address",
                    "index": "signature b'EERT'",
                    "large": "Elements of 2147483648 bytes cannot be read",
                    "filter": "The filter LZO (id 305) is not available",
                }.items():
                    link = one.get(name, getlink=True)
                    assert link.filename.startswith(f"left out: /{name.replace('same', 'header')}: ")
                    assert said in link.filename
                    above, _, title = f"/{name}".rpartition("/")
                    with pytest.raises(KeyError, match=re.escape(said)):
                        one[above or "/"][title]
                    assert one is other or one.get(name) is None
            found: list[str] = []
            file.visititems(lambda name, _: found.append(name))
            assert found == ["deep", "deep/below", "good"]
            with pytest.raises(
                hsparse.LeftOut, match=r"'filter' is left out of /m/run\.h5: /filter: The filter LZO"
            ):
                file["filter"]
        assert ask(url, "/domains?domain=/m/")["domains"][0]["name"] == "/m/run.h5"


def test_datasets_of_files_are_sources_of_virtual_ones(url: str, folder: Path) -> None:
    """Dense ones, also what is virtual in its file, and matrices; nothing of them is stored."""
    sources = {"x": "sub/run.h5", "v": "sub/virtual.h5"}
    layout = hsparse.VirtualLayout((2, *DATA.shape), "<i4")
    for number, (name, file) in enumerate(sources.items()):
        layout[number] = hsparse.VirtualSource(f"/{folder.name}/{file}", name, DATA.shape)
    rows = hsparse.VirtualLayout((6000, 40), "f4", sparse=True)
    rows[:3000] = hsparse.VirtualSource(f"/{folder.name}/csr.h5ad", "X", MATRIX.shape)
    rows[3000:] = hsparse.VirtualSource(f"/{folder.name}/csc.h5ad", "X", MATRIX.shape)
    with hsparse.open(f"{url}/home/made-of-files.h5", "w") as file:
        dense, sparse = (
            file.create_virtual_dataset("dense", layout),
            file.create_virtual_dataset("sparse", rows),
        )
        assert np.array_equal(dense[:, 100:120, ::7], np.stack([DATA, DATA])[:, 100:120, ::7])
        assert (sparse[2990:3010] != sp.vstack([MATRIX, MATRIX]).tocsr()[2990:3010]).nnz == 0
        assert sparse.nnz == 2 * MATRIX.nnz
        assert np.allclose(sparse.sum(axis=0), 2 * MATRIX.sum(axis=0))


@pytest.mark.parametrize("path", [".hid", ".hid/a.h5", "sub/.hid/a.h5", "sub/.hid"])
def test_hidden_folders_are_not_served(tmp_path: Path, path: str) -> None:
    for folder in (tmp_path / ".hid", tmp_path / "sub" / ".hid"):
        folder.mkdir(parents=True)
        with h5py.File(folder / "a.h5", "w"):
            pass
    places = named_folders([f"runs={tmp_path}"])
    for look in (places["runs"].state, places["runs"].content):
        with pytest.raises(NotFound):
            look(path)
