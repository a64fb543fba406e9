"""Read directories with `matrix.mtx`, `barcodes.tsv` and `features.tsv` (before Cell Ranger 3: `genes.tsv`).

Each name may end with `.gz`, and begin with a prefix, such as GEO's `GSM123_sample_`. The matrix has features
x cells. The domain has the content that `scanpy.read_10x_mtx(..., prefix=..., gex_only=False)` returns.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.cli.file_arguments import SCHEME
from hsparse.errors import BadRequest, Corrupt, NotFound, Unsupported
from hsparse.hdf5.importer.formats.domain_parts import DomainParts, anndata, float_matrix, transposed
from hsparse.hdf5.importer.matrix_market import open_matrix_market, open_text
from hsparse.hdf5.importer.source import InputFile

OpenSource = Callable[[str], InputFile]
MAX_NAMES_BYTES = 1 << 30
"""The maximum size in bytes of a table of names."""
MATRIX = "matrix.mtx"
ENDS = "_.-"
"""The separators at the end of a prefix, which the user may omit."""
NO_COLUMNS = 3
"""The number of columns (ids, names, types) of a table without lines."""
MAX_NAMED_PREFIXES = 20
"""The maximum number of prefixes that an error lists."""


def is_directory(place: str) -> bool:
    """Return whether a place is a local directory, or a prefix `s3://bucket/path/`."""
    return place.endswith("/") if place.startswith(SCHEME) else Path(place).is_dir()


def has_matrix(place: Path) -> bool:
    """Return whether a directory has at least one matrix."""
    return bool(_prefixes(place, ""))


def open_directory(
    place: str, part: str, open_source: OpenSource
) -> tuple[InputFile, Callable[[], DomainParts]]:
    """Open the matrix of a directory; return a pair: its source, and a function that reads the AnnData.

    `part` is the prefix of a matrix. Raises `BadRequest` if it does not select one matrix, `NotFound` without a matrix.
    """
    prefixes = [part] if place.startswith(SCHEME) else _prefixes(Path(place), part)
    if len(prefixes) > 1:
        names = ", ".join(one.rstrip(ENDS) or MATRIX for one in prefixes[:MAX_NAMED_PREFIXES])
        raise BadRequest(f"{place} has {len(prefixes)} matrices: name one of {names} by --part.")
    prefix = "".join(prefixes)
    matrix = _open(place, (f"{prefix}{MATRIX}",), open_source)
    return matrix, partial(_read, place, prefix, matrix, open_source)


def _prefixes(place: Path, part: str) -> list[str]:
    """Return the sorted prefixes of a directory's matrices; with `part`, only the prefix that it names."""
    try:
        names = {one.name.removesuffix(".gz") for one in place.iterdir() if not one.name.startswith(".")}
    except OSError as error:
        raise BadRequest(f"The directory {place} cannot be read: {error.strerror}.") from error
    found = sorted(one.removesuffix(MATRIX) for one in names if one.endswith(MATRIX))
    if not part:
        return found
    meant = [one for one in found if part in (one, one.rstrip(ENDS), f"{one}{MATRIX}")]
    if not meant:
        raise BadRequest(f"{place} has no {part}{MATRIX}, nor with .gz; leave --part out to see what it has.")
    return meant[:1]


def _read(place: str, prefix: str, matrix: InputFile, open_source: OpenSource) -> DomainParts:
    """Return an AnnData of cells x features; repeated names of features get numbers appended."""
    found = float_matrix(transposed(open_matrix_market(matrix)))
    cells, genes = found.shape
    parts, fingerprint = anndata({}), sha256(matrix.fingerprint.encode())
    tables = []
    for names, rows in ((("barcodes.tsv",), cells), (("features.tsv", "genes.tsv"), genes)):
        with _open(place, [f"{prefix}{name}" for name in names], open_source) as source:
            fingerprint.update(source.fingerprint.encode())
            tables.append((source.name, _table(source, rows)))
    matrix.fingerprint = fingerprint.hexdigest()[:32]
    (_, barcodes), (name, features) = tables
    if len(features) < 2:
        raise Corrupt(f"{name} has one column; it must have ids and names, separated by a tab.")
    parts.add_matrix("X", found)
    parts.add_frame("obs", barcodes[0], {})
    columns = {"gene_ids": features[0]} | ({"feature_types": features[2]} if len(features) > 2 else {})
    parts.add_frame("var", _unique(features[1]), columns)
    if len(features) > 3:
        parts.left.append(f"{name}: columns from the 4th on.")
    return parts


def _open(place: str, names: Sequence[str], open_source: OpenSource) -> InputFile:
    for name in (f"{name}{end}" for name in names for end in (".gz", "")):
        try:
            return open_source(f"{place.rstrip('/')}/{name}")
        except NotFound:
            continue
    raise NotFound(
        f"{place} has no {' or '.join(names)}, nor with .gz: a directory that is imported has HDF5 files, or "
        "matrix.mtx, barcodes.tsv, and features.tsv or genes.tsv, as Cell Ranger writes them, all with the same prefix "
        "or none." + (" Of a folder in a bucket, import each object by itself." if "://" in place else "")
    )


def _table(source: InputFile, rows: int) -> list[NDArray[Any]]:
    """Return the columns of a tab-separated file; raises `Corrupt` unless it has `rows` lines with equal columns."""
    try:
        with open_text(source) as file:
            text = file.read(MAX_NAMES_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Corrupt(f"{source.name} is damaged: {error}.") from error
    if len(text) > MAX_NAMES_BYTES:
        raise Unsupported(f"{source.name} has more than {MAX_NAMES_BYTES} bytes, the limit.")
    try:
        whole = text.decode().removesuffix("\n").split("\n") if text else []
        lines = [line.rstrip("\r").split("\t") for line in whole]
    except UnicodeDecodeError as error:
        raise Corrupt(f"{source.name} is not UTF-8: {error}.") from error
    if len(lines) != rows or len({len(line) for line in lines}) > 1:
        raise Corrupt(
            f"{source.name} has {len(lines)} lines, or lines with different numbers of columns; it must have {rows}."
        )
    table = np.array(lines, object).reshape(rows, len(lines[0]) if lines else NO_COLUMNS)
    return [np.ascontiguousarray(table[:, column]) for column in range(table.shape[1])]


def _unique(names: NDArray[Any]) -> NDArray[Any]:
    """Append -1, -2 and so on to repeated names, as AnnData's `var_names_make_unique` does."""
    taken, seen, counts, found = set(names.tolist()), set(), Counter[str](), []
    for name in names.tolist():
        if name not in seen:
            seen.add(name)
            found.append(name)
            continue
        while True:
            counts[name] += 1
            other = f"{name}-{counts[name]}"
            if other not in taken:
                break
        taken.add(other)
        found.append(other)
    return np.array(found, object)
