"""Space at the end of a file, and elements with addresses, moved to a file in which all is elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.errors import StoreFull
from hsparse.hdf5.exporter.relocation import DataArea, Relocation
from hsparse.hdf5.format.messages.layout_message import ContiguousLayout
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.hdf5.importer.file_data import InputData
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.source import LocalSource

ROOT = "g-00000000-00000000-0000-000000-000000"


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
        assert np.frombuffer(written("/numbers"), "<i8").tolist() == [1, 2]
        assert area.end == 0
        words = written("/words")
        length, place = int.from_bytes(words[:4], "little"), int.from_bytes(words[4:12], "little")
        assert (length, place) == (3, 0)
        assert os.pread(descriptor, 4, place) == b"GCOL"
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
        assert place % 8 == 0
        assert os.pread(descriptor, len(data), place) == data
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
