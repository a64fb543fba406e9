"""Recognize files, stores and directories of other formats, for `hsparse import`.

Formats that are stored in HDF5 files are rows of `FORMATS`.
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
    """A format stored in HDF5. `find` returns the groups that can each become a domain, or None for other formats.

    `read` returns the parts of the domain that one group becomes. If there are several groups, the user names one.
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
"""Maps suffixes of formats that cannot be imported to a description and a remedy."""
ZARR_ZIP = ".zarr.zip"
SOMA = ("__tiledb_group.tdb", "__group")
"""The names of entries that identify a TileDB group, in the current and in an older form."""
ZARR = ("zarr.json", ".zgroup", ".zarray")
"""The names of metadata files; a Zarr store has at least one of these files at its top."""


def is_zarr(place: str) -> bool:
    """Return whether a path is a Zarr store: a directory with Zarr metadata, or a name that ends with .zarr.zip."""
    return place.lower().endswith(ZARR_ZIP) or any((Path(place) / name).is_file() for name in ZARR)


def is_soma(place: str) -> bool:
    """Return whether a path is a TileDB group, such as a SOMA experiment, or has a name that ends with .soma."""
    return place.rstrip("/").lower().endswith(".soma") or any((Path(place) / name).exists() for name in SOMA)


def check_known(name: str) -> None:
    """Raise `Unsupported` if a name has the suffix of a format that cannot be imported, or not from S3."""
    if name.startswith(SCHEME) and name.rstrip("/").lower().endswith((".soma", ".zarr", ZARR_ZIP)):
        raise Unsupported(f"{name} is only read from a disk: copy it to a directory, and import that.")
    for end, (what, remedy) in REMEDIES.items():
        if name.lower().endswith(end):
            raise Unsupported(f"{name} is {what}: {remedy}, and import that.")


def check_uploaded(name: str) -> None:
    """Raise `Unsupported` if an uploaded file has a format that cannot be imported, or only from a disk."""
    check_known(name)
    if name.lower().endswith(ZARR_ZIP):
        raise Unsupported(f"{name} is a Zarr store, read only from a disk: run hsparse import {name} DOMAIN.")


def read_format(objects: FileObjects, part: str) -> DomainParts | None:
    """Return the content of a file of one of `FORMATS` as a domain, or None for other HDF5 files.

    `part` is the path or name of the group that the user wants. Raises `BadRequest` if no group has this name, or
    if `part` is empty and there are several groups.
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
        raise BadRequest(f"{name} has no parts to choose from: omit --part.")
    return None
