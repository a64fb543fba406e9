"""Find the objects of an HDF5 file by following its links, and give the objects ids for the server.

An id is derived from the root group's id and the object's address, so that a resumed import finds objects that exist
already. Groups that are sparse matrices become datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from threading import RLock
from typing import TypeAlias

from hsparse.errors import Conflict, HsparseError, StoreFailed, Unsupported
from hsparse.format.filters.pipeline import CODECS, filter_name
from hsparse.hdf5.format.file_fields import encode_name
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.lower_bounds import LOWER
from hsparse.hdf5.format.messages.group_messages import (
    LinkMessage,
    StoredExternalLink,
    StoredHardLink,
    StoredSoftLink,
)
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget, check_readable
from hsparse.hdf5.format.parse.parsed_object import (
    ObjectKind,
    ParsedObject,
    carried_object,
    parse_object,
)
from hsparse.hdf5.format.plan.file_plan import MAX_SIZE, Json, user_block_json
from hsparse.hdf5.format.superblock import read_superblock
from hsparse.hdf5.importer.matrix_forms import (
    EVENTS,
    DefinedSet,
    FramesForm,
    MatrixForm,
    counts_name,
    find_defined_set,
    find_events,
    find_frames,
    find_matrix,
)
from hsparse.hdf5.importer.source import InputFile, path_in_errors
from hsparse.hdf5.importer.source_files import NO_FILES, SourceFiles
from hsparse.model.dataspace import dims_of
from hsparse.model.ids import collection_of, derived_id

COLLECTIONS = {
    ObjectKind.GROUP: "groups",
    ObjectKind.DATASET: "datasets",
    ObjectKind.DATATYPE: "datatypes",
}


OWN_CLASS = "The link is user-defined, which is not supported: delete it, or replace it by a soft link."
MOST_WALKED = 4096
"""The maximum number of parsed objects that the walk caches until `read` returns them."""
ALL_MATRICES = ("csr", "csc", "coo", "frames")
"""All kinds of groups that become sparse datasets: matrices (csr, csc, coo), and frames of pixels."""
SHIFTED = ("shifted",)
"""A value of `matrices` with which no group becomes a matrix, and only datasets with a lower bound become sparse.

Exports write a sparse dataset with a lower bound only as a dataset with a defined set.
"""


@dataclass(frozen=True, slots=True)
class FileObject:
    """An object of a file: the first path found, the kind, the id, and the extent if it is or becomes a dataset.

    `matrix` is set for a group that becomes a sparse dataset, `defined` or `frames` for a dataset that becomes sparse.
    The sparse dataset made of a group's event columns has the address `~group`, and the group has a link to it.
    """

    address: int
    path: str
    kind: ObjectKind
    id: str
    dims: tuple[int, ...] = ()
    matrix: MatrixForm | None = None
    defined: DefinedSet | None = None
    frames: FramesForm | None = None


def is_matrix(one: FileObject) -> bool:
    """Return whether an object becomes a sparse dataset that combines several datasets of the file."""
    return one.matrix is not None or one.frames is not None


def is_ordered(stored: ParsedObject) -> bool:
    """Return whether an object tracks the creation order of links or attributes."""
    orders = [*(one.order for one in stored.links), *(one.order for one in stored.attributes)]
    return stored.header.attribute_order or any(order is not None for order in orders)


def check_names(stored: ParsedObject) -> None:
    """Raise `Unsupported` if the name of a link or attribute is not UTF-8."""
    names = [*(link.name for link in stored.links), *(one.name for one in stored.attributes)]
    for name in names:
        if not is_utf8_name(name):
            raise Unsupported(
                f"The name {encode_name(name)!r} is not UTF-8: rename the link or attribute (H5Lmove, H5Arename)."
            )


def check_stored(stored: ParsedObject) -> None:
    """Raise `Unsupported` if hsparse does not support the type or a filter of an object."""
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
    """Return whether a name was valid UTF-8 in the file; invalid bytes were decoded as surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


