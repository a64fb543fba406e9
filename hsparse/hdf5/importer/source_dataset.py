"""Datasets of files that another file names, found by their paths: through groups, soft links and external links."""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.group_messages import ExternalLink, HardLink, LinkTarget, SoftLink
from hsparse.hdf5.format.parse.carried_types import carried_object
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget
from hsparse.hdf5.format.parse.parsed_object import ParsedObject, parse_object
from hsparse.hdf5.format.superblock import read_superblock
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
