"""The objects of an HDF5 file: each by the address of its header, with the id that it gets on the server.

An id follows from the file and the address, so that whoever imports the file into the same domain again finds what
is there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from hsparse.cli.importer.matrix_form import MatrixForm, find_matrix
from hsparse.cli.importer.source import Source, naming
from hsparse.errors import Unsupported
from hsparse.format.hdf5.file_fields import encode_name
from hsparse.format.hdf5.hdf5_file import Hdf5File
from hsparse.format.hdf5.messages.group_messages import HardLink
from hsparse.format.hdf5.parse.parsed_elements import ReferenceTarget
from hsparse.format.hdf5.parse.parsed_object import ObjectKind, ParsedObject, parse_object
from hsparse.format.hdf5.superblock import read_superblock
from hsparse.model.dataspace import dims_of
from hsparse.model.ids import collection_of, derived_id

COLLECTIONS = {
    ObjectKind.GROUP: "groups",
    ObjectKind.DATASET: "datasets",
    ObjectKind.DATATYPE: "datatypes",
}


@dataclass(frozen=True, slots=True)
class FileObject:
    """An object: the first of its paths, its kind, its id, and its extent if it is a dataset.

    `matrix` is what a group is that becomes a sparse dataset.
    """

    address: int
    path: str
    kind: ObjectKind
    id: str
    dims: tuple[int, ...] = ()
    matrix: MatrixForm | None = None


def is_ordered(stored: ParsedObject) -> bool:
    """Say whether the order of creation of links or attributes is tracked."""
    orders = [*(one.order for one in stored.links), *(one.order for one in stored.attributes)]
    return stored.header.attribute_order or any(order is not None for order in orders)


def check_names(stored: ParsedObject) -> None:
    """Raise `Unsupported` for the name of a link or an attribute that JSON has no text for."""
    names = [*(link.name for link in stored.links), *(one.name for one in stored.attributes)]
    for name in names:
        if not is_text(name):
            raise Unsupported(
                f"The name {encode_name(name)!r} is no UTF-8: rename what has it (H5Lmove, H5Arename)."
            )


def is_text(name: str) -> bool:
    """Say whether a name was UTF-8 in the file; bytes that are none are there as surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


class FileObjects:
    """All objects of a file that links lead to. What a reference leads to is found here, as readers want it."""

    def __init__(self, source: Source, root: str, *, matrices: bool) -> None:
        """Walk the file, whose root group becomes `root`; raises `Corrupt` and `Unsupported`, naming the path.

        With `matrices`, groups that are sparse matrices become datasets, and what is in them has no object.
        """
        self.source = source
        with naming(source.name):
            self.file: Hdf5File = source.run(read_superblock(source.size))
        self.by_address: dict[int, FileObject] = {}
        self.lost = 0
        self.is_ordered = False
        self._root = root
        self._walk(matrices)

    def of(self, kind: ObjectKind) -> list[FileObject]:
        """Return the objects of a kind; groups that become sparse datasets are of none."""
        return [one for one in self.by_address.values() if one.kind == kind and one.matrix is None]

    def matrices(self) -> list[FileObject]:
        """Return the groups that become sparse datasets."""
        return [one for one in self.by_address.values() if one.matrix is not None]

    def read(self, one: FileObject) -> ParsedObject:
        """Read an object's header and what it leads to."""
        return self.source.run(parse_object(self.file, one.address))

    def find(self, address: int) -> ReferenceTarget | None:
        """Return what a reference to an address leads to; None, counted in `lost`, where no link leads there."""
        one = self.by_address.get(address)
        if one is None:
            self.lost += 1
            return None
        return ReferenceTarget(f"{collection_of(one.id)}/{one.id}", one.dims)

    def _walk(self, matrices: bool) -> None:
        ahead = [("/", self.file.root)]
        while ahead:
            path, address = ahead.pop()
            if address in self.by_address:
                continue
            with naming(path):
                found = self.source.run(parse_object(self.file, address))
                check_names(found)
            if address == self.file.root:
                self.is_ordered = is_ordered(found)
            matrix = None
            if matrices and address != self.file.root and found.kind == ObjectKind.GROUP:
                matrix = find_matrix(self.source, self.file, found)
            dims = dims_of(found.dataset.shape) or () if found.dataset is not None else ()
            dims = dims if matrix is None else matrix.shape
            id = self._id(address, "datasets" if matrix is not None else COLLECTIONS[found.kind])
            self.by_address[address] = FileObject(address, path, found.kind, id, dims, matrix)
            if matrix is None:
                parent = path.rstrip("/")
                ahead += [
                    (f"{parent}/{link.name}", link.target.address)
                    for link in reversed(found.links)
                    if isinstance(link.target, HardLink)
                ]

    def _id(self, address: int, collection: str) -> str:
        if address == self.file.root:
            return self._root
        return derived_id(collection, self._root, sha256(b"%d" % address).digest())
