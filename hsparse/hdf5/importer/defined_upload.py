"""Upload sparse datasets that a file stores as two chunked datasets: the values, and the defined set."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from math import prod

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.points import Points
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.parse.parsed_elements import parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedObject, parse_object
from hsparse.hdf5.importer.dense_upload import ValueUpload
from hsparse.hdf5.importer.file_data import Dims, InputData
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.object_body import dataset_body
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.structured_upload import FLAGS, Json
from hsparse.model.element import Fixed, element_of
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray


class DefinedData:
    """A sparse dataset that a file stores as two datasets: `stored`, its values, and its defined set at `beside`."""

    def __init__(self, objects: FileObjects, stored: ParsedObject, beside: int) -> None:
        assert stored.dataset is not None
        other = objects.source.run(parse_object(objects.file, beside)).dataset
        if other is None:
            raise Corrupt("The defined set is no dataset.")
        self._objects = objects
        self._stored = stored
        self.values = InputData(objects, stored.dataset)
        self.defined = InputData(objects, other)
        self.records = self.values.records
        assert isinstance(stored.dataset.layout, ChunkedLayout)
        self.grid = Grid(self.values.dims, stored.dataset.layout.dims)
        self.element = element_of(stored.dataset.type.item)
        self._fill = self._fill_bytes()

    def body(self, path: str) -> Json:
        """Return the request body that creates the sparse dataset. It has no filters, so the server chooses filters."""
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
        """Return, for each chunk that may have defined elements, its scaled coordinates and its bytes in the file."""
        found: dict[Dims, int] = {}
        for data in (self.values, self.defined):
            assert data.records is not None
            for scaled, size in zip(data.records.scaled.tolist(), data.records.size.tolist(), strict=True):
                found[tuple(scaled)] = found.get(tuple(scaled), 0) + size
        return sorted(found.items())

    def read(self, scaled: Dims) -> tuple[NDArray[np.uint64], Values]:
        """Return a pair for a chunk's defined elements: dataset coordinates, (n, rank) uint64, and values, (n,)."""
        start, stop = self.grid.bounds(scaled)
        coords, values = self.read_box(start, stop)
        return coords + np.array(start, np.uint64), values

    def read_box(self, start: Dims, stop: Dims) -> tuple[NDArray[np.uint64], Values]:
        """Return a pair for a box's defined elements: coordinates from `start`, (n, rank) uint64, and values, (n,).

        Elements that differ from the fill value count as defined: programs that ignore the defined set may write them.
        """
        count = prod(map(int.__sub__, stop, start))
        mask = np.asarray(self.defined.read(start, stop)).reshape(count) != 0
        values = _in_row(self.values.read(start, stop), count)
        places = np.flatnonzero(mask | ~_is_fill(values, self._fill))
        inside = np.unravel_index(places, tuple(map(int.__sub__, stop, start)))
        return np.stack(inside, axis=1).astype(np.uint64), values[places]

    def _fill_bytes(self) -> bytes:
        dataset = self.values.dataset
        data = dataset.fill.value or bytes(dataset.type.size)
        found = self._objects.source.run(
            parse_elements(self._objects.file, dataset.type, data, (), self._objects.find)
        )
        return found.heap.tobytes() if isinstance(found, VlenArray) else found.tobytes()


class DefinedUpload(ValueUpload[DefinedData]):
    """Uploads the defined elements of one dataset, chunk by chunk."""

    def submit(self, stored: Collection[Dims]) -> None:
        """Submit all chunks. The chunks in `stored` are submitted too, because they may be incomplete on the server."""
        nbytes = self._data.values.size * prod(self._data.grid.chunk)
        for scaled, size in self._data.chunks():
            self._uploads.submit(4 * nbytes, partial(self._send_chunk, scaled, size))

    def _send_chunk(self, scaled: Dims, size: int) -> None:
        with path_in_errors(self._path):
            coords, values = self._data.read(scaled)
            self._put_elements(Points(self._data.values.dims, coords), values)
        self._advance(size, len(coords))


def _in_row(values: Values, count: int) -> Values:
    """Return elements in one dimension of `count`; fixed-size elements become opaque bytes of equal size."""
    if isinstance(values, VlenArray):
        return values.reshape((count,))
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return raw.view(f"V{max(1, len(raw) // max(1, count))}")


def _is_fill(values: Values, fill: bytes) -> NDArray[np.bool_]:
    """Return a mask, (n,) bool, that is true for elements with the bytes of the fill value."""
    wanted = np.frombuffer(fill, np.uint8)
    if not isinstance(values, VlenArray):
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
        return np.asarray((raw == wanted).all(1))
    same = values.sizes == len(fill)
    begins = values.offsets[:-1][same].astype(np.int64)
    same[same] = (values.heap[begins[:, None] + np.arange(len(fill))] == wanted).all(1)
    return np.asarray(same)