class FileObjects:
    """The objects of a file that are reachable by hard links. `find` resolves references."""

    def __init__(
        self,
        source: InputFile,
        root: str,
        *,
        matrices: Collection[str],
        look: Look | None = None,
        files: SourceFiles | None = None,
        matrix_chunk: tuple[int, ...] = (),
        strict: bool = False,
        copied: bool = False,
        damaged: bool = False,
        known: Sequence[FileObject] = (),
        most: int | None = None,
        digest: Digest = lambda address: sha256(b"%d" % address).digest(),
    ) -> None:
        """Walk the file from its root group, which gets the id `root`; raises `Corrupt` and `Unsupported`.

        Groups that are sparse matrices of the kinds `matrices` become datasets without their members. If `matrices` is
        not empty, datasets with a defined set become sparse. `look(self, form)` returns the form to use for a matrix;
        if it raises, the group stays a group. `matrix_chunk` are chunk dimensions of matrices (default: chosen later).
        Without `files`, no other file is read. With `strict`, an object that hsparse cannot represent is an error;
        otherwise it is skipped, with the reason in `skipped`. `damaged` also skips unreadable objects, except
        the root. `copied` keeps unsupported types and filters. If the objects are `known` from a previous walk, the
        file is not walked. A walk stops when more than `most` objects are known; `at` then finds more on request.
        `digest` encodes an object's address for its id.
        """
        self.source = source
        self.files = files or NO_FILES
        self.matrix_chunk = matrix_chunk
        with path_in_errors(source.name):
            self.file: Hdf5File = source.run(read_superblock(source.size))
        self.by_address: dict[int, FileObject] = {}
        self.skipped: dict[str, str] = {}
        self.refiltered: dict[str, str] = {}
        """Maps paths of datasets to descriptions of the filters that the import replaces by other filters."""
        self.external: dict[str, StoredExternalLink] = {}
        self.lost = 0
        self.kept: dict[str, tuple[int, int]] = {}
        """Maps the path of each dense dataset that becomes sparse to its numbers of kept and of all elements."""
        self._strict = strict
        self._copied = copied
        self._left_out = (HsparseError,) if damaged else (Unsupported,)
        self.failed: dict[int, str] = {}
        """Maps the address of each skipped object to the reason."""
        self.is_ordered = False
        self._walked: dict[int, ParsedObject] = {}
        """Maps addresses to parsed objects, which the walk caches until `read` returns them."""
        self._root = root
        self._look: Look = look or (lambda _, form: form)
        self._matrices = matrices
        self._digest = digest
        self._frames: list[FramesForm] = []
        self._beside: set[int] = set()
        """The addresses of defined sets, which are imported as a part of their sparse datasets."""
        self._ahead = [("/", self.file.root)]
        self._entered: set[int] = set()
        """The addresses of objects that the walk has visited; links of these objects are in `_ahead`, or done."""
        self._lock = RLock()
        self.is_whole = bool(known)
        """Whether the walk has ended, so that `by_address` has all objects."""
        if known:
            self.by_address = {one.address: one for one in known}
        else:
            self.walk(most)

    def of(self, kind: ObjectKind) -> list[FileObject]:
        """Return the objects of a kind, except the objects that `matrices` returns."""
        return [one for one in self.by_address.values() if one.kind == kind and not is_matrix(one)]

    def matrices(self) -> list[FileObject]:
        """Return the objects that become sparse datasets made of several datasets: matrix groups and frames."""
        return list(filter(is_matrix, self.by_address.values()))

    def read(self, one: FileObject) -> ParsedObject:
        """Parse an object; its attributes or links are adapted if it becomes sparse, or gets a dataset of events."""
        if one.address < 0:
            group = self._parsed(~one.address, one.path)
            header = replace(group.header, address=one.address)
            return replace(group, header=header, kind=one.kind, attributes=(), links=())
        found = self._walked.pop(one.address, None) or self._parsed(one.address, one.path)
        if ~one.address in self.by_address or ~one.address in self.failed:
            counts = LinkMessage(counts_name(found.links), StoredHardLink(~one.address))
            return replace(found, links=(*found.links, counts))
        if one.defined is None:
            return found
        return replace(
            found, attributes=tuple(x for x in found.attributes if x.name != one.defined.attribute)
        )

    def user_block(self) -> Json | None:
        """Return the user block as a creation property, or None if the file has no user block or it is too large."""
        if not self.file.base:
            return None
        found = user_block_json(self.source.read(0, self.file.base)) if self.file.base <= MAX_SIZE else None
        if found is None:
            self._skip(
                "user block", Unsupported(f"It has {self.file.base} bytes, more than a domain can keep.")
            )
        return found

    def why_left_out(self, link: LinkMessage) -> str:
        """Return the reason why a link or its target is skipped, or "" if neither is skipped."""
        match link.target:
            case StoredHardLink(address):
                return self.failed.get(address, "")
            case StoredSoftLink() | StoredExternalLink():
                return ""
        return f"{link.name}: {OWN_CLASS}"

    def find(self, address: int) -> ReferenceTarget | None:
        """Return the target of a reference to `address`, or None if no such object is imported; `lost` counts these.

        Until all objects are known, any object at the address is accepted, even if no link leads to the object.
        """
        one = self.at(address)
        if one is None:
            self.lost += 1
            return None
        return ReferenceTarget(f"{collection_of(one.id)}/{one.id}", one.dims)

    def at(self, address: int, path: str = "") -> FileObject | None:
        """Return the object at an address, or None if it is missing or skipped. `path` is its path, if known."""
        with self._lock:
            one = self.by_address.get(address)
            if one is None and not self.is_whole and address >= 0:
                self._meet(name := path or f"(object at address {address})", address)
                one = self.by_address.get(address)
                if one is None and not path:  # perhaps no object at all: do not remember the failure
                    self.failed.pop(address, None)
                    self.skipped.pop(name, None)
            return None if one is None or address in self._beside else one

    def walk(self, most: int | None = None) -> None:
        """Find all objects that hard links lead to; with `most`, stop when more than `most` objects are known."""
        while not self.is_whole and (most is None or len(self._ahead) + len(self.by_address) <= most):
            with self._lock:
                if self._ahead:
                    self._enter(*self._ahead.pop())
                else:
                    self._leave_places_out(self._frames)
                    self.is_whole = True

    def _enter(self, path: str, address: int) -> None:
        """Add an object, and add the targets of its hard links to `_ahead`, the list of objects to visit."""
        if address in self._entered:
            return
        self._entered.add(address)
        found = self._meet(path, address)
        one = self.by_address.get(address)
        if one is None or one.kind != ObjectKind.GROUP or one.matrix is not None:
            return
        parent = path.rstrip("/")
        links = (found or self._parsed(address, path)).links
        self._ahead += [
            (f"{parent}/{link.name}", link.target.address)
            for link in reversed(links)
            if isinstance(link.target, StoredHardLink)
        ]

    def _meet(self, path: str, address: int) -> ParsedObject | None:
        """Add an object, or the reason why it is skipped; return the parsed object if it was added now, else None."""
        if address in self.by_address or address in self.failed:
            return None
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
            return None
        if len(self._walked) < MOST_WALKED:
            self._walked[address] = found
        self._note_links(path, found)
        if address == self.file.root:
            self.is_ordered = is_ordered(found)
        matrix, defined, columns = self._forms(path, found, self._matrices)
        self._frames += columns
        self._beside |= set() if defined is None else {defined.address}
        dims = dims_of(found.dataset.shape) or () if found.dataset is not None else ()
        dims = dims if matrix is None else matrix.shape
        id = self.id_at(address, "datasets" if matrix is not None else COLLECTIONS[found.kind])
        self.by_address[address] = FileObject(address, path, found.kind, id, dims, matrix, defined)
        if matrix is None and EVENTS in self._matrices and found.kind == ObjectKind.GROUP:
            self._count_events(path, found)
        return found

    def _forms(
        self, path: str, found: ParsedObject, matrices: Collection[str]
    ) -> tuple[MatrixForm | None, DefinedSet | None, list[FramesForm]]:
        """Return a triple: a group's matrix form or None, a dataset's defined set or None, and a group's frames."""
        if not matrices:
            return None, None, []
        if found.kind != ObjectKind.GROUP:
            if matrices == SHIFTED and all(one.name != LOWER for one in found.attributes):
                return None, None, []
            return None, find_defined_set(self.source, self.file, found), []
        is_root = found.header.address == self.file.root
        matrix = None if is_root else find_matrix(self.source, self.file, found)
        if matrix is not None and matrix.kind in matrices:
            looked = self._looked_at(path, lambda: matrix)
            if looked is not None:
                return looked, None, []
        return None, None, find_frames(self.source, self.file, found) if "frames" in matrices else []

    def _looked_at(self, path: str, find: Callable[[], MatrixForm | None]) -> MatrixForm | None:
        """Return the matrix form that `look` chooses; if an error is raised, record it in `skipped` and return None."""
        try:
            with path_in_errors(path):
                form = find()
                return form and self._look(self, form)
        except (StoreFailed, Conflict):
            raise
        except HsparseError as error:
            self._skip(path, error)
            return None

    def _count_events(self, path: str, found: ParsedObject) -> None:
        """Add the sparse dataset of a group's event columns, or the reason why the columns cannot become a dataset."""
        beside = f"{path.rstrip('/')}/{counts_name(found.links)}"
        address = ~found.header.address
        form = self._looked_at(beside, lambda: find_events(self.source, self.file, found))
        if form is not None:
            id = self.id_at(address, "datasets")
            self.by_address[address] = FileObject(address, beside, ObjectKind.DATASET, id, form.shape, form)
        elif beside in self.skipped:
            self.failed[address] = self.skipped[beside]

    def _leave_places_out(self, frames: list[FramesForm]) -> None:
        """Turn the values of frames into sparse datasets; remove index columns and defined sets from the objects."""
        beside = {one.defined.address for one in self.by_address.values() if one.defined is not None}
        for form in frames:
            if {form.values, *form.places} <= {*self.by_address}:
                one = self.by_address[form.values]
                self.by_address[form.values] = replace(one, dims=form.shape, defined=None, frames=form)
                beside |= form.places
        for address in beside:
            self.by_address.pop(address, None)

    def _parsed(self, address: int, path: str) -> ParsedObject:
        """Parse an object; skip its attributes of unsupported types."""
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
            if isinstance(link.target, StoredExternalLink):
                file = self.files.domain(link.target.file, self.source.name)
                self.external[f"{parent}/{link.name}"] = replace(link.target, file=file)
            elif not isinstance(link.target, StoredHardLink | StoredSoftLink):
                self._skip(f"{parent}/{link.name}", Unsupported(OWN_CLASS))

    def _skip(self, path: str, error: HsparseError) -> None:
        text = error.message if error.message.startswith(f"{path}: ") else f"{path}: {error.message}"
        if self._strict:
            raise Unsupported(text)
        self.skipped[path] = text

    def id_at(self, address: int, collection: str) -> str:
        """Return the id of the object at an address; `collection` is groups, datasets or datatypes."""
        if address == self.file.root:
            return self._root
        return derived_id(collection, self._root, self._digest(address))


Digest: TypeAlias = Callable[[int], bytes]
Look: TypeAlias = Callable[[FileObjects, MatrixForm], MatrixForm]
