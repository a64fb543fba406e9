"""Encoded elements sent to a domain: the objects without links first, then the links that show them all at once.

What they replace is there until then: links are set and removed by one change of the group.

What `group[path] = value` stores as AnnData's files have it: data frames, dicts and the like, and columns of frames.

A frame names its columns in an attribute, so that what is only linked below it is no column.
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
from hsparse.client.errors import AlreadyExists, InvalidValue, WrongType
from hsparse.client.integrations.anndata.element_encoder import (
    PANDAS,
    Attributes,
    EncodedElements,
    checked_name,
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
from hsparse.format.selections.orthogonal import Span
from hsparse.format.selections.points import Orthogonal, Selection

SMALL = 64 << 10
"""Bytes of values that are sent with the request that creates their dataset."""
AT_ONCE = 100
"""Datasets that one request creates."""
BAND_BYTES = 32 << 20
"""Bytes of a dense array that are computed at a time, if it is dask's."""
FLOAT = "H5T_IEEE_F32LE"
Confirm: TypeAlias = Callable[[], dict[str, Json]]


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
        """Store the elements at a path of a group, which has the missing groups on the way, too, once all is stored.

        What has one of the names `replaced` at the path is there until then, and goes in the same moment.
        `AlreadyExists`, before anything is sent, if another name is taken. After an error the objects are deleted
        again, but not if they may be linked, and seen, by then. `confirm` is called before they are linked, and returns
        more links; `AlreadyExists` if one of these leads elsewhere at that moment.
        """
        self._check(elements)
        base, missing = nearest_group(group, path.strip("/"))
        elements = elements.below(missing)
        there = set(base)
        taken = sorted(elements.names & there - set(replaced))
        if taken:
            place = "" if base.name == "/" else f"{base.name} of "
            raise AlreadyExists(
                f"{place}{self._connection.domain} has such elements already, {', '.join(taken)}: give another path, "
                "or overwrite=True to replace them."
            )
        removed = () if missing else sorted(there & set(replaced))
        old = ReplacedObjects(self._connection, base.id, removed)
        self._store(elements, base.id, removed, progress, confirm)
        old.delete()

    def _check(self, elements: EncodedElements) -> None:
        """Raise the error of what has no type, before anything is sent."""
        for value, attributes in elements.arrays.values():
            self._array_body(value)
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
            properties |= getattr(value, "creation", {})
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
            attributes = _bodies(matrix_attributes(kind) | _shape_of(matrix))
            bodies[path] = self._matrix_body(matrix) | {"attributes": attributes}
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


ORDER = "column-order"
Group: TypeAlias = Any
"""A group of the client, which imports this when it is used."""


def assign_element(group: Group, path: str, value: Any, frame: Group | None) -> None:
    """Store a value at a path of a group as AnnData's files have it, a column of `frame` if that is not None.

    A data frame takes the place of one of as many rows; anything else of a path that is free.
    """
    parent, _, name = path.rstrip("/").rpartition("/")
    replaced = (name,) if group._old is None and _replaces_frame(group, path, value) else ()
    _assign(group, parent, name, value, frame, replaced)


def assign_in_part(group: Group, part: str, name: str, value: Any, *, is_there: bool) -> None:
    """Store an element of `obs`, `layers` or the like of the AnnData in a group, in the place of what has its name.

    A part that is not there is made.
    """
    frame = frame_at(group, part) if part in ("obs", "var") else None
    if frame is not None and name == frame.attrs["_index"]:
        raise InvalidValue(f"{name} is the index of {frame.name}: give the column another name.")
    checked_name(part, name)
    if is_there:
        _assign(group, part, name, value, frame, (name,))
    else:
        _assign(group, "", part, {name: value}, None, ())


def _assign(
    group: Group, parent: str, name: str, value: Any, frame: Group | None, replaced: Collection[str]
) -> None:
    elements = EncodedElements()
    try:
        elements.add(name, value if frame is None else _column(frame, name, value))
    except (InvalidValue, WrongType) as error:
        if not error.message.startswith(name):
            raise
        raise type(error)(f"{parent}/{error.message}".lstrip("/")) from None
    group._write_elements(elements, parent, replaced)
    if frame is not None:
        add_column(frame, name)
    _forget(group)


def frame_at(group: Group, path: str) -> Group | None:
    """Return the data frame at a path from the root, as it is now; None without one. One request."""
    found: Any = group.get(path)
    return found if found is not None and found.attrs.get("encoding-type") == "dataframe" else None


def check_rows(frame: Group, shape: tuple[int, ...]) -> None:
    """Raise `InvalidValue` unless a column of a frame may have a shape."""
    rows = len(_index(frame))
    if shape != (rows,):
        raise InvalidValue(f"{frame.name} has {rows} rows, not {list(shape)}: give a value for each of them.")


def add_column(frame: Group, name: str) -> None:
    """Name a column in a frame's attribute, the last one, unless it is named there or the frame's index."""
    columns = _columns(frame)
    if name not in columns and name != frame.attrs["_index"]:
        frame.attrs[ORDER] = np.array([*columns, name], object)
    _forget(frame)


def remove_column(frame: Group, name: str) -> None:
    """Take the name of a column out of a frame's attribute; `InvalidValue` for the frame's index."""
    if name == frame.attrs["_index"]:
        raise InvalidValue(f"{name} is the index of {frame.name}: delete the frame with it.")
    columns = _columns(frame)
    if name in columns:
        left = [one for one in columns if one != name]
        frame.attrs[ORDER] = np.array(left, object) if left else np.zeros(0)
    _forget(frame)


def _forget(group: Group) -> None:
    """Let queries of the file ask again what there is."""
    labels = group._labels_of
    if labels is not None and hasattr(labels, "forget"):
        labels.forget()


def _columns(frame: Group) -> list[str]:
    return [str(name) for name in np.atleast_1d(frame.attrs[ORDER])]


def _replaces_frame(group: Group, path: str, value: Any) -> bool:
    """Say whether a data frame is there, and another one given; `InvalidValue` if that has other rows."""
    if not isinstance(value, PANDAS.load().DataFrame):
        return False
    found = frame_at(group, path)
    if found is None:
        return False
    rows = len(_index(found))
    if len(value) != rows:
        raise InvalidValue(
            f"{found.name} has {rows} rows, not {len(value)}: delete it first, or write all anew."
        )
    return True


def _index(frame: Group) -> NDArray[Any]:
    found: Any = frame[str(frame.attrs["_index"])]
    found = found["values"] if found.id.startswith("g-") else found  # of a nullable one
    labels: NDArray[Any] = found.to_numpy()
    return labels


def _column(frame: Group, name: str, value: Any) -> Any:
    """Return the array of a column: a Series is arranged by the frame's index if it has labels."""
    pandas = PANDAS.load()
    check_rows(frame, np.shape(value))
    series = value if isinstance(value, pandas.Series) else pandas.Series(value)
    if isinstance(value, pandas.Series) and not isinstance(series.index, pandas.RangeIndex):
        index = _index(frame)
        if not series.index.is_unique or set(series.index) != set(index.tolist()):
            raise InvalidValue(
                f"The labels of the Series are not those of {frame.name}: give it as an array."
            )
        series = series.loc[index]
    return series.array.to_numpy() if type(series.array).__name__ == "NumpyExtensionArray" else series.array
