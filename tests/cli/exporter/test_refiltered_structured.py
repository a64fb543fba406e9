"""Structured chunks with other filters: the same in all their sections."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.format.structured.container import METADATA_FIXED, METADATA_VL, open_chunk
from hsparse.hdf5.exporter.refiltered_dataset import FilterChoice
from hsparse.hdf5.exporter.refiltered_file import export_filtered
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind
from hsparse.hdf5.format.messages.layout_message import RawStructuredLayout
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.source import LocalSource
from hsparse.hdf5.importer.structured_upload import StructuredData
from tests.cli.exporter.test_refiltered_file import FILTERS
from tests.sn.file_domain import check_file

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
        assert kind == before[name][0]
        assert chunks == before[name][2]
        assert filters[:2] == [expected, expected]
        assert filters[2:] in ([], [[one for one in expected if one != FILTERS["shuffle"]]])
    assert {kind for kind, _, chunks in after.values() if chunks} >= {IndexKind.SINGLE, IndexKind.FIXED_ARRAY}
    assert sum(len(chunks) for _, _, chunks in after.values()) > 10
