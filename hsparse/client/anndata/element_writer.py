"""Encoded elements sent to a domain: the objects without links first, and one link each to show them all at once."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.anndata.element_encoder import Attributes, EncodedElements, matrix_attributes
from hsparse.client.connection import Connection, Json
from hsparse.client.errors import AlreadyExists
from hsparse.client.progress import Advance, Progress, show_progress
from hsparse.client.sources.selection_request import SelectionRequest
from hsparse.client.sources.upload import upload
from hsparse.client.sparse.matrix_writer import MatrixWriter, sparse_body
from hsparse.client.types.hdf5_type import Hdf5Type, attribute_body
from hsparse.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    HsparseError,
    NotFound,
    OverQuota,
    TooLarge,
    Unauthenticated,
)
from hsparse.format.selections.axis import Span
from hsparse.format.selections.selection import Orthogonal, Selection

SMALL = 64 << 10
"""Bytes of values that are sent with the request that creates their dataset."""
AT_ONCE = 100
"""Datasets that one request creates."""
WITHOUT_EFFECT = (BadRequest, Conflict, Forbidden, Gone, NotFound, OverQuota, TooLarge, Unauthenticated)
"""Errors of a request that has changed nothing."""
BAND_BYTES = 32 << 20
"""Bytes of a dense array that are computed at a time, if it is dask's."""
FLOAT = "H5T_IEEE_F32LE"


