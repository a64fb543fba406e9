"""Formats of files that become domains of another form; all that `hsparse import` asks about them.

A format that is kept in HDF5 is a row of `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hsparse.cli.file_arguments import SCHEME
from hsparse.errors import BadRequest, Unsupported
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.formats import cell_ranger, cooler, loom
from hsparse.hdf5.importer.formats.domain_parts import DomainParts
from hsparse.hdf5.importer.formats.file_parts import FileParts


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format in HDF5: `find` returns the groups of which each can be a domain, None for files of other formats.

    `read` returns what one of them becomes. A file of several asks the user for one.
    """

    name: str
    find: Callable[[FileParts], list[str] | None]
    read: Callable[[FileParts, str], DomainParts]


FORMATS = (
    FileFormat("Cell Ranger matrix", cell_ranger.find_matrix, cell_ranger.read_matrix),
    FileFormat("loom file", loom.find_matrix, loom.read_matrix),
    FileFormat("cooler", cooler.find_coolers, cooler.read_cooler),
)
REMEDIES = {
    ".hic": ("a Juicer .hic file", "make a .cool of it (hic2cool, hictk convert)"),
    ".rds": ("a file of R", "write an .h5ad from it (zellkonverter::writeH5AD)"),
}
"""By the end of the name: formats that are known and not imported, and what to do."""
ZARR_ZIP = ".zarr.zip"
SOMA = ("__tiledb_group.tdb", "__group")
"""What a TileDB group has at its top, of today's and of older form."""
ZARR = ("zarr.json", ".zgroup", ".zarray")
"""Files of which a Zarr store has one at its top."""


def is_zarr(place: str) -> bool:
    """Say whether a place is a Zarr store: a directory, or a zip file by the end of its name."""
    return place.lower().endswith(ZARR_ZIP) or any((Path(place) / name).is_file() for name in ZARR)


def is_soma(place: str) -> bool:
    """Say whether a place is a directory of a TileDB group, as experiments of SOMA are, or is called so."""
    return place.rstrip("/").lower().endswith(".soma") or any((Path(place) / name).exists() for name in SOMA)


def check_known(name: str) -> None:
    """Raise `Unsupported` for a file whose name says that it is of a format that is not imported."""
    if name.startswith(SCHEME) and name.rstrip("/").lower().endswith((".soma", ".zarr", ZARR_ZIP)):
        raise Unsupported(f"{name} is read from a disk alone: copy it to a directory, and import that.")
    for end, (what, remedy) in REMEDIES.items():
        if name.lower().endswith(end):
            raise Unsupported(f"{name} is {what}: {remedy}, and import that.")


def check_uploaded(name: str) -> None:
    """Raise `Unsupported` for an uploaded file of a format that is read from a disk alone."""
    check_known(name)
    if name.lower().endswith(ZARR_ZIP):
        raise Unsupported(f"{name} is a Zarr store, which is read from a disk: hsparse import {name} DOMAIN.")


def read_format(objects: FileObjects, part: str) -> DomainParts | None:
    """Return what a file of one of the formats becomes, None for other HDF5 files.

    `part` is the one that the user wants, by its path or its name; `BadRequest` if there is none, or several and no
    `part`.
    """
    file, name = FileParts(objects), objects.source.name
    for one in FORMATS:
        found = one.find(file)
        if found is None:
            continue
        wanted = (
            [path for path in found if part.strip("/") in (path, path.rpartition("/")[2])] if part else found
        )
        if len(wanted) != 1:
            raise BadRequest(
                f"{name} has {'no ' + part if part else f'{len(found)} of the format {one.name}'}: name one of "
                f"{', '.join(path.rpartition('/')[2] for path in found)} by --part, or use --as-is."
            )
        return one.read(file, wanted[0])
    if part:
        raise BadRequest(f"{name} is of no format with several parts; leave --part out.")
    return None
