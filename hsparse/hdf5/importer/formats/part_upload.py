"""Upload the content of a domain: arrays, then matrices, then groups, and at last the root group's links."""

from __future__ import annotations

import base64
from functools import partial
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.progress import Advance
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.hdf5.importer.dense_upload import MAX_REQUEST_BYTES, create_or_find, stored_chunks
from hsparse.hdf5.importer.formats.domain_parts import Bodies, BoxedArray, Dims, DomainParts, Values
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.sparse_matrix import Matrix, MatrixUpload, matrix_body
from hsparse.model.ids import derived_id

MAX_INLINE_BYTES = 64 << 10
"""The maximum number of bytes of values that are sent in the request that creates their dataset."""
BAND_BYTES = 8 << 20
"""The number of bytes of values in a request."""


class PartUpload:
    """Uploads one `DomainParts`. Ids are derived from paths, so that a resumed import finds existing objects."""

    def __init__(self, server: RetryingClient, uploads: BoundedPool, root: str, advance: Advance) -> None:
        self._server = server
        self._uploads = uploads
        self._root = root
        self._advance = advance
        self._ids = {"": root}

    def run(self, parts: DomainParts) -> None:
        """Create all objects and send their values; errors name the path of the object."""
        for path, (values, attributes) in parts.arrays.items():
            with path_in_errors(f"/{path}"):
                self._array(path, values, attributes)
        matrices = [self._matrix(path, *one) for path, one in parts.matrices.items()]
        for matrix in matrices:
            matrix.submit()
        self._uploads.finish()
        for matrix in matrices:
            matrix.check()
        self._groups(parts.groups)

    def _create(self, collection: str, path: str, body: Bodies) -> str:
        """Create an object unless it exists; return the object's id."""
        id: str = self._create_or_find(collection, path, body)[0]["id"]
        return id

    def _create_or_find(self, collection: str, path: str, body: Bodies) -> tuple[Bodies, bool]:
        id = derived_id(collection, self._root, sha256(path.encode()).digest())
        self._ids[path] = id
        return create_or_find(self._server, collection, body | {"id": id})

    def _array(self, path: str, values: Values | BoxedArray, attributes: Bodies) -> None:
        if isinstance(values, BoxedArray):
            self._boxes(path, values, attributes)
            return
        kind = Hdf5Type.of(values)
        body: Bodies = {"type": kind.item, "shape": list(values.shape), "attributes": attributes}
        row = _nbytes(values) // max(1, len(values) if values.shape else 1)
        if row * (len(values) if values.shape else 1) <= MAX_INLINE_BYTES:
            data = kind.encode(values)
            body |= {"value_base64": base64.b64encode(data).decode()} if values.size else {}
            self._create("datasets", path, body)
            return
        id = self._create("datasets", path, body)
        step = max(1, BAND_BYTES // max(1, row))
        for first in range(0, len(values), step):
            band, corner = values[first : first + step], (first, *(0,) * (values.ndim - 1))
            self._uploads.submit(3 * row * len(band), partial(self._send, id, path, corner, band, kind))

    def _boxes(self, path: str, array: BoxedArray, attributes: Bodies) -> None:
        body: Bodies = {"type": array.kind.item, "attributes": attributes}
        if array.shape is None:
            self._create("datasets", path, body | {"shape": "H5S_NULL"})
            return
        body |= {"shape": list(array.shape), "creationProperties": array.properties}
        boxes = list(array.boxes)
        if (
            boxes
            and array.largest <= 3 * MAX_INLINE_BYTES
            and prod(array.shape) * array.kind.dtype.itemsize <= MAX_INLINE_BYTES
        ):
            values = array.kind.encode(array.read((0,) * len(array.shape), array.shape))
            self._create("datasets", path, body | {"value_base64": base64.b64encode(values).decode()})
            self._advance(sum(nbytes for nbytes, _, _ in boxes))
            return
        id = self._create("datasets", path, body)
        for nbytes, start, stop in boxes:
            self._uploads.submit(array.largest, partial(self._send_box, id, path, array, nbytes, start, stop))

    def _send_box(self, id: str, path: str, array: BoxedArray, nbytes: int, start: Dims, stop: Dims) -> None:
        with path_in_errors(f"/{path}"):
            values = array.read(start, stop)
        self._send(id, path, start, values, array.kind)
        self._advance(nbytes)

    def _send(self, id: str, path: str, start: Dims, values: Values, kind: Hdf5Type) -> None:
        """Send the values of a box; if they are too many for one request, send two halves of the box."""
        body = kind.encode(values)
        longest = max(range(values.ndim), key=lambda axis: values.shape[axis])
        if len(body) > MAX_REQUEST_BYTES and values.shape[longest] > 1:
            middle = values.shape[longest] // 2
            for part, first in zip(np.split(values, [middle], longest), (0, middle), strict=True):
                corner = tuple(at + first * (axis == longest) for axis, at in enumerate(start))
                self._send(id, path, corner, part, kind)
            return
        select = f"[{','.join(f'{at}:{at + n}' for at, n in zip(start, values.shape, strict=True))}]"
        with path_in_errors(f"/{path}"):
            self._server.json("PUT", f"/datasets/{id}/value", body, select=select)

    def _matrix(self, path: str, matrix: Matrix, attributes: Bodies) -> MatrixUpload:
        with path_in_errors(f"/{path}"):
            body = matrix_body(matrix) | {"attributes": attributes}
            record, was_there = self._create_or_find("datasets", path, body)
            stored = stored_chunks(self._server, record) if was_there else {}
        return MatrixUpload(self._server, self._uploads, f"/{path}", record, matrix, self._advance, stored)

    def _groups(self, named: dict[str, Bodies]) -> None:
        """Create the groups, innermost groups first, and then write the root group's attributes and links."""
        above = {path[:at] for path in self._ids for at, letter in enumerate(path) if letter == "/"}
        paths = (above | set(named)) - {""}
        for path in sorted(paths, key=lambda one: (-one.count("/"), one)):
            body = {"attributes": named.get(path, {}), "links": self._links(path)}
            with path_in_errors(f"/{path}"):
                self._create("groups", path, body)
        if named.get(""):
            self._server.json("PUT", f"/groups/{self._root}/attributes", {"attributes": named[""]}, replace=1)
        self._server.json("PUT", f"/groups/{self._root}/links", {"links": self._links("")})

    def _links(self, group: str) -> Bodies:
        """Return a dict of link name to request body, with a link to each object that was created in a group."""
        return {
            path.rpartition("/")[2]: {"id": id}
            for path, id in self._ids.items()
            if path and path.rpartition("/")[0] == group
        }


def _nbytes(values: NDArray[Any]) -> int:
    """Return the approximate number of bytes that values take in a request."""
    if values.dtype != object:
        return int(values.nbytes)
    return sum(4 + len(one) for one in values.reshape(-1).tolist()) if np.size(values) else 0
