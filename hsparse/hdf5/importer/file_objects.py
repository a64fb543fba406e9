"""The objects of an HDF5 file, by the addresses of their headers, with their ids on the server.

An id is computed from the file and the address, so that a resumed import finds the objects that exist already. Groups
that are sparse matrices become datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TypeAlias

from hsparse.errors import Conflict, HsparseError, StoreFailed, Unsupported
from hsparse.format.filters.pipeline import CODECS, filter_name
from hsparse.hdf5.format.file_fields import encode_name
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.lower_bounds import LOWER
from hsparse.hdf5.format.messages.group_messages import ExternalLink, HardLink, LinkMessage, SoftLink
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
from hsparse.hdf5.importer.source import Source, path_in_errors
from hsparse.hdf5.importer.source_files import NO_FILES, SourceFiles
from hsparse.model.dataspace import dims_of
from hsparse.model.ids import collection_of, derived_id

COLLECTIONS = {
    ObjectKind.GROUP: "groups",
    ObjectKind.DATASET: "datasets",
    ObjectKind.DATATYPE: "datatypes",
}


MOST_WALKED = 4096
"""Objects that are kept in memory between the walk and their first reading."""
ALL_MATRICES = ("csr", "csc", "coo", "frames")
SHIFTED = ("shifted",)
"""No matrices, and of defined sets those of datasets with a lower bound: a file may have these in no other form."""
"""All kinds of sparse matrices, and frames of pixels."""


@dataclass(frozen=True, slots=True)
class FileObject:
    """An object: the first of its paths, its kind, its id, and its extent if it is a dataset.

    `matrix` is set for a group that becomes a sparse dataset, `defined` and `frames` for a dataset that becomes one.
    A sparse dataset beside columns of events has the address `~group` of their group, and is linked there.
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
    """Say whether an object becomes a sparse dataset, made of several datasets."""
    return one.matrix is not None or one.frames is not None


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
        look: Look | None = None,
        files: SourceFiles | None = None,
        matrix_chunk: tuple[int, ...] = (),
        strict: bool = False,
        copied: bool = False,
        damaged: bool = False,
        known: Sequence[FileObject] = (),
    ) -> None:
        """Walk the file, whose root group becomes `root`; raise `Corrupt` and `Unsupported`, with the path.

        Groups that are sparse matrices of the kinds `matrices` become datasets, and their members are left out; with
        any, datasets with a defined set become sparse ones, and the set is left out. `look` is called with the form of
        each matrix, and returns the one to use; what it raises is why the group stays what it is. Without
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
        self.kept: dict[str, tuple[int, int]] = {}
        """How many elements of dense datasets that become sparse are kept, and of how many."""
        self._strict = strict
        self._copied = copied
        self._left_out = (HsparseError,) if damaged else (Unsupported,)
        self.failed: dict[int, str] = {}
        """Why objects are left out, by the addresses of their headers."""
        self.is_ordered = False
        self._walked: dict[int, ParsedObject] = {}
        """Objects as the walk has found them, until they are read for the first time."""
        self._root = root
        self._look: Look = look or (lambda _, form: form)
        if known:
            self.by_address = {one.address: one for one in known}
        else:
            self._walk(matrices)

    def of(self, kind: ObjectKind) -> list[FileObject]:
        """Return the objects of a kind; `matrices` are left out."""
        return [one for one in self.by_address.values() if one.kind == kind and not is_matrix(one)]

    def matrices(self) -> list[FileObject]:
        """Return the groups that become sparse datasets, and the values of frames."""
        return list(filter(is_matrix, self.by_address.values()))

    def read(self, one: FileObject) -> ParsedObject:
        """Read an object: its header, and the messages and links that it leads to."""
        if one.address < 0:
            group = self._parsed(~one.address, one.path)
            header = replace(group.header, address=one.address)
            return replace(group, header=header, kind=one.kind, attributes=(), links=())
        found = self._walked.pop(one.address, None) or self._parsed(one.address, one.path)
        if ~one.address in self.by_address or ~one.address in self.failed:
            counts = LinkMessage(counts_name(found.links), HardLink(~one.address))
            return replace(found, links=(*found.links, counts))
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
        ahead, frames = [("/", self.file.root)], list[FramesForm]()
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
            if len(self._walked) < MOST_WALKED:
                self._walked[address] = found
            self._note_links(path, found)
            if address == self.file.root:
                self.is_ordered = is_ordered(found)
            matrix, defined, columns = self._forms(path, found, matrices)
            frames += columns
            dims = dims_of(found.dataset.shape) or () if found.dataset is not None else ()
            dims = dims if matrix is None else matrix.shape
            id = self._id(address, "datasets" if matrix is not None else COLLECTIONS[found.kind])
            self.by_address[address] = FileObject(address, path, found.kind, id, dims, matrix, defined)
            if matrix is None:
                if EVENTS in matrices and found.kind == ObjectKind.GROUP:
                    self._count_events(path, found)
                parent = path.rstrip("/")
                ahead += [
                    (f"{parent}/{link.name}", link.target.address)
                    for link in reversed(found.links)
                    if isinstance(link.target, HardLink)
                ]
        self._leave_places_out(frames)

    def _forms(
        self, path: str, found: ParsedObject, matrices: Collection[str]
    ) -> tuple[MatrixForm | None, DefinedSet | None, list[FramesForm]]:
        """Return the matrix that an object is, or the defined set of a dataset, or columns of pixels in a group."""
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
        """Return a form as `look` has it; None, with the reason in `skipped`, where it raises an error."""
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
        """Add the sparse dataset beside columns of events, or why there is none."""
        beside = f"{path.rstrip('/')}/{counts_name(found.links)}"
        address = ~found.header.address
        form = self._looked_at(beside, lambda: find_events(self.source, self.file, found))
        if form is not None:
            id = self._id(address, "datasets")
            self.by_address[address] = FileObject(address, beside, ObjectKind.DATASET, id, form.shape, form)
        elif beside in self.skipped:
            self.failed[address] = self.skipped[beside]

    def _leave_places_out(self, frames: list[FramesForm]) -> None:
        """Make sparse datasets of the values of frames, and leave out what says where values are."""
        beside = {one.defined.address for one in self.by_address.values() if one.defined is not None}
        for form in frames:
            if {form.values, *form.places} <= {*self.by_address}:
                one = self.by_address[form.values]
                self.by_address[form.values] = replace(one, dims=form.shape, defined=None, frames=form)
                beside |= form.places
        for address in beside:
            self.by_address.pop(address, None)

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


Look: TypeAlias = Callable[[FileObjects, MatrixForm], MatrixForm]
