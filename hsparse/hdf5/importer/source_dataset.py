"""Datasets of files that another file names, found by their paths: through groups, soft links and external links.

Scattered elements of a dataset, read as boxes: of limited size, and not much larger than what is wanted of them.
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
from hsparse.hdf5.format.messages.group_messages import ExternalLink, HardLink, LinkTarget, SoftLink
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget
from hsparse.hdf5.format.parse.parsed_object import ParsedObject, carried_object, parse_object
from hsparse.hdf5.format.superblock import read_superblock
from hsparse.hdf5.importer.file_data import Dims
from hsparse.hdf5.importer.source import Source
from hsparse.hdf5.importer.source_files import SharedSource, SourceFiles

MAX_LINKS = 16
"""Soft and external links that are followed to one dataset: libhdf5's limit."""

MAX_DEPTH = 1000


@dataclass(frozen=True, slots=True)
class SourceFile:
    """An open HDF5 file; `files` has those that it names. Its references lead nowhere."""

    source: Source
    file: Hdf5File
    files: SourceFiles

    @classmethod
    def of(cls, source: Source, files: SourceFiles) -> SourceFile:
        """Read the superblock; raises `Corrupt` and `Unsupported`."""
        return cls(source, source.run(read_superblock(source.size)), files)

    def find(self, address: int) -> ReferenceTarget | None:
        """Return None: no object of this file is imported."""
        return None


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object and its file, which is another one than was asked for where an external link leads to it."""

    source: Source
    file: Hdf5File
    object: ParsedObject


def find_object(
    source: Source, file: Hdf5File, files: SourceFiles, path: str, left: int = MAX_LINKS
) -> FoundObject | None:
    """Return the object at a path, from the root group of a file; None if a link on the way is missing.

    External links lead to other files. `Corrupt` for more links than libhdf5 follows.
    """
    address, base = file.root, ""
    parts = _components(path)
    while parts:
        target = _member(source, file, address, part := parts.pop(0))
        if isinstance(target, HardLink):
            address, base = target.address, f"{base}/{part}"
            continue
        if target is None or left == 0:
            if target is not None:
                raise Corrupt(f"More than {MAX_LINKS} links lead to {path}.")
            return None
        rest = "/".join(parts)
        if isinstance(target, ExternalLink):
            location = files.find(target.file, source.name)
            if location is None:
                return None
            other = SharedSource(files, location)
            return find_object(
                other, SourceFile.of(other, files).file, files, f"{target.path}/{rest}", left - 1
            )
        if not isinstance(target, SoftLink):
            raise Corrupt(f"The link {part} on the way to {path} is of a class that programs define.")
        start = "" if target.path.startswith("/") else base
        return find_object(source, file, files, f"{start}/{target.path}/{rest}", left - 1)
    return FoundObject(source, file, carried_object(source.run(parse_object(file, address))))


def _components(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if len(parts) > MAX_DEPTH:
        raise Corrupt(f"A source has a path of {len(parts)} names; the limit is {MAX_DEPTH}.")
    return parts


def _member(source: Source, file: Hdf5File, group: int, name: str) -> LinkTarget | None:
    links = source.run(parse_object(file, group)).links
    return next((link.target for link in links if link.name == name), None)


HULL = 32 * 1024 * 1024
"""The most bytes of a box of which some elements are not wanted."""
ReadBox: TypeAlias = Callable[[Dims, Dims], NDArray[Any]]


def read_part(read: ReadBox, part: MappedPart, size: int) -> NDArray[Any]:
    """Return the elements of the source of a part, of `size` bytes each, in the shape of its index lists.

    `read` returns a box of the source, from its start to before its stop.
    """
    return _product(read, part.source, size) if part.products else _points(read, part.source, size)


def _hull(lists: tuple[Indices, ...]) -> tuple[Dims, Dims, Dims]:
    """Return start, stop and lengths of the box around indices."""
    start = tuple(int(one.min()) for one in lists)
    stop = tuple(int(one.max()) + 1 for one in lists)
    return start, stop, tuple(b - a for a, b in zip(start, stop, strict=True))


def _product(read: ReadBox, lists: tuple[Indices, ...], size: int) -> NDArray[Any]:
    start, stop, lengths = _hull(lists)
    counts = tuple(map(len, lists))
    if lengths == counts:
        return read(start, stop)
    if prod(lengths) * size <= HULL:
        inside = (one - a for one, a in zip(lists, start, strict=True))
        return read(start, stop)[np.ix_(*inside)]
    # Where the gaps are; a box is divided until it has none, or is small.
    dim = max(range(len(counts)), key=lambda dim: lengths[dim] / counts[dim] if counts[dim] > 1 else 0)
    half = counts[dim] // 2
    parts = (lists[dim][:half], lists[dim][half:])
    return np.concatenate(
        [_product(read, (*lists[:dim], part, *lists[dim + 1 :]), size) for part in parts], dim
    )


def _points(read: ReadBox, coords: tuple[Indices, ...], size: int) -> NDArray[Any]:
    start, stop, lengths = _hull(coords)
    count = len(coords[0]) if coords else 1
    if prod(lengths) in (1, count) or prod(lengths) * size <= HULL:
        found = read(start, stop)
        return found[tuple(one - a for one, a in zip(coords, start, strict=True))].reshape(
            count, *found.shape[len(coords) :]
        )
    parts = ([one[: count // 2] for one in coords], [one[count // 2 :] for one in coords])
    return np.concatenate([_points(read, tuple(part), size) for part in parts])
