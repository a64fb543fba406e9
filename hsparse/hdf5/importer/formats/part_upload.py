"""The parts of a domain sent to it: arrays, matrices, groups, and the root group's links last."""

from __future__ import annotations

import base64
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.errors import Conflict
from hsparse.hdf5.importer.dense_upload import Advance
from hsparse.hdf5.importer.formats.domain_parts import Bodies, DomainParts
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.sparse_matrix import Matrix, MatrixUpload, matrix_body
from hsparse.model.ids import derived_id

INLINE = 64 << 10
"""The most bytes of values that are sent with the request that creates their dataset."""
BAND = 8 << 20
"""Bytes of values of a request."""


class PartUpload:
    """One import; ids are computed from paths, so that a resumed one finds the objects that exist already."""

    def __init__(self, server: RetryingClient, uploads: BoundedPool, root: str, advance: Advance) -> None:
        self._server = server
        self._uploads = uploads
        self._root = root
        self._advance = advance
        self._ids = {"": root}

    def run(self, parts: DomainParts) -> None:
        """Create and fill all objects; errors have their paths."""
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
        id = derived_id(collection, self._root, sha256(path.encode()).digest())
        with suppress(Conflict):  # it existed before: its elements and links are written again
            self._server.json("POST", f"/{collection}", body | {"id": id})
        self._ids[path] = id
        return id

    def _array(self, path: str, values: NDArray[Any], attributes: Bodies) -> None:
        kind = Hdf5Type.of(values)
        body: Bodies = {"type": kind.item, "shape": list(values.shape), "attributes": attributes}
        row = _nbytes(values) // max(1, len(values) if values.shape else 1)
        if row * (len(values) if values.shape else 1) <= INLINE:
            data = kind.encode(values)
            body |= {"value_base64": base64.b64encode(data).decode()} if values.size else {}
            self._create("datasets", path, body)
            return
        id = self._create("datasets", path, body)
        step = max(1, BAND // max(1, row))
        for first in range(0, len(values), step):
            band = values[first : first + step]
            self._uploads.submit(3 * row * len(band), partial(self._send, id, path, first, band, kind))

    def _send(self, id: str, path: str, first: int, band: NDArray[Any], kind: Hdf5Type) -> None:
        rest = (f"0:{length}" for length in band.shape[1:])
        select = f"[{','.join((f'{first}:{first + len(band)}', *rest))}]"
        with path_in_errors(f"/{path}"):
            self._server.json("PUT", f"/datasets/{id}/value", kind.encode(band), select=select)

    def _matrix(self, path: str, matrix: Matrix, attributes: Bodies) -> MatrixUpload:
        with path_in_errors(f"/{path}"):
            id = self._create("datasets", path, matrix_body(matrix) | {"attributes": attributes})
        return MatrixUpload(self._server, self._uploads, f"/{path}", {"id": id}, matrix, self._advance)

    def _groups(self, named: dict[str, Bodies]) -> None:
        """Create the groups, the innermost first, then the links of the root group."""
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
        """Return the links of a group to what was created in it."""
        return {
            path.rpartition("/")[2]: {"id": id}
            for path, id in self._ids.items()
            if path and path.rpartition("/")[0] == group
        }


def _nbytes(values: NDArray[Any]) -> int:
    """Return the bytes that values have in a request, about."""
    if values.dtype != object:
        return int(values.nbytes)
    return sum(4 + len(one) for one in values.reshape(-1).tolist()) if np.size(values) else 0
