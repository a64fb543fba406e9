"""Everything that an import reads of a file, read from memory and counted; nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.progress import ProgressDisplay
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.kinds.chunk_kind import open_direct_chunk
from hsparse.format.kinds.registry import kind_of
from hsparse.format.plan.grid import Grid
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.messages.layout_message import RawStructuredLayout
from hsparse.hdf5.format.parse.parsed_elements import check_readable
from hsparse.hdf5.format.parse.parsed_object import ParsedObject
from hsparse.hdf5.importer.dense_upload import MAX_REQUEST_BYTES
from hsparse.hdf5.importer.file_data import InputData
from hsparse.hdf5.importer.file_objects import ALL_MATRICES, FileObject, FileObjects
from hsparse.hdf5.importer.hdf5_matrix import open_matrix
from hsparse.hdf5.importer.object_body import common_body, dataset_body, link_bodies
from hsparse.hdf5.importer.source import InputFile
from hsparse.hdf5.importer.structured_upload import StructuredData, StructuredUpload
from hsparse.hdf5.importer.virtual_data import VirtualData, open_data
from hsparse.model.vlen_array import VlenArray

ROOT = "g-1c2d3e4f-00112233-4455-667788-99aabb"
SECTIONS = ("section_size", "section_unfiltered_size", "filter_mask")
MOST_ROWS = 50
"""Chunks of a dataset that are read, and batches of a matrix: the others are no different."""
MOST_VALUES = 1 << 20
"""Bytes of a dataset's values that are read in one box."""


class MemorySource(InputFile):
    """A file in memory; counts what is read of it."""

    name = "file"
    fingerprint = ""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.steps = 0
        self.bytes_read = 0

    def close(self) -> None:
        """Hold nothing."""

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        self.steps += 1
        for one in wanted:
            self.check(one)
            self.bytes_read += one.size
        return [self.data[address : address + size] for address, size in wanted]


def contents(source: InputFile) -> str:
    """Return a digest of all that an import of the file would send; raises what it would raise."""
    digest = sha256()
    objects = FileObjects(source, ROOT, matrices=ALL_MATRICES)
    for one in objects.by_address.values():
        digest.update(f"{one.path} {one.kind} {one.dims}".encode())
        for part in _object(objects, one):
            digest.update(part if isinstance(part, bytes) else repr(part).encode())
    return digest.hexdigest()


def _object(objects: FileObjects, one: FileObject) -> Iterator[Any]:
    stored = objects.read(one)
    if one.matrix is not None:
        matrix = open_matrix(objects, one.matrix)
        for _, (_, read) in zip(range(MOST_ROWS), matrix.batches, strict=False):
            coords, values = read()
            yield from (np.asarray(coords).tobytes(), values.tobytes())
        return
    yield common_body(objects, stored, one.path)
    yield link_bodies(objects, stored.links)
    if stored.type is not None:
        check_readable(stored.type)
        yield stored.type
    if stored.dataset is not None:
        yield from _dataset(objects, stored, one.path)


def _dataset(objects: FileObjects, stored: ParsedObject, path: str) -> Iterator[Any]:
    dataset = stored.dataset
    assert dataset is not None
    check_readable(dataset.type)
    if isinstance(dataset.layout, RawStructuredLayout):
        structured = StructuredData(objects, stored)
        yield structured.body(path)
        yield from _structured(structured, path)
        return
    data = open_data(objects, dataset)
    storage = data.storage if isinstance(data, VirtualData) else None
    yield dataset_body(objects, replace(stored, dataset=data.dataset), path, storage)
    if not data.is_allocated:
        return
    if not data.dims or prod(data.dims) * data.size <= MOST_VALUES:
        yield _bytes(data.read((0,) * len(data.dims), data.dims))
    else:
        corner = tuple(min(length, 8) for length in data.dims)
        if prod(corner) * data.size <= MAX_REQUEST_BYTES:
            yield _bytes(data.read((0,) * len(corner), corner))
    if isinstance(data, InputData) and data.records is not None:
        for row in range(min(MOST_ROWS, len(data.records))):
            yield data.stored_chunk(row)


class _Recorded:
    """A server that keeps what it is sent; whole chunks it checks first, as servers do."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.sent: list[Any] = []
        self._spec = chunk_spec(record)
        self._grid = Grid(record["shape"]["dims"], self._spec.dims)

    def json(self, method: str, path: str, body: Any = None, **params: Any) -> dict[str, Any]:
        if "section_size" in params:
            scaled = tuple(map(int, path.split("/")[-2].split("_")))
            columns = (params[name].split(",") for name in SECTIONS)
            table = np.array([[int(one) for one in column] for column in columns], np.uint64).T
            open_direct_chunk(kind_of(self._spec), bytes(body), table, scaled, self._grid.clipped(scaled))
        self.sent.append((method, path, bytes(body), params))
        return {}


def _structured(data: StructuredData, path: str) -> Iterator[Any]:
    body = data.body(path)
    dims = list(data.layout.index.chunk)
    record = {
        "id": "d" + ROOT[1:],
        "type": data.dataset.type.item,
        "shape": data.dataset.shape,
        "layout": {
            "class": "H5D_STRUCT_CHUNK",
            "dims": dims,
            "flags": body["creationProperties"]["layout"]["flags"],
        },
        "creationProperties": {"filters": body["creationProperties"]["filters"]},
    }
    server = _Recorded(record)
    with BoundedPool(1) as uploads:
        shown = ProgressDisplay(None, None, 1.0)
        upload = StructuredUpload(server, uploads, path, record, data, shown.advance)  # type: ignore[arg-type]
        upload.submit({tuple(row) for row in data.records.scaled[MOST_ROWS:].tolist()})
        uploads.finish()
    yield server.sent


def _bytes(values: Any) -> bytes:
    return bytes(values.heap.tobytes() if isinstance(values, VlenArray) else values.tobytes())
