"""Files of structured chunks: those that the HDF5 library's prototype wrote, and some of every revision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.config import load_settings
from hsparse.format.chunk_spec import chunk_name
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.filters.definition import Filter
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.encoded_selection import decode_offsets
from hsparse.format.selections.selection_encoding import encode_offsets
from hsparse.format.structured.container import METADATA_FIXED, StoredChunk, build, open_chunk
from hsparse.format.structured.vlen_sections import decode_elements
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import index_info, plan_chunk_index
from hsparse.hdf5.format.file_fields import Addressed
from hsparse.hdf5.format.messages.file_type import FileType, file_type
from hsparse.hdf5.format.messages.filter_pipeline_message import MESSAGES, encode_section_pipelines
from hsparse.hdf5.format.messages.structured_layout import StructuredLayout, encode_structured_layout
from hsparse.hdf5.format.plan.planned_object import (
    PlannedDataset,
    PlannedGroup,
    PlannedLink,
    PlannedTarget,
    plan_file,
)
from hsparse.hdf5.format.plan.planned_structures import PlannedMessage
from hsparse.model.element import element_of
from hsparse.model.json_values import to_json
from tests.cli.importer.conftest import Import
from tests.format.hdf5.h5py_files import walk
from tests.format.hdf5.index_files import golden_chunks, golden_datasets, structured_records

INDEX = 4096
"""Where the index begins, behind everything else."""


def structured_file(
    elements: dict[tuple[int, ...], bytes],
    extent: tuple[int, ...],
    chunk: tuple[int, ...],
    stored: FileType,
    revision: FormatRevision,
    kind: IndexKind,
    pipelines: tuple[tuple[Filter, ...], ...] = ((), ()),
) -> bytes:
    """Return a file with the sparse dataset `x`, of elements by their coordinates."""
    limits = {IndexKind.EXTENSIBLE_ARRAY: (None, *extent[1:]), IndexKind.BTREE_V2: (None,) * len(extent)}
    max_dims: tuple[int | None, ...] = limits.get(kind, extent)
    layout = IndexLayout(
        kind, chunk, max_dims, stored.size, any(pipelines), 2, revision, message_version=5, address=INDEX
    )
    scaled, chunks = _chunks(elements, Grid(extent, chunk), pipelines)
    plan = plan_chunk_index(layout, scaled)
    starts = np.cumsum([INDEX + plan.size, *(len(one.data) for one in chunks)])[:-1]
    records = structured_records(scaled, starts.astype(np.uint64), [one.sections for one in chunks])
    layout = replace(layout, info=index_info(layout, records))
    message = Addressed(encode_structured_layout(StructuredLayout(layout)))
    filters: list[PlannedMessage] = []
    if any(pipelines):
        filters = [
            PlannedMessage(MESSAGES[revision][0], Addressed(encode_section_pipelines(pipelines, revision)))
        ]
    shape = {"class": "H5S_SIMPLE", "dims": list(extent)}
    if max_dims != extent:
        shape["maxdims"] = ["H5S_UNLIMITED" if limit is None else limit for limit in max_dims]
    dataset = PlannedDataset("x", stored, shape, message, messages=filters)
    file = plan_file([PlannedGroup("root", [PlannedLink("x", PlannedTarget("x"))]), dataset], "root")
    assert file.size <= INDEX
    index = plan.encode(INDEX, records)
    return b"".join((file.read(0, file.size).ljust(INDEX, b"\0"), index, *(one.data for one in chunks)))


def _chunks(
    elements: dict[tuple[int, ...], bytes], grid: Grid, pipelines: tuple[tuple[Filter, ...], ...]
) -> tuple[np.ndarray, list[StoredChunk]]:
    by_chunk: dict[tuple[int, ...], dict[int, bytes]] = {}
    for place, value in elements.items():
        scaled = tuple(at // step for at, step in zip(place, grid.chunk, strict=True))
        inside = [at % step for at, step in zip(place, grid.chunk, strict=True)]
        by_chunk.setdefault(scaled, {})[int(np.ravel_multi_index(inside, grid.chunk))] = value
    chunks = []
    for scaled in sorted(by_chunk):
        offsets = sorted(by_chunk[scaled])
        values = b"".join(by_chunk[scaled][offset] for offset in offsets)
        selection = encode_offsets(np.array(offsets, np.uint32), grid.chunk)
        chunks.append(build((selection, values), METADATA_FIXED, pipelines))
    return np.array(sorted(by_chunk), np.uint64), chunks


FOLDER = Path(__file__).parents[2] / "data" / "golden"
FIXED = ("lib-2026-09-farray.h5", "lib-2026-09-single.h5", "rfc-2025-10-farray.h5")
GAPS = FileType(
    {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": file_type("H5T_STD_I32LE").item}]},
    8,
    (file_type("H5T_STD_I32LE"),),
    (0,),
)
"""A compound of one number, and 4 bytes behind it."""
TEXT = element_of({"class": "H5T_STRING", "charSet": "H5T_CSET_ASCII", "length": "H5T_VARIABLE"})


def names(path: Path) -> list[str]:
    """Return the paths of datasets in the order of their headers."""
    found = walk(path)
    return sorted(
        (name for name in found if found[name].dataset), key=lambda name: found[name].header.address
    )


def dataset_at(connection: Connection, path: str) -> SparseDataset:
    return SparseDataset(connection, connection.json("GET", "/datasets/", h5path=path))


@pytest.mark.parametrize("name", FIXED)
def test_elements_of_a_golden_file(imported: Import, name: str) -> None:
    connection = imported(FOLDER / name)
    data = (FOLDER / name).read_bytes()
    chunks = golden_chunks(data)
    for path, golden in zip(names(FOLDER / name), golden_datasets(data), strict=True):
        expected = {}
        for scaled in golden.records.scaled.astype(int):
            chunk = next(chunks)
            selection, values = open_chunk(chunk.data, chunk.sections, chunk.metadata, chunk.pipelines)
            offsets, order = decode_offsets(selection, chunk.dims)
            column = np.frombuffer(values, "<i4")
            column = column if order is None else column[order]
            places = np.stack(np.unravel_index(offsets, chunk.dims), axis=1) + scaled * chunk.dims
            expected |= dict(zip(map(tuple, places.tolist()), column.tolist(), strict=True))
        coords, found = dataset_at(connection, path).read()
        assert dict(zip(map(tuple, coords.tolist()), found.tolist(), strict=True)) == expected


@pytest.mark.parametrize("name", FIXED)
def test_chunks_of_a_golden_file_are_stored_as_they_are(imported: Import, name: str) -> None:
    connection = imported(FOLDER / name)
    data = (FOLDER / name).read_bytes()
    chunks = golden_chunks(data)
    for path, golden in zip(names(FOLDER / name), golden_datasets(data), strict=True):
        id = connection.json("GET", "/datasets/", h5path=path)["id"]
        assert connection.json("GET", f"/datasets/{id}/chunks", count_only=1)["count"] == len(golden.records)
        for scaled in golden.records.scaled.tolist():
            found = connection.binary("GET", f"/datasets/{id}/chunks/{chunk_name(scaled)}/value")
            # the server has no edges that are not filtered
            assert found == next(chunks).data or not golden.layout.filtered_edges


def test_text_of_a_golden_file(imported: Import) -> None:
    path = FOLDER / "lib-2026-09-vlen.h5"
    connection = imported(path)
    chunks = golden_chunks(path.read_bytes())
    for name, golden in zip(names(path), golden_datasets(path.read_bytes()), strict=True):
        id = connection.json("GET", "/datasets/", h5path=name)["id"]
        found = connection.json("GET", f"/datasets/{id}/value")["value"]
        expected = [""] * len(found)
        for (scaled,) in golden.records.scaled.tolist():
            chunk = next(chunks)
            selection, fixed, heap = open_chunk(chunk.data, chunk.sections, chunk.metadata, chunk.pipelines)
            values = to_json(decode_elements(fixed, heap, TEXT, ("", "")), TEXT)
            for offset, value in zip(decode_offsets(selection, chunk.dims)[0].tolist(), values, strict=True):
                expected[scaled * chunk.dims[0] + offset] = value
        assert found == expected
        assert any(found)


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_a_served_golden_file_is_what_an_import_makes_of_it(
    imported: Import, tmp_path: Path, name: str
) -> None:
    connection = imported(FOLDER / name)
    settings, found_any = (
        load_settings(root=tmp_path, port=0, fsync=False, files=(f"golden={FOLDER}",)),
        False,
    )
    with embedded_server(settings) as url, Connection(url, f"/golden/{name}") as served:
        for path in names(FOLDER / name):
            one, other = (found.json("GET", "/datasets/", h5path=path) for found in (connection, served))
            assert (one["type"], one["shape"]) == (other["type"], other["shape"])
            answers = [
                [
                    found.json("GET", f"/datasets/{dataset['id']}/value", sparse=sparse)["value"]
                    for sparse in (0, 1)
                ]
                for found, dataset in ((connection, one), (served, other))
            ]
            assert answers[0] == answers[1]
            found_any |= bool(answers[0][1])
    assert found_any


@pytest.mark.parametrize("revision", FormatRevision)
@pytest.mark.parametrize("kind", [IndexKind.FIXED_ARRAY, IndexKind.EXTENSIBLE_ARRAY, IndexKind.BTREE_V2])
@pytest.mark.parametrize("filters", [(), (Filter(2, (4,)), Filter(1, (6,)))], ids=["plain", "filtered"])
@pytest.mark.parametrize("stored", [file_type("H5T_STD_I32LE"), GAPS], ids=["packed", "gaps"])
def test_every_revision(
    imported: Import,
    tmp_path: Path,
    revision: FormatRevision,
    kind: IndexKind,
    filters: tuple[Filter, ...],
    stored: FileType,
) -> None:
    rng = np.random.default_rng(3)
    places = {tuple(place): int(value) for *place, value in rng.integers(0, (13, 10, 99), (40, 3)).tolist()}
    elements = {
        place: value.to_bytes(4, "little").ljust(stored.size, b"?") for place, value in places.items()
    }
    path = tmp_path / "some.h5"
    path.write_bytes(structured_file(elements, (13, 10), (4, 5), stored, revision, kind, (filters, filters)))
    coords, values = dataset_at(imported(path), "/x").read()
    assert dict(zip(map(tuple, coords.tolist()), values.astype("<i4").tolist(), strict=True)) == places


@pytest.mark.parametrize("revision", FormatRevision)
def test_heaps_of_all_revisions(imported: Import, url: str, tmp_path: Path, revision: FormatRevision) -> None:
    """Of the last two the layout messages are the same: the heap says which it is."""
    words = ["", "größe", "x" * 2000, "end"]
    domain = f"/home/admin/words-{revision.value}.h5"
    with Connection(url, domain) as connection:
        connection.json("PUT", "/")
        layout = {"class": "H5D_STRUCT_CHUNK", "dims": [3], "flags": ["H5D_SPARSE_DATA", "H5D_VL_DATA"]}
        properties = {"layout": layout, "filters": ["none"]}
        text = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
        body = {"type": text, "shape": [9], "h5path": "/x", "creationProperties": properties}
        made = connection.json("POST", "/datasets", body, implicit=1)
        points = {"points": [0, 4, 5, 8], "value": words}
        connection.json("PUT", f"/datasets/{made['id']}/value", points)
    path = tmp_path / "words.h5"
    arguments = ["export", domain, str(path), "--endpoint", url, "--layout", "structured"]
    assert main([*arguments, "--revision", revision.value]) == 0
    back = imported(path)
    id = back.json("GET", "/datasets/", h5path="/x")["id"]
    found = back.json("GET", f"/datasets/{id}/value", sparse=1)
    assert (found["selection"]["coordinates"], found["value"]) == ([[0], [4], [5], [8]], words)
