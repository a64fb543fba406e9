"""Elements with addresses, moved to a file in which all is elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np

from hsparse.cli.exporter.data_area import DataArea
from hsparse.cli.exporter.relocation import Relocation
from hsparse.cli.importer.file_objects import FileObjects
from hsparse.cli.importer.source import LocalSource
from hsparse.cli.importer.stored_data import StoredData
from hsparse.format.hdf5.messages.layout_message import ContiguousLayout
from hsparse.format.hdf5.plan.planned_structures import GlobalHeapPlan

ROOT = "g-00000000-00000000-0000-000000-000000"


def test_references_lead_to_the_new_place(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        target = file.create_group("target")
        file["refs"] = np.array([target.ref, h5py.Reference()], h5py.ref_dtype)
        file["words"] = ["one", "größe"]
        file["numbers"] = [1, 2]
    with LocalSource(path) as source:
        objects = FileObjects(source, ROOT, matrices=False)
        relocation = Relocation(objects)
        found = {one.path: one for one in objects.by_address.values()}
        descriptor = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
        area = DataArea(descriptor, 0)

        def written(name: str) -> bytes:
            dataset = objects.read(found[name]).dataset
            assert dataset is not None
            data = StoredData(objects, dataset)
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
