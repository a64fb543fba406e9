"""Groups: what h5py users know of them, as far as the arrays of hsparse need it; for all of h5py there is h5pyd."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from hsparse.client.attributes import Attributes
from hsparse.client.connection import Connection, Json
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import AlreadyExists, InvalidValue, MissingKey
from hsparse.client.indexing.labels import Labels
from hsparse.client.late_links import unlinked_dataset
from hsparse.client.object_records import UNREACHABLE, ObjectRecords, home_of
from hsparse.client.sparse_dataset import UNLIMITED, Filter, SparseDataset, is_sparse
from hsparse.client.types.hdf5_type import Hdf5Type, attribute_body
from hsparse.errors import Conflict, Gone, NotFound

INLINE = 256 << 10
"""Bytes of values that are sent with the creation of their dataset: every server takes so many in JSON."""
T = TypeVar("T")
Member: TypeAlias = "Group | DenseDataset | SparseDataset | NamedType"
LabelsOf: TypeAlias = Callable[[str], Labels]


@dataclass(frozen=True, slots=True)
class SoftLink:
    """A link to a path, which need not exist.

    >>> f["newest"] = hsparse.SoftLink("/X")
    >>> f["newest"].shape
    (4, 3)
    """

    path: str


@dataclass(frozen=True, slots=True)
class ExternalLink:
    """A link to a path in another domain.

    >>> f["other"] = hsparse.ExternalLink("/home/admin/other.h5", "/X")
    >>> f.links()["other"]["class"]
    'H5L_TYPE_EXTERNAL'
    """

    domain: str
    path: str


class NamedType:
    """A committed type: its `item` is HDF5/JSON.

    >>> record = f.connection.json("POST", "/datatypes", {"type": "H5T_STD_I32LE", "h5path": "/count"})
    >>> f["count"].item["base"], f["count"].name
    ('H5T_STD_I32LE', '/count')
    """

    def __init__(self, connection: Connection, record: Json, name: str) -> None:
        self.id: str = record["id"]
        self.name = name
        self.item = record["type"]
        self.attrs = Attributes(connection, f"/datatypes/{self.id}", record.get("attributes"))

    def __repr__(self) -> str:
        return f"<NamedType {self.name}: {self.item}>"


class Group(Mapping[str, Member]):
    """A group on a server: a mapping from paths to groups and datasets, asked for when they are needed.

    >>> group = f.create_group("raw")
    >>> group.attrs["title"] = "as measured"
    >>> group["times"] = [0.5, 1.5]
    >>> list(group), "times" in group, len(f)
    (['times'], True, 2)
    """

    def __init__(
        self, connection: Connection, record: Json, name: str, labels_of: LabelsOf | None = None
    ) -> None:
        """Take a group's record, as `GET /groups/{id}` answers, and its path in the domain.

        `labels_of` returns the labels of the sparse dataset at a path.
        """
        self.connection = connection
        self.id: str = record["id"]
        self.name = name
        self._labels_of = labels_of
        self.attrs = Attributes(connection, f"/groups/{self.id}", record.get("attributes"))

    def __repr__(self) -> str:
        return f"<Group {self.name}>"

    def __getitem__(self, path: str) -> Member:
        """Return the object at a path, from here, or from the root if it begins with a slash; one request.

        >>> f["X"].shape
        (4, 3)
        >>> f["Y"]
        Traceback (most recent call last):
        hsparse.client.errors.MissingKey: There is no object /Y in /home/admin/run.h5.
        """
        if not isinstance(path, str):
            raise MissingKey(f"{path!r:.80} is no path: name a group or a dataset.")
        whole = self._whole(path)
        try:
            record = self.connection.json(
                "GET", "/", h5path=whole, include_attrs=1, follow_soft_links=1, follow_external_links=1
            )
        except (NotFound, Gone) as error:
            # of a link that leads to nothing, what it leads to
            is_missing = error.message.startswith("There is no") and whole in error.message
            reason = "." if is_missing else f": {error.message}"
            raise MissingKey(f"There is no object {whole} in {self.connection.domain}{reason}") from error
        return make_member(self.connection, record, whole, self._labels_of)

    def __contains__(self, path: object) -> bool:
        """Say whether there is a link at a path, which may lead to nothing, as in h5py.

        >>> f["broken"] = hsparse.SoftLink("/none")
        >>> "broken" in f, "none" in f, f.get("broken")
        (True, False, None)
        """
        if not isinstance(path, str):
            return False
        above, _, title = self._whole(path).rstrip("/").rpartition("/")
        try:
            group = self if above == self.name.rstrip("/") else self[above or "/"]
        except UNREACHABLE:
            return False
        return isinstance(group, Group) and (not title or group._has_link(title))

    def get(self, path: str, default: T | None = None) -> Member | T | None:  # type: ignore[override]
        """Return the object at a path; `default` without one, or if a link leads where you may not read.

        >>> f.get("Y", "none")
        'none'
        """
        try:
            return self[path]
        except UNREACHABLE:
            return default

    def items(self) -> ItemsView[str, Any]:
        """Return the names with their objects; None where a link leads to nothing, as in h5py.

        >>> f["broken"] = hsparse.SoftLink("/none")
        >>> [(name, type(member).__name__) for name, member in f.items()]
        [('X', 'SparseDataset'), ('broken', 'NoneType')]
        """
        return MemberItems(self)

    def values(self) -> ValuesView[Any]:
        """Return the objects in the order of the names; None where a link leads to nothing, as in h5py.

        >>> len(f.values())
        1
        """
        return MemberValues(self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._links())

    def __len__(self) -> int:
        return len(self._links())

    def __bool__(self) -> bool:
        return True

    def create_group(self, path: str, attributes: Mapping[str, Any] | None = None) -> Group:
        """Create a group, with the missing ones above it; `AlreadyExists` if the path has an object.

        >>> f.create_group("runs/2026", {"beam": "on"})
        <Group /runs/2026>
        >>> f["runs/2026"].attrs["beam"]
        'on'
        """
        whole = self._whole(path)
        record = self._create("/groups", {"h5path": whole}, whole)
        group = Group(self.connection, record, whole)
        group.attrs.update(attributes or {})
        return group

    def require_group(self, path: str) -> Group:
        """Return the group at a path, created if there is none; `InvalidValue` if a dataset is there.

        >>> f.require_group("runs").name, f.require_group("runs").name
        ('/runs', '/runs')
        """
        try:
            return self.create_group(path)
        except AlreadyExists:
            found = self[path]
        if not isinstance(found, Group):
            raise InvalidValue(f"{found.name} is a {type(found).__name__}, not a group.")
        return found

    def create_dataset(
        self,
        path: str,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        data: ArrayLike | None = None,
        *,
        chunks: Sequence[int] | None = None,
        stripes: int = 1,
        maxshape: Sequence[int | None] | None = None,
        fillvalue: ArrayLike | None = None,
        filters: Sequence[Filter] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> DenseDataset:
        """Create a dense dataset, with the missing groups above it, and write `data`, which gives shape and dtype too.

        It is seen when all data is written; if that fails nothing is left of it.
        `maxshape` has None for an unlimited dimension. `filters` are those of `creationProperties.filters`, such as
        `"gzip"`. With `stripes` the chunks are spread over so many prefixes of the store. `AlreadyExists` if the path
        has an object.

        >>> t = f.create_dataset("t", data=[[1.5, 2], [3, 4]], attributes={"unit": "s"})
        >>> t.shape, t.dtype, t.attrs["unit"]
        ((2, 2), dtype('float64'), 's')
        >>> log = f.create_dataset("log", (0, 3), "i4", chunks=(100, 3), maxshape=(None, 3), filters=["gzip"])
        >>> log.extend(2)
        slice(0, 2, None)
        """
        if data is None and shape is None:
            raise InvalidValue("Give data, or a shape and a dtype.")
        array = np.asarray(np.zeros((), dtype or "f4") if data is None else data, dtype)
        extent = tuple(array.shape if shape is None else shape)
        kind = Hdf5Type.of(array)
        properties: Json = {"filters": list(filters)} if filters else {}
        if chunks is not None or stripes != 1:
            properties["layout"] = {
                "class": "H5D_CHUNKED",
                **({} if chunks is None else {"dims": list(chunks)}),
                **({} if stripes == 1 else {"stripes": stripes}),
            }
        if fillvalue is not None:
            properties["fillValue"] = np.asarray(fillvalue, None if kind.is_vlen else kind.dtype).tolist()
        whole = self._whole(path)
        body: Json = {"type": kind.item, "creationProperties": properties}
        if extent:
            body["shape"] = list(extent)
        if maxshape is not None:
            body["maxdims"] = [UNLIMITED if limit is None else limit for limit in maxshape]
        body["attributes"] = {name: attribute_body(value) for name, value in (attributes or {}).items()}
        if data is not None and 0 < array.nbytes <= INLINE and len(encoded := kind.encode(array)) <= INLINE:
            body["value_base64"] = b64encode(encoded).decode()
        if data is None or not array.size or "value_base64" in body:
            record = self._create("/datasets", body | {"h5path": whole}, whole)
            return DenseDataset(self.connection, record, whole)
        with unlinked_dataset(self, path, body) as record:
            dataset = DenseDataset(self.connection, record, whole)
            dataset[...] = array
        return dataset

    def create_sparse(
        self,
        path: str,
        shape: Sequence[int],
        dtype: DTypeLike,
        chunks: Sequence[int],
        *,
        stripes: int = 1,
        maxshape: Sequence[int | None] | None = None,
        fillvalue: ArrayLike | None = None,
        filters: Sequence[Filter] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> SparseDataset:
        """Create a sparse dataset, see `SparseDataset.create`; `AlreadyExists` if the path has an object.

        >>> y = f.create_sparse("y", (0, 512, 512), "u2", (1, 512, 512), maxshape=(None, 512, 512))
        >>> y.shape, y.chunks, y.nnz
        ((0, 512, 512), (1, 512, 512), 0)
        """
        bodies = {name: attribute_body(value) for name, value in (attributes or {}).items()}
        try:
            return SparseDataset.create(
                self.connection,
                self._whole(path),
                shape,
                dtype,
                chunks,
                stripes=stripes,
                maxshape=maxshape,
                fillvalue=fillvalue,
                filters=filters,
                attributes=bodies,
            )
        except Conflict as error:
            raise AlreadyExists(error.message) from error

    def __setitem__(self, name: str, value: Member | SoftLink | ExternalLink | ArrayLike) -> None:
        """Link an object, a `SoftLink` or an `ExternalLink` by a name, or create a dense dataset of an array there.

        >>> f["times"] = [0.5, 1.5]
        >>> f["same"] = f["times"]
        >>> f["same"][:]
        array([0.5, 1.5])
        """
        if isinstance(value, SoftLink):
            link: Json = {"h5path": value.path}
        elif isinstance(value, ExternalLink):
            link = {"h5path": value.path, "h5domain": value.domain}
        elif isinstance(value, Group | DenseDataset | SparseDataset | NamedType):
            link = {"id": value.id}
        else:
            self.create_dataset(name, data=value)
            return
        try:
            self.connection.json("PUT", f"/groups/{self.id}/links", {"links": {name: link}})
        except Conflict as error:
            raise AlreadyExists(error.message) from error

    def __delitem__(self, name: str) -> None:
        """Remove a link of this group; the object stays while others lead to it.

        >>> del f["X"]
        >>> list(f)
        []
        """
        if not self._has_link(name):
            raise MissingKey(f"{self.name} has no link {name!r}.")
        self.connection.json("DELETE", f"/groups/{self.id}/links", titles=name, separator="\0")

    def links(self) -> dict[str, Json]:
        """Return the links of the group as HDF5/JSON, by name.

        >>> f["newest"] = hsparse.SoftLink("/X")
        >>> {name: link["class"] for name, link in f.links().items()}
        {'X': 'H5L_TYPE_HARD', 'newest': 'H5L_TYPE_SOFT'}
        """
        return self._links()

    def records(self) -> dict[str, Json]:
        """Return the records of all objects below, by path: the whole tree with its attributes, by one request.

        An object is there once for each path that links lead through, soft and external ones too; an external link
        takes a request more. Links that lead to nothing, or where you may not read, are left out.

        >>> f["runs/1"] = [1, 2]
        >>> {path: record["id"][0] for path, record in f.records().items()}
        {'X': 'd', 'runs': 'g', 'runs/1': 'd'}
        """
        return ObjectRecords(self.connection, self.id, self.name).read()

    def _whole(self, path: str) -> str:
        """Return a path from the root."""
        return path if path.startswith("/") else f"{self.name.rstrip('/')}/{path}"

    def _links(self) -> dict[str, Json]:
        links: dict[str, Json] = {}
        marker: str | None = None
        while True:
            page = self.connection.json("GET", f"/groups/{self.id}/links", Limit=10_000, Marker=marker)[
                "links"
            ]
            links |= {link["title"]: link for link in page}
            if len(page) < 10_000:
                return links
            marker = page[-1]["title"]

    def _has_link(self, title: str) -> bool:
        answer = self.connection.json("GET", f"/groups/{self.id}/links", titles=title, separator="\0")
        return any(link["title"] == title for link in answer["links"])

    def _create(self, where: str, body: Json, path: str) -> Json:
        """Create an object and return its record; `AlreadyExists` if its path has one."""
        try:
            return self.connection.json("POST", where, body, implicit=1, follow_soft_links=1)
        except Conflict as error:
            raise AlreadyExists(f"There is an object at {path} already: {error.message}") from error


class MemberItems(ItemsView[str, Any]):
    """Names and members of a group; None for a link that leads to nothing."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._group = group

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name in self._group:
            yield name, self._group.get(name)


class MemberValues(ValuesView[Any]):
    """Members of a group; None for a link that leads to nothing."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._group = group

    def __iter__(self) -> Iterator[Any]:
        for name in self._group:
            yield self._group.get(name)


def make_member(connection: Connection, record: Json, path: str, labels_of: LabelsOf | None = None) -> Member:
    """Return the object of a record: a group, a dataset or a committed type, by its id.

    One that an external link led to has the connection and the path of its own domain; labels are those of `path`.
    """
    labels = None if labels_of is None or not is_sparse(record) else labels_of(path)
    if "h5path" in record:
        connection, path, labels_of = home_of(connection, record), record["h5path"], None
    kind = record["id"][0]
    if kind == "g":
        return Group(connection, record, path, labels_of)
    if kind == "t":
        return NamedType(connection, record, path)
    if not is_sparse(record):
        return DenseDataset(connection, record, path)
    return SparseDataset(connection, record, path, labels=labels)
