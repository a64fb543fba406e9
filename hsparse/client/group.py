"""Groups, with the methods of h5py's `Group` that arrays need; the package h5pyd has all methods of h5py."""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from hsparse.client.anndata_parts import AnnDataParts
from hsparse.client.attributes import Attributes, attribute_bodies
from hsparse.client.connection import Connection, Json
from hsparse.client.creation import MaxShape, Shape, shape_tuple
from hsparse.client.dataset_creation import ASSIGNMENT, DatasetCreation
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import AlreadyExists, InvalidValue, MissingKey, WrongType
from hsparse.client.indexing.labels import Labels
from hsparse.client.links import ExternalLink, Link, SoftLink, link_body, link_of, own_link
from hsparse.client.object_records import UNREACHABLE, ObjectRecords, home_of
from hsparse.client.sparse.sparse_values import Values, sparse_values
from hsparse.client.sparse_dataset import SparseDataset, is_sparse
from hsparse.errors import Conflict, NotFound
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from hsparse.client.integrations.anndata.element_encoder import EncodedElements
    from hsparse.client.progress import Progress

COPY = OptionalModule("hsparse.client.links")
TREE = OptionalModule("hsparse.client.tree_text")
MAX_COMPLETIONS = 1000
"""The maximum number of names that a notebook offers when it completes a path."""
WRITER = OptionalModule("hsparse.client.integrations.anndata.element_writer")
NO_OPTIONS: Mapping[str, Any] = {}
FROM_SCIPY = OptionalModule("hsparse.client.sparse.from_scipy")
Member: TypeAlias = "Group | DenseDataset | SparseDataset | NamedType"
LabelsOf: TypeAlias = Callable[[str], Labels]
T = TypeVar("T")


