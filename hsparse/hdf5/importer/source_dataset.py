"""Find datasets by paths that may lead through soft and external links, also into other files.

Scattered elements of a dataset are read in boxes that are small or contain no unneeded elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.plan.virtual_plan import Indices, MappedPart
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.group_messages import (
    LinkTarget,
    StoredExternalLink,
    StoredHardLink,
    StoredSoftLink,
)
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget
from hsparse.hdf5.format.parse.parsed_object import ParsedObject, carried_object, parse_object
from hsparse.hdf5.format.superblock import read_superblock
from hsparse.hdf5.importer.file_data import Dims
from hsparse.hdf5.importer.source import InputFile
from hsparse.hdf5.importer.source_files import SharedSource, SourceFiles

MAX_LINKS = 16
"""The maximum number of soft and external links that are followed to one dataset, as in libhdf5."""

MAX_DEPTH = 1000


@dataclass(frozen=True, slots=True)
class SourceFile:
    """An open HDF5 file that another file names; `files` opens the files that it names. Its references become null."""

    source: InputFile
    file: Hdf5File
    files: SourceFiles

    @classmethod
    def of(cls, source: InputFile, files: SourceFiles) -> SourceFile:
        """Read the superblock of a file, and return the file; raises `Corrupt` and `Unsupported`."""
        return cls(source, source.run(read_superblock(source.size)), files)

    def find(self, address: int) -> ReferenceTarget | None:
        """Return None, because no object of this file is imported."""
        return None


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object and its file, which is another file than the first file if the path has an external link."""

    source: InputFile
    file: Hdf5File
    object: ParsedObject


def find_object(
    source: InputFile, file: Hdf5File, files: SourceFiles, path: str, left: int = MAX_LINKS
) -> FoundObject | None:
    """Follow the links of `path` from a file's root group; return the object, or None if a link is missing.

    Raises `Corrupt` if more than `left` soft and external links must be followed.
    """
    address, base = file.root, ""
    parts = _components(path)
    while parts:
        target = _member(source, file, address, part := parts.pop(0))
        if isinstance(target, StoredHardLink):
            address, base = target.address, f"{base}/{part}"
            continue
        if target is None or left == 0:
            if target is not None:
                raise Corrupt(f"More than {MAX_LINKS} links lead to {path}.")
            return None
        rest = "/".join(parts)
        if isinstance(target, StoredExternalLink):
            location = files.find(target.file, source.name)
            if location is None:
                return None
            other = SharedSource(files, location)
            return find_object(
                other, SourceFile.of(other, files).file, files, f"{target.path}/{rest}", left - 1
            )
        if not isinstance(target, StoredSoftLink):
            raise Corrupt(f"The link {part} in the path {path} is user-defined, which is not supported.")
        start = "" if target.path.startswith("/") else base
        return find_object(source, file, files, f"{start}/{target.path}/{rest}", left - 1)
    return FoundObject(source, file, carried_object(source.run(parse_object(file, address))))


def _components(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if len(parts) > MAX_DEPTH:
        raise Corrupt(f"A source has a path of {len(parts)} names; the limit is {MAX_DEPTH}.")
    return parts


def _member(source: InputFile, file: Hdf5File, group: int, name: str) -> LinkTarget | None:
    links = source.run(parse_object(file, group)).links
    return next((link.target for link in links if link.name == name), None)


MAX_HULL_BYTES = 32 * 1024 * 1024
"""The maximum size in bytes of a box that includes unneeded elements."""
ReadBox: TypeAlias = Callable[[Dims, Dims], NDArray[Any]]


def read_part(read: ReadBox, part: MappedPart, size: int) -> NDArray[Any]:
    """Return the elements that `part` of a mapping selects in its source: (n,), or a box if it is a product.

    `read(start, stop)` returns a box of the source, and `size` is the number of bytes of an element. Elements of an
    array type add dimensions to the result.
    """
    return _product(read, part.source, size) if part.products else _points(read, part.source, size)


def _hull(lists: tuple[Indices, ...]) -> tuple[Dims, Dims, Dims]:
    """Return start, stop and lengths of the bounding box of index lists, one for each dimension."""
    start = tuple(int(one.min()) for one in lists)
    stop = tuple(int(one.max()) + 1 for one in lists)
    return start, stop, tuple(b - a for a, b in zip(start, stop, strict=True))


def _product(read: ReadBox, lists: tuple[Indices, ...], size: int) -> NDArray[Any]:
    start, stop, lengths = _hull(lists)
    counts = tuple(map(len, lists))
    if lengths == counts:
        return read(start, stop)
    if prod(lengths) * size <= MAX_HULL_BYTES:
        inside = (one - a for one, a in zip(lists, start, strict=True))
        return read(start, stop)[np.ix_(*inside)]
    # Split where the gaps are, until a box has no gaps or is small.
    dim = max(range(len(counts)), key=lambda dim: lengths[dim] / counts[dim] if counts[dim] > 1 else 0)
    half = counts[dim] // 2
    parts = (lists[dim][:half], lists[dim][half:])
    return np.concatenate(
        [_product(read, (*lists[:dim], part, *lists[dim + 1 :]), size) for part in parts], dim
    )


def _points(read: ReadBox, coords: tuple[Indices, ...], size: int) -> NDArray[Any]:
    start, stop, lengths = _hull(coords)
    count = len(coords[0]) if coords else 1
    if prod(lengths) in (1, count) or prod(lengths) * size <= MAX_HULL_BYTES:
        found = read(start, stop)
        return found[tuple(one - a for one, a in zip(coords, start, strict=True))].reshape(
            count, *found.shape[len(coords) :]
        )
    parts = ([one[: count // 2] for one in coords], [one[count // 2 :] for one in coords])
    return np.concatenate([_points(read, tuple(part), size) for part in parts])
