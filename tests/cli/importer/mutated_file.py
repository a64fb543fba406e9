"""Changes of a file's bytes, some with right checksums again; all that an import reads of a file, from memory."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.progress import ProgressDisplay
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.codec_library import lookup3
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

SIGNATURES = (
    b"\x89HDF\r\n\x1a\n\2",
    b"\x89HDF\r\n\x1a\n\3",
    *(b"OHDR", b"OCHK", b"FRHP", b"FHDB", b"FHIB", b"BTHD", b"BTIN", b"BTLF", b"SMTB"),
    *(b"FAHD", b"FADB", b"EAHD", b"EAIB", b"EASB", b"EADB"),
    b"\1\0\x08",  # the selection of a structured chunk that is not filtered
    b"HGLS",
)
"""How structures begin that have a checksum at their end."""
CHECKSUM = 4
LONGEST = 4096
"""Bytes of the longest of them whose checksum is looked for."""
EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
KINDS = ("bits", "bytes", "number", "address", "swap", "zeros", "cut", "repeat")


@dataclass(frozen=True)
class Seed:
    """A whole file, and what is known of it."""

    name: str
    data: bytes

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """Where structures with a checksum begin, ascending, and where their checksums are."""
        found = []
        for signature in SIGNATURES:
            start = self.data.find(signature)
            while start >= 0:
                for end in range(start + len(signature), min(start + LONGEST, len(self.data) - 3)):
                    (stored,) = struct.unpack_from("<I", self.data, end)
                    if stored and lookup3(self.data[start:end]) == stored:
                        found.append((start, end))
                        break
                start = self.data.find(signature, start + 1)
        return sorted(found)

    @cached_property
    def addresses(self) -> list[int]:
        """Where something stands that may be an address in the file."""
        words = np.lib.stride_tricks.sliding_window_view(np.frombuffer(self.data, np.uint8), 8)
        numbers = np.ascontiguousarray(words).view("<u8")[:, 0]
        return [int(at) for at in np.flatnonzero((numbers >= 48) & (numbers < len(self.data)))]

    def mutated(self, rng: np.random.Generator) -> tuple[str, bytes]:
        """Return what was done, and the changed file."""
        kind = KINDS[int(rng.integers(len(KINDS)))]
        data = bytearray(self.data)
        if kind == "cut":
            return kind, bytes(data[: int(rng.integers(len(data)))])
        for _ in range(int(rng.integers(1, 4))):
            self._change(kind, data, rng)
        if rng.random() < 0.7:
            self._repair(data)
            kind += ", checksums right"
        return kind, bytes(data)

    def _change(self, kind: str, data: bytearray, rng: np.random.Generator) -> None:
        at = self._place(rng)
        if kind == "bits":
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == "bytes":
            count = int(rng.integers(1, 9))
            data[at : at + count] = rng.bytes(len(data[at : at + count]))
        elif kind == "number":
            width = (1, 2, 4, 8)[int(rng.integers(4))]
            some = (*EXTREMES, len(data), len(data) - 1, len(data) + 1)
            value = some[int(rng.integers(len(some)))]
            data[at : at + width] = value.to_bytes(8, "little")[: len(data[at : at + width])]
        elif kind == "address" and self.addresses:
            to, source = (self.addresses[int(one)] for one in rng.integers(len(self.addresses), size=2))
            data[to : to + 8] = self.data[source : source + 8]
        elif kind in ("swap", "repeat"):
            other, count = self._place(rng), int(rng.integers(1, 65))
            count = min(count, len(data) - max(at, other))
            one, two = data[at : at + count], data[other : other + count]
            data[at : at + count] = two
            if kind == "swap":
                data[other : other + count] = one
        else:
            count = int(rng.integers(1, 65))
            data[at : at + count] = bytes(len(data[at : at + count]))

    def _place(self, rng: np.random.Generator) -> int:
        """Return a place, half of them in structures with checksums, where there are any."""
        if self.blocks and rng.random() < 0.5:
            start, end = self.blocks[int(rng.integers(len(self.blocks)))]
            return int(rng.integers(start, end))
        return int(rng.integers(len(self.data)))

    def is_guarded(self, data: bytes) -> bool:
        """Say whether a changed file has changes only in structures whose checksums tell them."""
        if len(data) != len(self.data):
            return False
        changed = self._changed(data)
        blocks = self._blocks_of(changed)
        covered = sum(sum(start <= place < end + CHECKSUM for place in changed) for start, end in blocks)
        wrong = [lookup3(data[start:end]) != struct.unpack_from("<I", data, end)[0] for start, end in blocks]
        return bool(changed) and covered >= len(changed) and all(wrong)

    def _repair(self, data: bytearray) -> None:
        """Put checksums right of structures that were changed."""
        for start, end in self._blocks_of(self._changed(data)):
            struct.pack_into("<I", data, end, lookup3(bytes(data[start:end])))

    def _changed(self, data: bytes | bytearray) -> list[int]:
        differs = np.frombuffer(data, np.uint8) != np.frombuffer(self.data, np.uint8)
        return [int(place) for place in np.flatnonzero(differs)]

    def _blocks_of(self, places: list[int]) -> list[tuple[int, int]]:
        """Return the structures that begin last before places."""
        starts = [start for start, _ in self.blocks]
        numbers = {bisect_right(starts, place) - 1 for place in places}
        return [self.blocks[number] for number in sorted(numbers) if number >= 0]


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
