"""The objects of an HDF5 file, by the addresses of their headers, with their ids on the server.

An id is computed from the file and the address, so that a resumed import finds the objects that exist already. Groups
that are sparse matrices become datasets: those of AnnData (`encoding-type`, and the older `h5sparse_format`) and of
Binsparse.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html, https://graphblas.org/binsparse-specification
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from hsparse.errors import Conflict, HsparseError, StoreFailed, Unsupported
from hsparse.format.filters.pipeline import CODECS, filter_name
from hsparse.hdf5.format.file_fields import encode_name
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.file_type import names_of_enum
from hsparse.hdf5.format.messages.group_messages import ExternalLink, HardLink, LinkMessage, SoftLink
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget, check_readable, parse_elements
from hsparse.hdf5.format.parse.parsed_object import (
    ObjectKind,
    ParsedAttribute,
    ParsedDataset,
    ParsedObject,
    carried_object,
    parse_object,
)
from hsparse.hdf5.format.plan.dataset_plan import BOOLEAN
from hsparse.hdf5.format.plan.domain_plan import DEFINED, REFERENCE_TYPE
from hsparse.hdf5.format.plan.file_plan import MAX_SIZE, Json, user_block_json
from hsparse.hdf5.format.plan.matrix_encoding import (
    ANNDATA_KINDS,
    BINSPARSE,
    BINSPARSE_KINDS,
    ENCODING_TYPE,
    OLD_FORMAT,
    OLD_SHAPE,
)
from hsparse.hdf5.format.superblock import read_superblock
from hsparse.hdf5.importer.source import Source, path_in_errors
from hsparse.hdf5.importer.source_files import NO_FILES, SourceFiles
from hsparse.model.dataspace import dims_of
from hsparse.model.element import element_of
from hsparse.model.ids import collection_of, derived_id
from hsparse.model.json_values import to_json

COLLECTIONS = {
    ObjectKind.GROUP: "groups",
    ObjectKind.DATASET: "datasets",
    ObjectKind.DATATYPE: "datatypes",
}


ALL_MATRICES = ("csr", "csc", "coo")
"""All kinds of sparse matrices."""


@dataclass(frozen=True, slots=True)
class FileObject:
    """An object: the first of its paths, its kind, its id, and its extent if it is a dataset.

    `matrix` is set for a group that becomes a sparse dataset, `defined` for a dataset that becomes one.
    """

    address: int
    path: str
    kind: ObjectKind
    id: str
    dims: tuple[int, ...] = ()
    matrix: MatrixForm | None = None
    defined: DefinedSet | None = None


def is_ordered(stored: ParsedObject) -> bool:
    """Say whether the order of creation of links or attributes is tracked."""
    orders = [*(one.order for one in stored.links), *(one.order for one in stored.attributes)]
    return stored.header.attribute_order or any(order is not None for order in orders)


def check_names(stored: ParsedObject) -> None:
    """Raise `Unsupported` for a name of a link or an attribute that JSON cannot contain."""
    names = [*(link.name for link in stored.links), *(one.name for one in stored.attributes)]
    for name in names:
        if not is_utf8_name(name):
            raise Unsupported(
                f"The name {encode_name(name)!r} is no UTF-8: rename what has it (H5Lmove, H5Arename)."
            )


def check_stored(stored: ParsedObject) -> None:
    """Raise `Unsupported` for a type or a filter that no server has."""
    kind = stored.type if stored.dataset is None else stored.dataset.type
    if kind is not None:
        check_readable(kind)
    unknown = (
        [] if stored.dataset is None else [one for one in stored.dataset.pipeline if one.id not in CODECS]
    )
    if unknown:
        raise Unsupported(
            f"The filter {filter_name(unknown[0].id)} is not available: rewrite the file with another "
            "(h5repack -f GZIP=4, where that filter's plugin is installed), and import that."
        )


def is_utf8_name(name: str) -> bool:
    """Say whether a name was UTF-8 in the file; other bytes are surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


