"""Read objects of an HDF5 file by their paths, for readers of formats that are stored in HDF5."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.errors import Corrupt, Unsupported
from hsparse.hdf5.format.messages.group_messages import StoredHardLink
from hsparse.hdf5.format.parse.parsed_object import ObjectKind
from hsparse.hdf5.importer.file_data import InputData
from hsparse.hdf5.importer.file_objects import FileObject, FileObjects
from hsparse.hdf5.importer.hdf5_matrix import open_matrix
from hsparse.hdf5.importer.matrix_forms import MatrixForm
from hsparse.hdf5.importer.object_body import attribute_body, values_bytes
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.sparse_matrix import Matrix
from hsparse.hdf5.importer.virtual_data import VirtualData, open_data

MAX_ARRAY_BYTES = 4 << 30
"""The maximum size in bytes of an array that is read whole: enough for the names of 100 million cells."""
Data = InputData | VirtualData


class FileParts:
    """The objects of a file, by path without a leading slash. `unread` lists the datasets that were not read."""

    def __init__(self, objects: FileObjects) -> None:
        self.objects = objects
        self._used: set[int] = set()

    def members(self, path: str = "") -> set[str]:
        """Return the names of a group's hard links, or an empty set if the file has no such group."""
        one = self._find(path)
        if one is None or one.kind != ObjectKind.GROUP:
            return set()
        return {link.name for link in self.objects.read(one).links if isinstance(link.target, StoredHardLink)}

    def datasets(self, path: str) -> list[str]:
        """Return the sorted names of the datasets in a group."""
        found = {name: self._find(f"{path}/{name}") for name in sorted(self.members(path))}
        return [name for name, one in found.items() if one is not None and one.kind == ObjectKind.DATASET]

    def attributes(self, path: str = "") -> dict[str, Any]:
        """Return a dict of attribute name to request body, which is empty if the file has no such object."""
        one = self._find(path)
        with path_in_errors(f"/{path}"):
            found = () if one is None else self.objects.read(one).attributes
            return {each.name: attribute_body(self.objects, each) for each in found}

    def dims(self, path: str) -> tuple[int, ...]:
        """Return the extent of a dataset; raises `Corrupt` if the file has no such dataset."""
        return self.open(path).dims

    def open(self, path: str) -> Data:
        """Return the data of a dataset; raises `Corrupt` if the file has no such dataset."""
        dataset = self.objects.read(self._dataset(path)).dataset
        assert dataset is not None
        with path_in_errors(f"/{path}"):
            return open_data(self.objects, dataset)

    def array(self, path: str, *dims: int) -> NDArray[Any]:
        """Return the values of a dataset, text as objects; with `dims`, raises `Corrupt` if its extent differs."""
        data = self.open(path)
        with path_in_errors(f"/{path}"):
            if dims and data.dims != dims:
                raise Corrupt(f"It has the extent {list(data.dims)}, not {list(dims)}.")
            if prod(data.dims) * data.size > MAX_ARRAY_BYTES:
                raise Unsupported(f"It has more than {MAX_ARRAY_BYTES} bytes; --as-is imports it as it is.")
            kind = Hdf5Type.parse(data.dataset.type.item)
            values = kind.decode(values_bytes(data.read((0,) * len(data.dims), data.dims)), data.dims)
            return (
                _text(values) if values.dtype.kind == "S" else values.astype(values.dtype.newbyteorder("<"))
            )

    def matrix(self, kind: str, shape: tuple[int, int], values: str, *indices: str) -> Matrix:
        """Open a matrix by the paths of its datasets: values, `MatrixForm.indices` and, unless coo, the pointers."""
        addresses = [self._dataset(path).address for path in indices]
        pointers = addresses.pop() if kind != "coo" else None
        form = MatrixForm(kind, shape, self._dataset(values).address, tuple(addresses), pointers)
        with path_in_errors(f"/{values}"):
            return open_matrix(self.objects, form)

    def unread(self, *ignored: str, below: str = "") -> list[str]:
        """Return messages about skipped and unread objects below a path, except those below the `ignored` paths."""
        paths = {one.path: one.address in self._used for one in self.objects.of(ObjectKind.DATASET)}
        no_place = "it has no place in the domain of this format; --as-is imports it."
        said = {path: f"{path}: {no_place}" for path, is_used in paths.items() if not is_used}
        unimportant = tuple(f"/{path}" for path in ignored)
        return [
            text
            for path, text in (said | self.objects.skipped).items()
            if path.startswith(f"/{below}") and not path.startswith(unimportant)
        ]

    def _dataset(self, path: str) -> FileObject:
        one = self._find(path)
        if one is None or one.kind != ObjectKind.DATASET:
            raise Corrupt(self.objects.skipped.get(f"/{path}", f"/{path}: there is no such dataset."))
        self._used.add(one.address)
        return one

    def _find(self, path: str) -> FileObject | None:
        """Return the object that a path of hard links leads to, or None if it is missing or skipped."""
        one: FileObject | None = self.objects.by_address[self.objects.file.root]
        for name in filter(None, path.split("/")):
            if one is None or one.kind != ObjectKind.GROUP:
                return None
            links = (link for link in self.objects.read(one).links if link.name == name)
            targets = [link.target.address for link in links if isinstance(link.target, StoredHardLink)]
            one = self.objects.by_address.get(targets[0]) if targets else None
        return one


def _text(values: NDArray[Any]) -> NDArray[Any]:
    """Return fixed-size text as an object array of `str`; raises `Corrupt` if the text is not UTF-8."""
    try:
        texts = [one.decode() for one in values.reshape(-1).tolist()]
    except UnicodeDecodeError as error:
        raise Corrupt(f"It has text that is not UTF-8: {error}.") from error
    found = np.empty(len(texts), object)
    found[:] = texts
    return found.reshape(values.shape)