class ElementWriter:
    """Creates the objects of elements below a group, which shows none of them until all are stored.

    `chunks` are those of matrices and arrays of the shape `main`, `filters` those of all large arrays.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        main: tuple[int, ...] = (),
        chunks: Sequence[int] | None = None,
        filters: Sequence[Any] | None = None,
    ) -> None:
        self._connection = connection
        self._main = main
        self._chunks = chunks
        self._filters = filters
        self._ids: dict[str, str] = {}
        self._is_linking = False

    def write(self, elements: EncodedElements, group: str, progress: Progress = None) -> None:
        """Store the elements and link them into the group of an id; `AlreadyExists` if a name is taken there.

        After an error the objects are deleted again, but not if they may be linked, and seen, by then.
        """
        sizes = [_nbytes(value) for value, _ in elements.arrays.values()]
        sizes += [_nbytes(matrix) for matrix, _ in elements.matrices.values()]
        try:
            with show_progress(progress, str(self._connection.domain), sum(sizes)) as advance:
                self._write_arrays(elements, advance)
                self._write_matrices(elements, advance)
                self._link(elements, group)
        except BaseException as error:
            if self._is_linking and not isinstance(error, WITHOUT_EFFECT):
                raise
            for id in self._ids.values():
                with suppress(HsparseError):
                    self._connection.json("DELETE", f"/{'groups' if id[0] == 'g' else 'datasets'}/{id}")
            raise

    # --- datasets -------------------------------------------------------------------------------------

    def _write_arrays(self, elements: EncodedElements, advance: Advance) -> None:
        small, large = {}, {}
        for path, (value, attributes) in elements.arrays.items():
            body = self._array_body(value) | {"attributes": _bodies(attributes)}
            if value is None or _nbytes(value) > SMALL:
                large[path] = body
            else:
                array = np.asarray(value)
                data = Hdf5Type.of(array).encode(array)
                small[path] = body | ({"value_base64": base64.b64encode(data).decode()} if array.size else {})
                advance(_nbytes(array))
        self._create("datasets", small)
        self._create("datasets", large)
        for path in large:
            value = elements.arrays[path][0]
            if value is not None:
                self._send(self._ids[path], value, advance)

    def _array_body(self, value: Any) -> Json:
        if value is None:
            return {"type": FLOAT, "shape": "H5S_NULL"}
        kind = Hdf5Type.of(value if isinstance(value, np.ndarray) else np.zeros(0, value.dtype))
        body: Json = {"type": kind.item}
        if value.shape:
            body["shape"] = list(value.shape)
        properties: Json = {}
        if _nbytes(value) > SMALL:
            if self._filters is not None:
                properties["filters"] = list(self._filters)
            if self._chunks is not None and value.shape == self._main:
                properties["layout"] = {"class": "H5D_CHUNKED", "dims": list(self._chunks)}
        return body | {"creationProperties": properties}

    def _send(self, id: str, value: Any, advance: Advance) -> None:
        """Send the values of an array in bands of its first dimension, computed if they are dask's."""
        step = max(1, BAND_BYTES // max(1, _nbytes(value) // value.shape[0]))
        for first in range(0, value.shape[0], step):
            band = value[first : first + step]
            array = np.asarray(band.compute() if hasattr(band, "compute") else band)
            spans = [Span.range(first, first + len(array)), *(Span.range(0, n) for n in value.shape[1:])]
            selection = Orthogonal.trusted(tuple(value.shape), tuple(spans))
            upload(selection, array, None, _nbytes(array) // max(1, array.size), partial(self._put, id))
            advance(_nbytes(array))

    def _put(self, id: str, selection: Selection, values: NDArray[Any]) -> None:
        select = SelectionRequest.of(selection, named=True).select
        data = Hdf5Type.of(values).encode(values)
        self._connection.json("PUT", f"/datasets/{id}/value", data, select=select)

    def _write_matrices(self, elements: EncodedElements, advance: Advance) -> None:
        bodies = {}
        for path, (matrix, kind) in elements.matrices.items():
            chunks = self._chunks if matrix.shape == self._main else None
            count = getattr(matrix, "nnz", prod(matrix.shape) // 16)
            body = sparse_body(matrix.shape, matrix.dtype, count, chunks, self._filters)
            bodies[path] = body | {"attributes": _bodies(matrix_attributes(kind) | _shape_of(matrix))}
        self._create("datasets", bodies)
        for path, (matrix, kind) in elements.matrices.items():
            dims = bodies[path]["creationProperties"]["layout"]["dims"]
            writer = MatrixWriter(self._connection, self._ids[path], dims, advance)
            writer.write(matrix, axis=int(kind == "csc"))

    # --- objects --------------------------------------------------------------------------------------

    def _create(self, collection: str, bodies: dict[str, Json]) -> None:
        """Create objects without links to them, many at a time."""
        for some in _portions(list(bodies), AT_ONCE):
            answer = self._connection.json("POST", f"/{collection}", [bodies[path] for path in some])
            made = answer.get("objects", [answer])
            self._ids |= {path: one["id"] for path, one in zip(some, made, strict=True)}

    def _link(self, elements: EncodedElements, group: str) -> None:
        """Create the groups, the innermost first, then set the links of the group that has them all."""
        depths = sorted({path.count("/") for path in elements.groups if path}, reverse=True)
        for depth in depths:
            self._create(
                "groups",
                {
                    path: {"attributes": _bodies(attributes), "links": self._links(path)}
                    for path, attributes in elements.groups.items()
                    if path and path.count("/") == depth
                },
            )
        path = f"/groups/{group}"
        if "" in elements.groups:
            bodies = {"attributes": _bodies(elements.groups[""])}
            self._connection.json("PUT", f"{path}/attributes", bodies, replace=1)
        self._is_linking = True
        try:
            self._connection.json("PUT", f"{path}/links", {"links": self._links("")})
        except Conflict as error:
            raise AlreadyExists(
                f"{self._connection.domain} has such elements already: {error.message}"
            ) from error

    def _links(self, group: str) -> dict[str, Json]:
        parents = {path: path.rpartition("/")[0] for path in self._ids}
        return {
            path.rpartition("/")[2]: {"id": id} for path, id in self._ids.items() if parents[path] == group
        }


def _bodies(attributes: Attributes) -> dict[str, Json]:
    return {name: attribute_body(value) for name, value in attributes.items()}


def _shape_of(matrix: Any) -> Attributes:
    return {"shape": np.array(matrix.shape, np.int64)}


def _nbytes(value: Any) -> int:
    """Return about the bytes of an array or matrix; a text counts as 64."""
    if value is None:
        return 0
    if hasattr(value, "nnz"):
        return int(value.nnz) * int(value.dtype.itemsize)
    size = 64 if value.dtype.hasobject else value.dtype.itemsize
    return int(prod(value.shape)) * int(size)


def _portions(paths: list[str], count: int) -> Iterator[list[str]]:
    for first in range(0, len(paths), count):
        yield paths[first : first + count]
