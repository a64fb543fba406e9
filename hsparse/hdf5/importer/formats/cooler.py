"""Read Cooler files: counts of contacts between bins of a genome, as columns of pixels, at one or several resolutions.

See https://cooler.readthedocs.io/en/stable/schema.html. Groups keep their names: `bins` and `chroms` become data frames
with numeric indices, and each column of values in `pixels` becomes a sparse dataset of bins x bins. As in the file, it
has only the upper triangle if the attribute `storage-mode` is symmetric-upper.
"""

from __future__ import annotations

import numpy as np

from hsparse.errors import Corrupt
from hsparse.hdf5.importer.formats.domain_parts import DomainParts
from hsparse.hdf5.importer.formats.file_parts import FileParts

TABLES = {"chroms", "bins", "pixels"}
PLACES = ("bin1_id", "bin2_id")
COOLER_GROUPS = ("resolutions", "cells")
"""The names of groups that contain several coolers: the resolutions of one genome, or several cells."""


def find_coolers(file: FileParts) -> list[str] | None:
    """Return the paths of the coolers in a file, or None if it has no cooler."""
    if _is_cooler(file, ""):
        return [""]
    found = [f"{group}/{name}" for group in COOLER_GROUPS for name in file.members(group)]
    found = [path for path in found if _is_cooler(file, path)]
    return sorted(found, key=lambda path: (len(path), path)) or None


def _is_cooler(file: FileParts, path: str) -> bool:
    members = [file.members(f"{path}/{name}") for name in ("chroms", "bins", "pixels")]
    return members[0] >= {"name"} and members[1] >= {"chrom", "start", "end"} and members[2] >= {*PLACES}


def read_cooler(file: FileParts, part: str) -> DomainParts:
    """Return the domain of the cooler at the path `part`, without indexes, which sparse datasets do not need."""
    above = f"{part}/" if part else ""
    parts = DomainParts({"": file.attributes(part)})
    chroms = {name: file.array(f"{above}chroms/{name}") for name in file.datasets(f"{above}chroms")}
    _add_table(parts, "chroms", chroms)
    bins = {name: file.array(f"{above}bins/{name}") for name in file.datasets(f"{above}bins")}
    codes = bins["chrom"]
    first = {name: bins.pop(name) for name in ("chrom", "start", "end")}
    _add_table(parts, "bins", first | bins)
    if codes.dtype.kind in "iu":  # an enum numbers the chromosomes; without it, the column has their names
        if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(chroms["name"]):
            raise Corrupt(f"/{above}bins/chrom: A bin has the number of a chromosome that does not exist.")
        del parts.arrays["bins/chrom"]
        parts.add_categorical("bins/chrom", codes, chroms["name"])
    count = len(codes)
    for name in file.datasets(f"{above}pixels"):
        if name not in PLACES:
            places = (f"{above}pixels/{place}" for place in PLACES)
            parts.add_matrix(
                f"pixels/{name}", file.matrix("coo", (count, count), f"{above}pixels/{name}", *places)
            )
    parts.left = file.unread(f"{above}indexes", below=above)
    return parts


def _add_table(parts: DomainParts, path: str, columns: dict[str, np.ndarray]) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise Corrupt(f"/{path}: The columns have different lengths: {lengths}.")
    parts.add_frame(path, np.arange(next(iter(lengths.values()))), columns)