class FileObjects:
    """All objects of a file that are reachable by links. `find` resolves references."""

    def __init__(
        self,
        source: Source,
        root: str,
        *,
        matrices: Collection[str],
        files: SourceFiles | None = None,
        matrix_chunk: tuple[int, ...] = (),
        strict: bool = False,
        copied: bool = False,
        damaged: bool = False,
        known: Sequence[FileObject] = (),
    ) -> None:
        """Walk the file, whose root group becomes `root`; raise `Corrupt` and `Unsupported`, with the path.

        Groups that are sparse matrices of the kinds `matrices` become datasets, and their members are left out; with
        any, datasets with a defined set become sparse ones, and the set is left out. Without
        `files`, no other file is read. `matrix_chunk` are the chunk dimensions of those matrices, if not chosen.
        With `copied`, all stays as it is; otherwise what no server can have is left out, with the reason in `skipped`,
        or with `strict` raises `Unsupported`. With `damaged`, so is what cannot be read, but for the root group.
        A file that was walked before is not if its objects are `known`.
        """
        self.source = source
        self.files = files or NO_FILES
        self.matrix_chunk = matrix_chunk
        with path_in_errors(source.name):
            self.file: Hdf5File = source.run(read_superblock(source.size))
        self.by_address: dict[int, FileObject] = {}
        self.skipped: dict[str, str] = {}
        self.refiltered: dict[str, str] = {}
        """What becomes of the filters of datasets that the server stores through others."""
        self.external: dict[str, ExternalLink] = {}
        self.lost = 0
        self._strict = strict
        self._copied = copied
        self._left_out = (HsparseError,) if damaged else (Unsupported,)
        self.failed: dict[int, str] = {}
        """Why objects are left out, by the addresses of their headers."""
        self.is_ordered = False
        self._root = root
        if known:
            self.by_address = {one.address: one for one in known}
        else:
            self._walk(matrices)

    def of(self, kind: ObjectKind) -> list[FileObject]:
        """Return the objects of a kind; groups that become sparse datasets are left out."""
        return [one for one in self.by_address.values() if one.kind == kind and one.matrix is None]

    def matrices(self) -> list[FileObject]:
        """Return the groups that become sparse datasets."""
        return [one for one in self.by_address.values() if one.matrix is not None]

    def read(self, one: FileObject) -> ParsedObject:
        """Read an object: its header, and the messages and links that it leads to."""
        found = self._parsed(one.address, one.path)
        if one.defined is None:
            return found
        return replace(
            found, attributes=tuple(x for x in found.attributes if x.name != one.defined.attribute)
        )

    def user_block(self) -> Json | None:
        """Return the user block as a creation property, None without one; one that is too long is left out."""
        if not self.file.base:
            return None
        found = user_block_json(self.source.read(0, self.file.base)) if self.file.base <= MAX_SIZE else None
        if found is None:
            self._skip(
                "user block", Unsupported(f"It has {self.file.base} bytes, more than a domain can keep.")
            )
        return found

    def keeps(self, link: LinkMessage) -> bool:
        """Say whether a link is imported: not if what it leads to was left out, or a program defines its class."""
        target = link.target
        if isinstance(target, HardLink):
            return target.address in self.by_address
        return isinstance(target, SoftLink | ExternalLink)

    def find(self, address: int) -> ReferenceTarget | None:
        """Return the target of a reference to an address; None, counted in `lost`, if no link leads there."""
        one = self.by_address.get(address)
        if one is None:
            self.lost += 1
            return None
        return ReferenceTarget(f"{collection_of(one.id)}/{one.id}", one.dims)

    def _walk(self, matrices: Collection[str]) -> None:
        ahead = [("/", self.file.root)]
        while ahead:
            path, address = ahead.pop()
            if address in self.by_address or address in self.failed:
                continue
            try:
                with path_in_errors(path):
                    found = self._parsed(address, path)
                    check_names(found)
                    if not self._copied:
                        check_stored(found)
            except (StoreFailed, Conflict):
                raise
            except self._left_out as error:
                if address == self.file.root:
                    raise
                self._skip(path, error)
                self.failed[address] = self.skipped[path]
                continue
            self._note_links(path, found)
            if address == self.file.root:
                self.is_ordered = is_ordered(found)
            matrix = None
            if matrices and address != self.file.root and found.kind == ObjectKind.GROUP:
                matrix = find_matrix(self.source, self.file, found)
                matrix = matrix if matrix is not None and matrix.kind in matrices else None
            defined = find_defined_set(self.source, self.file, found) if matrices else None
            dims = dims_of(found.dataset.shape) or () if found.dataset is not None else ()
            dims = dims if matrix is None else matrix.shape
            id = self._id(address, "datasets" if matrix is not None else COLLECTIONS[found.kind])
            self.by_address[address] = FileObject(address, path, found.kind, id, dims, matrix, defined)
            if matrix is None:
                parent = path.rstrip("/")
                ahead += [
                    (f"{parent}/{link.name}", link.target.address)
                    for link in reversed(found.links)
                    if isinstance(link.target, HardLink)
                ]
        for beside in {one.defined.address for one in self.by_address.values() if one.defined is not None}:
            self.by_address.pop(beside, None)

    def _parsed(self, address: int, path: str) -> ParsedObject:
        """Read an object, without attributes of types that no server has."""
        found = self.source.run(parse_object(self.file, address))
        if self._copied:
            return found
        found = carried_object(found)
        kept = []
        for one in found.attributes:
            try:
                check_readable(one.type)
            except Unsupported as error:
                self._skip(f"{path} (attribute {one.name})", error)
            else:
                kept.append(one)
        return found if len(kept) == len(found.attributes) else replace(found, attributes=tuple(kept))

    def _note_links(self, path: str, found: ParsedObject) -> None:
        parent = path.rstrip("/")
        for link in found.links:
            if isinstance(link.target, ExternalLink):
                self.external[f"{parent}/{link.name}"] = link.target
            elif not isinstance(link.target, HardLink | SoftLink):
                reason = (
                    "Programs define the class of this link: delete it from the file, or make it a soft link."
                )
                self._skip(f"{parent}/{link.name}", Unsupported(reason))

    def _skip(self, path: str, error: HsparseError) -> None:
        text = error.message if error.message.startswith(f"{path}: ") else f"{path}: {error.message}"
        if self._strict:
            raise Unsupported(text)
        self.skipped[path] = text

    def _id(self, address: int, collection: str) -> str:
        if address == self.file.root:
            return self._root
        return derived_id(collection, self._root, sha256(b"%d" % address).digest())


