"""Files with other filters against their originals: filters, pieces of work, sections, and moved addresses."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.errors import Corrupt, HsparseError, StoreFull
from hsparse.format.filters.definition import Filter
from hsparse.format.structured.container import METADATA_FIXED, METADATA_VL, open_chunk
from hsparse.hdf5.exporter import refiltered_dataset
from hsparse.hdf5.exporter.refiltered_dataset import NEW_CHUNK, FilterChoice, default_chunk_dims
from hsparse.hdf5.exporter.refiltered_file import export_filtered
from hsparse.hdf5.exporter.relocation import DataArea, Relocation
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind
from hsparse.hdf5.format.messages.layout_message import ContiguousLayout, RawStructuredLayout
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.hdf5.importer.file_data import InputData
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.source import LocalSource
from hsparse.hdf5.importer.structured_upload import StructuredData
from tests.format.hdf5.h5py_files import compare, write_file
from tests.sn.file_domain import check_file

H5DIFF = shutil.which("h5diff")
PIPELINES = [["gzip=1"], ["shuffle", "gzip=4"], ["shuffle+lzf"], ["shuffle+gzip+fletcher32"], ["none"]]
FILTERS = {"gzip": 1, "shuffle": 2, "fletcher32": 3, "lzf": 32000}


def refilter(path: Path, *flags: str) -> Path:
    """Write a file again; return where."""
    target = path.with_name(f"filtered-{path.name}")
    told: list[tuple[int, int]] = []
    with LocalSource(path) as source:
        size = export_filtered(source, FilterChoice.parse(flags), target, lambda *now: told.append(now))
    assert (size, told[-1], told) == (target.stat().st_size, (path.stat().st_size,) * 2, sorted(told))
    assert sorted(one.name for one in path.parent.glob("*.part")) == []
    return target


def pipeline_of(dataset: h5py.Dataset) -> list[int]:
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(number)[0] for number in range(plist.get_nfilters())]


@pytest.mark.parametrize("flags", PIPELINES)
def test_a_domain_with_other_filters(served: bytes, tmp_path: Path, flags: list[str]) -> None:
    path = tmp_path / "f.h5"
    path.write_bytes(served)
    other = refilter(path, *flags)
    with h5py.File(path) as one, h5py.File(other) as two:
        expected = [
            FILTERS[name.split("=")[0]] for flag in flags for name in flag.split("+") if name != "none"
        ]
        for name in ("many", "many.defined", "words", "sparse words", "g/part"):
            assert (pipeline_of(two[name]), one[name].chunks) == (expected, two[name].chunks)
        assert two["whole"].chunks is None
        for name in ("many", "many.defined"):
            assert (one[name][()] == two[name][()]).all()
        assert [two[ref].name for ref in two["chunked references"][()]] == [f"/more {n}" for n in range(3)]
        regions = two["chunked regions"][()]
        assert [two[ref].name for ref in regions] == [f"/more {n}" for n in range(3)]
        assert two["more 1"].asstr()[()].tolist() == ["1"] * 50
    if flags == ["shuffle", "gzip=4"]:
        assert other.stat().st_size < path.stat().st_size  # whose sparse datasets are deflated already
        check_file(other.read_bytes())
    if H5DIFF and "lzf" not in flags[0]:  # h5py has that filter, h5diff has not
        done = subprocess.run([H5DIFF, str(path), str(other)], capture_output=True, text=True, check=False)
        # Of a null dataspace, and links to what is not there, it says that they cannot be compared.
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("served", [{"matrices": "anndata-csr"}], indirect=True)
def test_matrices_with_filters(served: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    path.write_bytes(served)
    other = refilter(path, "gzip")
    with h5py.File(path) as one, h5py.File(other) as two:
        for name in ("data", "indices", "indptr"):
            assert (one["many"][name][()] == two["many"][name][()]).all()


def test_a_file_of_h5py(tmp_path: Path) -> None:
    """Links, committed types, dense attributes, references and empty things, and large data in one piece."""
    path = tmp_path / "f.h5"
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, 9, (700, 3, 251))
    with h5py.File(path, "w") as file:
        write_file(file)
        file["large"] = numbers
        file["long"] = np.arange(300_000, dtype=">f4")
        file.create_dataset(
            "edges", data=numbers[:, 0], chunks=(64, 100), compression="gzip", fletcher32=True
        )
        file.create_dataset("unwritten", (500, 500), "f4")
        file.create_dataset("growing", (0,), "i4", maxshape=(None,), chunks=(10,))
    other = refilter(path, "shuffle+gzip=1")
    with h5py.File(path) as one, h5py.File(other) as two:
        for name in ("large", "long", "edges", "unwritten", "numbers", "texts", "typed", "filled"):
            assert one[name].dtype == two[name].dtype
            assert one[name][()].tolist() == two[name][()].tolist()
        assert two["large"].chunks == (174, 3, 251)
        assert two["unwritten"].chunks is None
        assert two["numbers"].chunks is None
        assert (two["growing"].maxshape, pipeline_of(two["edges"])) == ((None,), [2, 1])
    compare(other)
    if H5DIFF:
        subprocess.run([H5DIFF, str(path), str(other)], check=True, capture_output=True)
    back = refilter(other, "none")
    with h5py.File(other) as one, h5py.File(back) as two:
        assert (one["edges"][()].tolist(), pipeline_of(two["large"])) == (two["edges"][()].tolist(), [])


def test_what_goes_wrong_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=np.arange(5000), chunks=(500,), compression="gzip")
        place, size = file["d"].id.get_chunk_info(3).byte_offset, file["d"].id.get_chunk_info(3).size
    data = bytearray(path.read_bytes())
    data[place : place + size] = bytes(size)
    path.write_bytes(data)
    (tmp_path / "filtered-f.h5").write_bytes(b"as it was")
    with pytest.raises(Corrupt, match="deflate"):
        refilter(path, "lzf")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["f.h5", "filtered-f.h5"]
    assert (tmp_path / "filtered-f.h5").read_bytes() == b"as it was"


ROOT = "g-00000000-00000000-0000-000000-000000"
Chunks = dict[tuple[int, ...], list[bytes]]


def structured(path: Path) -> dict[str, tuple[IndexKind, list[list[int]], Chunks]]:
    """Return of each dataset of structured chunks its index, the filters of its sections, and what is in them."""
    found = {}
    with LocalSource(path) as source:
        objects = FileObjects(source, ROOT, matrices=())
        for one in objects.by_address.values():
            stored = objects.read(one)
            if stored.dataset is None or not isinstance(stored.dataset.layout, RawStructuredLayout):
                continue
            data = StructuredData(objects, stored)
            metadata = METADATA_VL if data.layout.index.sections == 3 else METADATA_FIXED
            chunks = {
                tuple(scaled): [
                    bytes(part) for part in open_chunk(*data.chunk(row)[:2], metadata, data.pipelines)
                ]
                for row, scaled in enumerate(data.records.scaled.tolist())
            }
            filters = [[one.id for one in pipeline] for pipeline in data.pipelines]
            found[one.path] = data.layout.index.kind, filters, chunks
    return found


@pytest.mark.parametrize("served", [{"layout": "structured"}], indirect=True)
@pytest.mark.parametrize("flags", [["shuffle+gzip=4"], ["lzf"], ["none"]])
def test_what_is_in_sections_stays(served: bytes, tmp_path: Path, flags: list[str]) -> None:
    path, target = tmp_path / "f.h5", tmp_path / "other.h5"
    path.write_bytes(served)
    with LocalSource(path) as source:
        export_filtered(source, FilterChoice.parse(flags), target, lambda *_: None)
    if flags == ["shuffle+gzip=4"]:
        check_file(target.read_bytes(), structured=True)
    before, after = structured(path), structured(target)
    assert len(after) >= 5
    expected = [FILTERS[name.split("=")[0]] for name in flags[0].split("+") if name != "none"]
    for name, (kind, filters, chunks) in after.items():
        assert (kind, chunks, filters[:2]) == (before[name][0], before[name][2], [expected, expected])
        assert filters[2:] in ([], [[one for one in expected if one != FILTERS["shuffle"]]])
    assert {kind for kind, _, chunks in after.values() if chunks} >= {IndexKind.SINGLE, IndexKind.FIXED_ARRAY}
    assert sum(len(chunks) for _, _, chunks in after.values()) > 10


@pytest.mark.parametrize(
    ("flags", "pipeline"),
    [
        (["gzip"], (Filter(1, (4,)),)),
        (["shuffle", "gzip=4"], (Filter(2, (8,)), Filter(1, (4,)))),
        (["shuffle+deflate=9+fletcher32"], (Filter(2, (8,)), Filter(1, (9,)), Filter(3))),
        (["none"], ()),
    ],
)
def test_pipelines(flags: list[str], pipeline: tuple[Filter, ...]) -> None:
    found = FilterChoice.parse(flags).pipeline(8, 800)
    assert [(one.id, one.values) for one in found] == [(one.id, one.values) for one in pipeline]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["zip"], "'zip' is unknown"),
        (["gzip=most"], "not a number"),
        (["gzip=99"], "gzip"),
        (["none", "gzip"], "cannot be combined with other filters"),
        (["szip"], "szip is not available"),
        ([""], "unknown"),
    ],
)
def test_what_is_no_filter(flags: list[str], said: str) -> None:
    with pytest.raises(HsparseError, match=said):
        FilterChoice.parse(flags)


def test_small_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refiltered_dataset, "MAX_READ_BYTES", 1000)
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("chunked", data=np.arange(5000), chunks=(7,))
        file["whole"] = np.arange(5000, dtype="i2")
    with h5py.File(refilter(path, "lzf")) as file:
        assert (file["chunked"][()] == np.arange(5000)).all()
        assert (file["whole"][()] == np.arange(5000)).all()


@pytest.mark.parametrize(
    ("dims", "size", "expected"),
    [
        ((10**7,), 4, (NEW_CHUNK // 4,)),
        ((1000, 1000), 8, (131, 1000)),
        ((50, 10**6), 8, (1, NEW_CHUNK // 8)),
        ((5, 6, 7), 1, (5, 6, 7)),
        ((3, 2), 10**7, (1, 1)),
        ((4, 10, 600, 500), 2, (1, 1, 600, 500)),
    ],
)
def test_chunks_of_what_had_none(dims: tuple[int, ...], size: int, expected: tuple[int, ...]) -> None:
    assert default_chunk_dims(dims, size) == expected


def test_references_lead_to_the_new_place(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        target = file.create_group("target")
        file["refs"] = np.array([target.ref, h5py.Reference()], h5py.ref_dtype)
        file["words"] = ["one", "größe"]
        file["numbers"] = [1, 2]
    with LocalSource(path) as source:
        objects = FileObjects(source, ROOT, matrices=())
        relocation = Relocation(objects)
        found = {one.path: one for one in objects.by_address.values()}
        descriptor = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
        area = DataArea(descriptor, 0)

        def written(name: str) -> bytes:
            dataset = objects.read(found[name]).dataset
            assert dataset is not None
            data = InputData(objects, dataset)
            assert isinstance(dataset.layout, ContiguousLayout)
            assert dataset.layout.address is not None
            raw = source.read(dataset.layout.address, data.dims[0] * data.size)
            heap = GlobalHeapPlan()
            assert len(relocation.elements(dataset.type, raw, data.dims, heap).data) == len(raw)
            assert bool(list(heap.pieces())) is (name == "/words")
            return bytes(
                relocation.written(dataset.type, raw, data.dims, area, lambda key: int(str(key)) + 9)
            )

        assert np.frombuffer(written("/refs"), "<u8").tolist() == [found["/target"].address + 9, 0]
        assert (np.frombuffer(written("/numbers"), "<i8").tolist(), area.end) == ([1, 2], 0)
        words = written("/words")
        length, place = int.from_bytes(words[:4], "little"), int.from_bytes(words[4:12], "little")
        assert (length, place, os.pread(descriptor, 4, place)) == (3, 0, b"GCOL")
        os.close(descriptor)


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    found = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    yield found
    os.close(found)


def test_many_threads_have_places_of_their_own(descriptor: int) -> None:
    area = DataArea(descriptor, 100)
    parts = [bytes([number]) * (number % 13) for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(area.append, parts))
    for place, data in zip(places, parts, strict=True):
        assert (place % 8, os.pread(descriptor, len(data), place)) == (0, data)
    spans = sorted((place, place + len(data)) for place, data in zip(places, parts, strict=True) if data)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert spans[0][0] >= 100
    assert area.end >= spans[-1][1]


def test_a_disk_that_takes_little_at_once(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: real(file, bytes(data)[:3], at))
    area = DataArea(descriptor, 0)
    assert os.pread(descriptor, 20, area.append(b"0123456789")) == b"0123456789"


def test_a_disk_that_is_full(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: object, at: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreFull, match=r"No space left.*free space"):
        DataArea(descriptor, 0).append(b"1")