class NamedType:
    """A committed datatype; `item` is the datatype as HDF5/JSON.

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


class Group(DatasetCreation, AnnDataParts, Mapping[str, Member]):
    """A group on a server: a mapping from paths to groups, datasets and datatypes; each access fetches the object.

    >>> group = f.create_group("raw")
    >>> group.attrs["title"] = "as measured"
    >>> group["times"] = [0.5, 1.5]
    >>> list(group), "times" in group, len(f)
    (['times'], True, 2)
    """

    def __init__(
        self, connection: Connection, record: Json, name: str, labels_of: LabelsOf | None = None
    ) -> None:
        """`record` is the JSON of `GET /groups/{id}`, and `name` is the path of the group in the domain.

        `labels_of(path)` returns the labels along the axes of the sparse dataset at a path.
        """
        self.connection = connection
        self.id: str = record["id"]
        self.name = name
        self._labels_of = labels_of
        self.attrs = Attributes(connection, f"/groups/{self.id}", record.get("attributes"))

    _old: Group | None = None
    """The old file that this `File` will replace at its first use, or None; always None for a group that is no file."""

    def _take_over(self, attributes: Collection[str]) -> None:
        raise NotImplementedError("Only a file replaces another one.")

    def _write_elements(
        self,
        elements: EncodedElements,
        path: str,
        replaced: Collection[str],
        progress: Progress = None,
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> None:
        """Write elements at a path; the existing elements with the names `replaced` are removed."""
        writer = WRITER.load().ElementWriter(self.connection, **options)
        writer.write(elements, self, path, replaced=replaced, progress=progress)

    def __repr__(self) -> str:
        return f"<Group {self.name}>"

    def _repr_html_(self) -> str | None:
        return TREE.load().tree_html(self.connection, self.id, self.name, repr(self)[1:-1]) if self else None

    def _ipython_key_completions_(self) -> list[str]:
        answer = self.connection.json("GET", f"/groups/{self.id}/links", Limit=MAX_COMPLETIONS)
        return [link["title"] for link in answer["links"]]

    def __getitem__(self, path: str) -> Member:
        """Return the object at a path, which is absolute or relative to this group; sends one request.

        >>> f["X"].shape
        (4, 3)
        >>> f["Y"]
        Traceback (most recent call last):
        hsparse.client.errors.MissingKey: There is no object /Y in /home/admin/run.h5.
        """
        if not isinstance(path, str):
            raise MissingKey(f"{path!r:.80} is not a path: name a group or a dataset.")
        whole = self._whole(path)
        try:
            record = self.connection.json(
                "GET", "/", h5path=whole, include_attrs=1, follow_soft_links=1, follow_external_links=1
            )
        except NotFound as error:
            # For a dangling link, the message names its missing target.
            is_missing = error.message.startswith("There is no") and whole in error.message
            reason = "." if is_missing else f": {error.message}"
            raise MissingKey(f"There is no object {whole} in {self.connection.domain}{reason}") from error
        return make_member(self.connection, record, whole, self._labels_of)

    def __contains__(self, path: object) -> bool:
        """Return whether a link exists at a path; as in h5py, the target of the link may be missing.

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

    def items(self) -> ItemsView[str, Any]:
        """Return pairs of names and objects; as in h5py, the object of a dangling link is None.

        >>> f["broken"] = hsparse.SoftLink("/none")
        >>> [(name, type(member).__name__) for name, member in f.items()]
        [('X', 'SparseDataset'), ('broken', 'NoneType')]
        """
        return MemberItems(self)

    def values(self) -> ValuesView[Any]:
        """Return the objects in the order of their names; as in h5py, the object of a dangling link is None.

        >>> len(f.values())
        1
        """
        return MemberValues(self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._links())

    def __len__(self) -> int:
        return len(self._links())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __bool__(self) -> bool:
        return not self.connection.is_closed

    def create_group(self, path: str, attributes: Mapping[str, Any] | None = None) -> Group:
        """Create a group and missing parent groups; raise `AlreadyExists` if the path has an object.

        >>> f.create_group("runs/2026", {"beam": "on"})
        <Group /runs/2026>
        >>> f["runs/2026"].attrs["beam"]
        'on'
        """
        record, whole = self.create_object("groups", path, attribute_bodies(attributes))
        return Group(self.connection, record, whole, self._labels_of)

    def require_group(self, path: str) -> Group:
        """Return the group at a path, or create a missing group; raise `InvalidValue` if the path is no group.

        >>> f.require_group("runs").name, f.require_group("runs").name
        ('/runs', '/runs')
        """
        in_batch = self.connection.open_batch is not None  # a batch would raise AlreadyExists too late
        try:
            found = self[path] if in_batch and path in self else self.create_group(path)
        except AlreadyExists:
            found = self[path]
        if not isinstance(found, Group):
            raise InvalidValue(f"{found.name} is a {type(found).__name__}: give the path of a group.")
        return found

    def require_dataset(
        self,
        path: str,
        shape: Shape,
        dtype: DTypeLike,
        exact: bool = False,
        data: ArrayLike | None = None,
        *,
        maxshape: MaxShape = None,
    ) -> DenseDataset | SparseDataset:
        """Return the dataset at a path, or create a missing dataset.

        Raises `WrongType` if the existing dataset has another shape, or a dtype that cannot hold all values of `dtype`;
        with `exact`, its dtype must equal `dtype`.

        >>> f.require_dataset("X", (4, 3), "f2") == X, f.require_dataset("new", (5,), "i4").shape
        (True, (5,))
        """
        if path not in self:
            return self.create_dataset(path, shape, dtype, data, maxshape=maxshape)
        found, wanted = self[path], np.dtype(dtype)
        if not isinstance(found, DenseDataset | SparseDataset):
            raise WrongType(f"{found.name} is a {type(found).__name__}: give the path of a dataset.")
        if found.shape != shape_tuple(shape):
            raise WrongType(
                f"{found.name} has the shape {list(found.shape)}, not {list(shape_tuple(shape))}."
            )
        if found.dtype != wanted if exact else not np.can_cast(wanted, found.dtype):
            raise WrongType(f"{found.name} has values of {found.dtype}, not of {wanted}.")
        return found

    def get(self, path: str, default: Any = None, getclass: bool = False, getlink: bool = False) -> Any:
        """Return the object at a path, or `default` if there is none; `getclass` returns its class, `getlink` its link.

        >>> f["newest"] = hsparse.SoftLink("/X")
        >>> f.get("newest", getlink=True), f.get("newest").shape, f.get("none")
        (SoftLink(path='/X'), (4, 3), None)
        >>> f.get("X", getclass=True).__name__
        'SparseDataset'
        """
        try:
            found = self._link(path) if getlink else self[path]
        except UNREACHABLE:
            return default
        return type(found) if getclass else found

    def __setitem__(self, path: str, value: Member | SoftLink | ExternalLink | Values) -> None:
        """Store a value at a path: an object or a link (also of h5py) is linked; an array becomes a new dataset.

        A sparse array (of scipy, or `sparse.COO`) becomes a sparse dataset, see `hsparse.from_scipy`; any other array
        becomes a dense dataset. Data frames, categoricals, dicts and columns of a data frame are stored in AnnData's
        file format. A data frame replaces an existing data frame with the same number of rows.

        >>> f["times"] = [0.5, 1.5]
        >>> f["same"] = f["times"]
        >>> f["same"][:]
        array([0.5, 1.5])
        >>> import scipy.sparse
        >>> f["counts"] = scipy.sparse.eye_array(3, format="csr")
        >>> f["counts"].nnz
        3
        """
        value = cast("Member | SoftLink | ExternalLink | Values", own_link(value))
        if isinstance(value, SoftLink):
            link: Json = {"h5path": value.path}
        elif isinstance(value, ExternalLink):
            link = {"h5path": value.path, "h5domain": value.domain}
        elif isinstance(value, Group | DenseDataset | SparseDataset | NamedType):
            link = {"id": value.id}
        elif (frame := self._frame_of(path)) is not None or has_own_form(value):
            ASSIGNMENT.load().assign_element(self, path, value, frame)
            return
        elif sparse_values(value) is not None:
            FROM_SCIPY.load().from_scipy(self, path, value)
            return
        else:
            self.create_dataset(path, data=cast(ArrayLike, value))
            return
        self._put_link(path, link)

    def __delitem__(self, path: str) -> None:
        """Remove the link at a path; the object is deleted only if no other link leads to the object.

        >>> del f["X"]
        >>> list(f)
        []
        """
        parent, title = self._place(path)
        if not parent._has_link(title):
            raise MissingKey(f"{parent.name} has no link {title!r}.")
        if (frame := self._frame_of(path)) is not None:
            ASSIGNMENT.load().remove_column(frame, title)
        self.connection.json("DELETE", f"/groups/{parent.id}/links", titles=title, separator="\0")

    def move(self, source: str, dest: str) -> None:
        """Move the link at `source` to `dest`; the object and all other links to the object are unchanged.

        >>> f.move("X", "raw/X")
        >>> list(f), f["raw/X"].shape
        (['raw'], (4, 3))
        """
        parent, title = self._place(source)
        link = parent._links().get(title)
        if link is None:
            raise MissingKey(f"{parent.name} has no link {title!r}.")
        self._put_link(dest, link_body(link))
        del parent[title]

    def copy(
        self,
        source: str | Group | DenseDataset | SparseDataset,
        dest: str | Group,
        name: str | None = None,
        *,
        shallow: bool = False,
        without_attrs: bool = False,
    ) -> None:
        """Copy an object, with all objects below, to a path or into a group; the group may be in another file.

        Values pass through the client in blocks; soft and external links are copied as links. With `shallow`, only the
        direct members of a group are copied. Raises `AlreadyExists` if the target path exists.

        >>> f.copy("X", "backup/X")
        >>> f["backup/X"].nnz
        4
        """
        found = self[source] if isinstance(source, str) else source
        target = dest if isinstance(dest, Group) else self
        path = name or (dest if isinstance(dest, str) else (found.name or "").rpartition("/")[2])
        target._copy(found, path, shallow=shallow, with_attributes=not without_attrs)
        if (frame := target._frame_of(path)) is not None:
            ASSIGNMENT.load().add_column(frame, path.rpartition("/")[2])

    def _copy(self, source: Member, path: str, *, shallow: bool, with_attributes: bool) -> None:
        attributes = {"attributes": source.attrs.bodies()} if with_attributes else {}
        if isinstance(source, NamedType):
            self.create_object("datatypes", path, {"type": source.item} | attributes)
        elif not isinstance(source, Group):
            COPY.load().copy_dataset(source, self, path, attributes)
        else:
            links = source.links()  # listed before the copy is added, which may be inside its source
            record, whole = self.create_object("groups", path, attributes)
            made = Group(self.connection, record, whole, self._labels_of)
            for title, link in links.items():
                if "id" not in link:
                    made._put_link(title, link_body(link))
                elif shallow and isinstance(member := source[title], Group):
                    made.create_object("groups", title, {"attributes": member.attrs.bodies()})
                else:
                    made._copy(source[title], title, shallow=shallow, with_attributes=with_attributes)

    def visit(self, visitor: Callable[[str], T | None]) -> T | None:
        """Call `visitor(path)` once for each object below the group, until a result is not None; return that result.

        >>> f["runs/1"] = [1, 2]
        >>> f.visit(print)
        X
        runs
        runs/1
        """
        return self.visititems(lambda path, _: visitor(path))

    def visititems(self, visitor: Callable[[str, Member], T | None]) -> T | None:
        """Call `visitor(path, object)` for each object below the group, until a result is not None; return it.

        One request reads all records. Soft and external links are not followed.

        >>> f["runs/1"] = [1, 2]
        >>> f.visititems(lambda path, member: path if isinstance(member, hsparse.DenseDataset) else None)
        'runs/1'
        """
        seen = {self.id}
        records = ObjectRecords(self.connection, self.id, self.name, hard_only=True).read()
        for path, record in sorted(records.items(), key=lambda one: one[0].split("/")):
            if record["id"] in seen:
                continue
            seen.add(record["id"])
            member = make_member(self.connection, record, self._whole(path), self._labels_of)
            if (found := visitor(path, member)) is not None:
                return found
        return None

    def tree(self) -> str:
        """Return a text with the tree of objects below the group, with their shapes and dtypes; sends one request.

        >>> f["runs/1"] = [1, 2]
        >>> print(f.tree())
        /
          X  (4, 3) float32, sparse
          runs/
            1  (2,) int64
        """
        text: str = TREE.load().tree_text(self.name, self.records())
        return text

    def links(self) -> dict[str, Json]:
        """Return a dict that maps the name of each link of the group to the link as HDF5/JSON.

        >>> f["newest"] = hsparse.SoftLink("/X")
        >>> {name: link["class"] for name, link in f.links().items()}
        {'X': 'H5L_TYPE_HARD', 'newest': 'H5L_TYPE_SOFT'}
        """
        return self._links()

    def records(self) -> dict[str, Json]:
        """Return a dict that maps the path of each object below the group to its record, with attributes.

        An object is listed once for each path that leads to it, even through soft and external links. Sends one
        request, and one more for each external link. Omits dangling links and links to objects the user may not read.

        >>> f["runs/1"] = [1, 2]
        >>> {path: record["id"][0] for path, record in f.records().items()}
        {'X': 'd', 'runs': 'g', 'runs/1': 'd'}
        """
        return ObjectRecords(self.connection, self.id, self.name).read()

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

    def _place(self, path: str, *, create: bool = False) -> tuple[Group, str]:
        """Return a pair for a path: the group that has the link, created if missing with `create`; the link's name."""
        above, _, title = self._whole(path).rstrip("/").rpartition("/")
        if above == self.name.rstrip("/"):
            return self, title
        parent = self.require_group(above) if create and above else self[above or "/"]
        if not isinstance(parent, Group):
            raise MissingKey(f"{above} is a {type(parent).__name__}: only a group can have members.")
        return parent, title

    def _link(self, path: str) -> Link:
        parent, title = self._place(path)
        link = parent._links().get(title)
        if link is None:
            raise MissingKey(f"{parent.name} has no link {title!r}.")
        return link_of(link)

    def _put_link(self, path: str, link: Json) -> None:
        parent, title = self._place(path, create=True)
        try:
            self.connection.json("PUT", f"/groups/{parent.id}/links", {"links": {title: link}})
        except Conflict as error:
            raise AlreadyExists(error.message) from error
        if (frame := self._frame_of(path)) is not None:
            ASSIGNMENT.load().add_column(frame, title)


class MemberItems(ItemsView[str, Any]):
    """The pairs of names and members of a group; the member of a dangling link is None."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._group = group

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name in self._group:
            yield name, self._group.get(name)


class MemberValues(ValuesView[Any]):
    """The members of a group; the member of a dangling link is None."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._group = group

    def __iter__(self) -> Iterator[Any]:
        for name in self._group:
            yield self._group.get(name)


def has_own_form(value: Any) -> bool:
    """Return whether a value must be stored in AnnData's file format: a dict, or a value of pandas or anndata."""
    module, name = type(value).__module__.partition(".")[0], type(value).__name__
    is_array = module == "pandas" and (name == "Series" or name.endswith("Index"))
    return isinstance(value, Mapping) or module == "anndata" or (module == "pandas" and not is_array)


def make_member(connection: Connection, record: Json, path: str, labels_of: LabelsOf | None = None) -> Member:
    """Return the object that a record describes: a group, a dataset or a committed datatype.

    The target of an external link gets a connection to its own domain, and its path in that domain. `labels_of(path)`
    returns the labels of a sparse dataset.
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