@dataclass(frozen=True, slots=True)
class MatrixForm:
    """A matrix of `shape`: `kind` is csr, csc or coo. The other fields are addresses of datasets.

    `indices` has the column (csr), the row (csc) or both (coo) of each element, `pointers` the start of each row or
    column. `iso`: all elements have the same value.
    """

    kind: str
    shape: tuple[int, int]
    values: int
    indices: tuple[int, ...]
    pointers: int | None = None
    iso: bool = False
    fill: int | None = None


def find_matrix(source: Source, file: Hdf5File, stored: ParsedObject) -> MatrixForm | None:
    """Return the form of a group that is a matrix, None for other groups and unknown forms."""
    attributes = {one.name: one for one in stored.attributes}
    members = {link.name: link.target.address for link in stored.links if isinstance(link.target, HardLink)}

    def value(name: str) -> Any:
        return _value(source, file, attributes[name]) if name in attributes else None

    try:
        if BINSPARSE in attributes:
            return _binsparse(json.loads(value(BINSPARSE)), members)
        kind = ANNDATA_KINDS.get(value(ENCODING_TYPE) or value(OLD_FORMAT))
        shape = value("shape") or value(OLD_SHAPE)
        if kind is None:
            return None
        return MatrixForm(kind, _shape(shape), members["data"], (members["indices"],), members["indptr"])
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class DefinedSet:
    """Which elements of a dataset are defined: a dataset of booleans, at `address`, that `attribute` leads to."""

    attribute: str
    address: int


def find_defined_set(source: Source, file: Hdf5File, stored: ParsedObject) -> DefinedSet | None:
    """Return the defined set of a dataset that was sparse, None for others.

    An attribute of that name that leads to no booleans of the same extent and chunks is the user's own.
    """
    if stored.dataset is None or not isinstance(stored.dataset.layout, ChunkedLayout):
        return None
    named = [one for one in stored.attributes if one.name.rstrip("_") == DEFINED]
    for one in sorted(named, key=lambda one: len(one.name), reverse=True):
        if one.type.item == REFERENCE_TYPE and dims_of(one.shape) == ():
            found: list[int] = []
            _value(source, file, one, found.append)
            if found and _is_defined_set(source, file, stored.dataset, found[0]):
                return DefinedSet(one.name, found[0])
    return None


def _is_defined_set(source: Source, file: Hdf5File, values: ParsedDataset, address: int) -> bool:
    try:
        beside = source.run(parse_object(file, address))
    except HsparseError:
        return False
    one = beside.dataset
    if one is None or beside.attributes or not isinstance(one.layout, ChunkedLayout):
        return False
    assert isinstance(values.layout, ChunkedLayout)
    same = dims_of(one.shape) == dims_of(values.shape) and one.layout.dims == values.layout.dims
    is_enum = one.type.item["class"] == BOOLEAN["class"] and one.type.size == 1
    return same and is_enum and names_of_enum(one.type.item) == names_of_enum(BOOLEAN)


def _binsparse(described: Any, members: dict[str, int]) -> MatrixForm | None:
    described = described.get(BINSPARSE, described)
    kind = BINSPARSE_KINDS.get(described["format"])
    types = described["data_types"]
    name = types["values"]
    iso = name.startswith("iso[")
    if kind is None or "complex" in name or described.get("structure", "general") != "general":
        return None
    shape, values = _shape(described["shape"]), members["values"]
    fill = members["fill_value"] if described.get("fill") is True else None
    if kind == "coo":
        return MatrixForm(kind, shape, values, (members["indices_0"], members["indices_1"]), None, iso, fill)
    return MatrixForm(kind, shape, values, (members["indices_1"],), members["pointers_to_1"], iso, fill)


def _shape(value: Any) -> tuple[int, int]:
    rows, columns = map(int, value)
    if min(rows, columns) < 1:
        raise ValueError("a matrix without elements stays what it is")
    return rows, columns


def _value(
    source: Source, file: Hdf5File, one: ParsedAttribute, find: Callable[[int], None] = lambda _: None
) -> Any:
    """Return an attribute's value, None if it is unreadable; `find` is called with the addresses in it."""
    try:
        reads = parse_elements(file, one.type, one.data, dims_of(one.shape) or (), find)
        return to_json(source.run(reads), element_of(one.type.item))
    except HsparseError:
        return None  # an unreadable attribute describes no matrix
