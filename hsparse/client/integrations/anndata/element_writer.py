"""Send encoded elements to a domain: first all objects without links, then the links, which make them visible at once.

Replaced objects stay visible until then: one change of the group removes the old links and sets the new ones.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import AlreadyExists
from hsparse.client.integrations.anndata.element_encoder import (
    Attributes,
    EncodedElements,
    matrix_attributes,
)
from hsparse.client.late_links import (
    Parent,
    ReplacedObjects,
    UncertainLink,
    delete_objects,
    link_objects,
    nearest_group,
)
from hsparse.client.progress import Advance, Progress, show_progress
from hsparse.client.sources.selection_request import SelectionRequest
from hsparse.client.sources.upload import upload
from hsparse.client.sparse.matrix_writer import MatrixWriter, sparse_body
from hsparse.client.types.hdf5_type import Hdf5Type, attribute_body
from hsparse.format.selections.orthogonal import StridedSpan
from hsparse.format.selections.points import Orthogonal, Selection
from hsparse.model.dataspace import UNLIMITED

MAX_INLINE_BYTES = 64 << 10
"""The maximum number of bytes of values that are sent with the request that creates their dataset."""
AT_ONCE = 100
"""The maximum number of objects that one request creates."""
BAND_BYTES = 32 << 20
"""Bytes of a dense array that are sent at a time; a dask array is computed in bands of this size."""
FLOAT = "H5T_IEEE_F32LE"
Confirm: TypeAlias = Callable[[], dict[str, Json]]


class ElementWriter:
    """Creates the objects of elements below a group; they are linked when all are stored.

    `chunks` apply to matrices and large arrays of the shape `main`, `filters` to all matrices and large arrays.
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

    def write(
        self,
        elements: EncodedElements,
        group: Parent,
        path: str = "",
        *,
        replaced: Collection[str] = (),
        progress: Progress = None,
        confirm: Confirm = dict,
    ) -> None:
        """Store the elements at a path of a group, and create the groups missing on it; one change links all.

        The same change removes the objects at the path whose names are in `replaced`. Raise `AlreadyExists`, before
        anything is sent, if another name is taken. After an error the new objects are deleted, unless they may be
        linked already. `confirm` is called before the change, and returns further links by name, which the change
        checks: raise `AlreadyExists` if one of these names leads to another object.
        """
        self._check(elements)
        base, missing = nearest_group(group, path.strip("/"))
        elements = elements.below(missing)
        there = set(base)
        taken = sorted(elements.names & there - set(replaced))
        if taken:
            place = "" if base.name == "/" else f"{base.name} of "
            raise AlreadyExists(
                f"{place}{self._connection.domain} already has {', '.join(taken)}: give another path, "
                "or overwrite=True to replace them."
            )
        removed = () if missing else sorted(there & set(replaced))
        old = ReplacedObjects(self._connection, base.id, removed)
        self._store(elements, base.id, removed, progress, confirm)
        old.delete()

    def _check(self, elements: EncodedElements) -> None:
        """Raise an error for a value that has no HDF5 type, before anything is sent."""
        for value, attributes in elements.arrays.values():
            self._array_body(value, is_extensible=False)
            _bodies(attributes)
        for attributes in elements.groups.values():
            _bodies(attributes)
        for matrix, _ in elements.matrices.values():
            self._matrix_body(matrix)

    def _store(
        self,
        elements: EncodedElements,
        group: str,
        removed: Sequence[str],
        progress: Progress,
        confirm: Confirm,
    ) -> None:
        sizes = [_nbytes(value) for value, _ in elements.arrays.values()]
        sizes += [_nbytes(matrix) for matrix, _ in elements.matrices.values()]
        try:
            with show_progress(progress, str(self._connection.domain), sum(sizes)) as advance:
                self._write_arrays(elements, advance)
                self._write_matrices(elements, advance)
                self._create("datasets", elements.bodies)
                self._link(elements, group, removed, confirm)
        except UncertainLink as error:
            raise error.cause from None
        except BaseException:
            delete_objects(self._connection, self._ids.values())
            raise

    # --- datasets -------------------------------------------------------------------------------------

    def _write_arrays(self, elements: EncodedElements, advance: Advance) -> None:
        small, large = {}, {}
        for path, (value, attributes) in elements.arrays.items():
            body = self._array_body(value, is_extensible=path in elements.extensible)
            body["attributes"] = _bodies(attributes)
            if value is None or _nbytes(value) > MAX_INLINE_BYTES:
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

    def _array_body(self, value: Any, *, is_extensible: bool) -> Json:
        if value is None:
            return {"type": FLOAT, "shape": "H5S_NULL"}
        kind = Hdf5Type.of(value if isinstance(value, np.ndarray) else np.zeros(0, value.dtype))
        body: Json = {"type": kind.item}
        if value.shape:
            body["shape"] = list(value.shape)
        if is_extensible:
            body["maxdims"] = [UNLIMITED, *value.shape[1:]]
        properties: Json = {}
        if _nbytes(value) > MAX_INLINE_BYTES:
            if self._filters is not None:
                properties["filters"] = list(self._filters)
            if self._chunks is not None and value.shape == self._main:
                properties["layout"] = {"class": "H5D_CHUNKED", "dims": list(self._chunks)}
            properties |= getattr(value, "creation", {})
        return body | {"creationProperties": properties}

    def _send(self, id: str, value: Any, advance: Advance) -> None:
        """Send the values of an array in bands along its first dimension; compute each band of a dask array."""
        step = max(1, BAND_BYTES // max(1, _nbytes(value) // value.shape[0]))
        for first in range(0, value.shape[0], step):
            band = value[first : first + step]
            array = np.asarray(band.compute() if hasattr(band, "compute") else band)
            spans = [
                StridedSpan.range(first, first + len(array)),
                *(StridedSpan.range(0, n) for n in value.shape[1:]),
            ]
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
            attributes = _bodies(matrix_attributes(kind) | _shape_of(matrix))
            bodies[path] = self._matrix_body(matrix) | {"attributes": attributes}
            if path in elements.extensible:
                bodies[path]["maxdims"] = [UNLIMITED, matrix.shape[1]]
        self._create("datasets", bodies)
        for path, (matrix, kind) in elements.matrices.items():
            dims = bodies[path]["creationProperties"]["layout"]["dims"]
            writer = MatrixWriter(self._connection, self._ids[path], dims, advance)
            writer.write(matrix, axis=int(kind == "csc"))

    def _matrix_body(self, matrix: Any) -> Json:
        chunks = self._chunks if matrix.shape == self._main else None
        count = getattr(matrix, "nnz", prod(matrix.shape) // 16)
        body = sparse_body(matrix.shape, matrix.dtype, count, chunks, self._filters)
        body["creationProperties"] |= getattr(matrix, "creation", {})
        return body

    # --- objects --------------------------------------------------------------------------------------

    def _create(self, collection: str, bodies: dict[str, Json]) -> None:
        """Create objects without links to them, many at a time."""
        for some in _portions(list(bodies), AT_ONCE):
            answer = self._connection.json("POST", f"/{collection}", [bodies[path] for path in some])
            made = answer.get("objects", [answer])
            self._ids |= {path: one["id"] for path, one in zip(some, made, strict=True)}

    def _link(self, elements: EncodedElements, group: str, removed: Sequence[str], confirm: Confirm) -> None:
        """Create the groups, innermost first, then set the links of the group that contains all of them."""
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
        if "" in elements.groups:
            bodies = {"attributes": _bodies(elements.groups[""])}
            self._connection.json("PUT", f"/groups/{group}/attributes", bodies, replace=1)
        links = self._links("")
        link_objects(self._connection, group, links | confirm(), removed)

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
    """Return the approximate size of an array or matrix in bytes; a text counts as 64."""
    if value is None:
        return 0
    if hasattr(value, "nnz"):
        return int(value.nnz) * int(value.dtype.itemsize)
    size = 64 if value.dtype.hasobject else value.dtype.itemsize
    return int(prod(value.shape)) * int(size)


def _portions(paths: list[str], count: int) -> Iterator[list[str]]:
    for first in range(0, len(paths), count):
        yield paths[first : first + count]


Group: TypeAlias = Any
"""A `Group` of the client, whose module is not imported here because the import would be circular."""
