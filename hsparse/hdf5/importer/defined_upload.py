"""Sparse datasets of a file of the layout stock: ordinary chunks, and beside them which elements are defined."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.points import Points
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.parse.parsed_elements import parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedObject, parse_object
from hsparse.hdf5.importer.file_data import Dims, FileData
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.object_body import dataset_body
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.structured_upload import FLAGS
from hsparse.hdf5.importer.value_upload import ValueUpload
from hsparse.model.element import Fixed, element_of
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray

Json = dict[str, Any]


class DefinedData:
    """A dataset of a file, and its defined set, whose header is at the address `beside`."""

    def __init__(self, objects: FileObjects, stored: ParsedObject, beside: int) -> None:
        assert stored.dataset is not None
        other = objects.source.run(parse_object(objects.file, beside)).dataset
        if other is None:
            raise Corrupt("The defined set is no dataset.")
        self._objects = objects
        self._stored = stored
        self.values = FileData(objects, stored.dataset)
        self.defined = FileData(objects, other)
        self.records = self.values.records
        assert isinstance(stored.dataset.layout, ChunkedLayout)
        self.grid = Grid(self.values.dims, stored.dataset.layout.dims)
        self.element = element_of(stored.dataset.type.item)
        self._fill = self._fill_bytes()

    def body(self, path: str) -> Json:
        """Return the body that creates the sparse dataset; its filters are those that the server chooses."""
        body = dataset_body(self._objects, self._stored, path)
        properties = body["creationProperties"]
        properties.pop("filters", None)
        flags = FLAGS[2 if isinstance(self.element, Fixed) else 3]
        properties["layout"] = {
            "class": "H5D_STRUCT_CHUNK",
            "dims": list(self.grid.chunk),
            "flags": flags,
        }
        return body

    def chunks(self) -> list[tuple[Dims, int]]:
        """Return the scaled coordinates of chunks in which elements may be defined, and their bytes in the file."""
        found: dict[Dims, int] = {}
        for data in (self.values, self.defined):
            assert data.records is not None
            for scaled, size in zip(data.records.scaled.tolist(), data.records.size.tolist(), strict=True):
                found[tuple(scaled)] = found.get(tuple(scaled), 0) + size
        return sorted(found.items())

    def read(self, scaled: Dims) -> tuple[NDArray[np.uint64], Values]:
        """Return the coordinates, (n, rank), and values, (n,), of a chunk's defined elements.

        What has another value than the fill value is defined too: a program that knows no defined sets wrote it.
        """
        start, stop = self.grid.bounds(scaled)
        count = prod(map(int.__sub__, stop, start))
        mask = np.asarray(self.defined.read(start, stop)).reshape(count) != 0
        values = _in_row(self.values.read(start, stop), count)
        places = np.flatnonzero(mask | ~_is_fill(values, self._fill))
        inside = np.unravel_index(places, tuple(map(int.__sub__, stop, start)))
        coords = np.stack(inside, axis=1).astype(np.uint64) + np.array(start, np.uint64)
        return coords, values[places]

    def _fill_bytes(self) -> bytes:
        dataset = self.values.dataset
        data = dataset.fill.value or bytes(dataset.type.size)
        found = self._objects.source.run(
            parse_elements(self._objects.file, dataset.type, data, (), self._objects.find)
        )
        return found.heap.tobytes() if isinstance(found, VlenArray) else found.tobytes()


class DefinedUpload(ValueUpload[DefinedData]):
    """The defined elements of one dataset, chunk by chunk."""

    def submit(self, stored: set[Dims]) -> None:
        """Submit all chunks, those that are `stored` too: a request may have written a part."""
        nbytes = self._data.values.size * prod(self._data.grid.chunk)
        for scaled, size in self._data.chunks():
            self._uploads.submit(4 * nbytes, partial(self._send_chunk, scaled, size))

    def _send_chunk(self, scaled: Dims, size: int) -> None:
        with path_in_errors(self._path):
            coords, values = self._data.read(scaled)
            self._put_elements(Points(self._data.values.dims, coords), values)
        self._advance(size)


def _in_row(values: Values, count: int) -> Values:
    """Return elements in one dimension, those of a fixed size as opaque ones: numpy makes dimensions of arrays."""
    if isinstance(values, VlenArray):
        return values.reshape((count,))
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return raw.view(f"V{max(1, len(raw) // max(1, count))}")


def _is_fill(values: Values, fill: bytes) -> NDArray[np.bool_]:
    """Return which elements, (n,), have the bytes of the fill value."""
    wanted = np.frombuffer(fill, np.uint8)
    if not isinstance(values, VlenArray):
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
        return np.asarray((raw == wanted).all(1))
    same = values.sizes == len(fill)
    begins = values.offsets[:-1][same].astype(np.int64)
    same[same] = (values.heap[begins[:, None] + np.arange(len(fill))] == wanted).all(1)
    return np.asarray(same)
