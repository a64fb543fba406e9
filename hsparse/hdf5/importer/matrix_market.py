"""Read Matrix Market files, `.mtx` and `.mtx.gz`, in pieces.

See https://math.nist.gov/MatrixMarket/formats.html. The first line is `%%MatrixMarket matrix FORMAT FIELD SYMMETRY`.
Comments follow, then a line with the numbers of rows, columns and entries, then a line per entry with 1-based indices.
The format `array` has no number of entries, and its lines are only values, column by column: in a symmetric matrix from
the diagonal down, in a skew-symmetric matrix below the diagonal. The field `unsigned-integer` is scipy's extension.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.hdf5.importer.source import InputFile
from hsparse.hdf5.importer.sparse_matrix import Matrix, MatrixElements

TEXT_BYTES = 8 * 1024 * 1024
"""The number of bytes of text that are read at a time."""
LONGEST_LINE = 1024
COMPLEX = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "r", "type": "H5T_IEEE_F64LE"}, {"name": "i", "type": "H5T_IEEE_F64LE"}],
}
FIELDS: dict[str, tuple[str, Any, int]] = {
    "real": ("<f8", "H5T_IEEE_F64LE", 1),
    "double": ("<f8", "H5T_IEEE_F64LE", 1),
    "integer": ("<i8", "H5T_STD_I64LE", 1),
    "unsigned-integer": ("<u8", "H5T_STD_U64LE", 1),
    "complex": ("<c16", COMPLEX, 2),
    "pattern": ("|u1", "H5T_STD_U8LE", 0),
}
"""Maps each field to the dtype and HDF5 type of its values, and to the count of numbers in an entry's value."""
FLOATS = ("real", "double", "complex")
EXPONENTS = bytes.maketrans(b"Dd", b"Ee")
"""Translates Fortran's exponents of double precision, `1.5D+02`."""
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")


@dataclass(frozen=True, slots=True)
class _Header:
    is_array: bool
    field: str
    symmetry: str
    rows: int
    columns: int
    entries: int

    @property
    def numbers(self) -> int:
        """The count of numbers in an entry: row and column (except in the format `array`), and the value's numbers."""
        return (0 if self.is_array else 2) + FIELDS[self.field][2]


def open_matrix_market(source: InputFile) -> Matrix:
    """Open a Matrix Market file: read its header. If the matrix is symmetric, read all entries to count its elements.

    Raises `Corrupt` and `Unsupported`.
    """
    with open_text(source) as file:
        header = _read_header(source.name, file)
    dtype, item, _ = FIELDS[header.field]
    count = header.entries
    if header.symmetry != "general":  # entries on the diagonal have no counterpart
        count = sum(len(values) for _, read in _batches(source) for values in [read()[1]])
    itemsize = np.dtype(dtype).itemsize
    return Matrix((header.rows, header.columns), item, itemsize, count, _batches(source))


def open_text(source: InputFile) -> IO[bytes]:
    """Open a text file for reading bytes; decompress the file if its name ends with .gz."""
    file = source.file()
    return cast(IO[bytes], gzip.open(file)) if source.name.lower().endswith(".gz") else file


def _read_header(path: str, file: IO[bytes]) -> _Header:
    try:
        words = file.readline(LONGEST_LINE).decode("ascii", "replace").lower().split()
        if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
            raise Corrupt(f"{path} is no Matrix Market file: its first line is not %%MatrixMarket matrix ...")
        if words[2] not in ("coordinate", "array"):
            raise Unsupported(f"{path} has the format {words[2]}: save it as coordinate or array.")
        is_array = words[2] == "array"
        if words[3] not in FIELDS or words[4] not in SYMMETRIES or (is_array and words[3] == "pattern"):
            raise Corrupt(
                f"{path} has values {words[3]} of symmetry {words[4]} in the format {words[2]}, which is not possible."
            )
        line = b"%"
        while line.startswith(b"%") or line.isspace():
            line = file.readline(1024 * LONGEST_LINE)
        if is_array:
            rows, columns = map(int, line.split())
            entries = _array_entries(words[4], rows, columns)
        else:
            rows, columns, entries = map(int, line.split())
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise Corrupt(f"{path} has no line of rows, columns and entries: {error}.") from error
    if min(rows, columns, entries) < 0:
        raise Corrupt(f"{path} has a negative size: {rows} rows, {columns} columns, {entries} entries.")
    if words[4] != "general" and rows != columns:
        raise Corrupt(f"{path} is {words[4]}, but has {rows} rows and {columns} columns; they must be equal.")
    return _Header(is_array, words[3], words[4], rows, columns, entries)


def _array_entries(symmetry: str, rows: int, columns: int) -> int:
    """Return the number of entries that a matrix has in the format `array`."""
    if symmetry == "general":
        return rows * columns
    return rows * (rows - 1 if symmetry == "skew-symmetric" else rows + 1) // 2


def _array_places(header: _Header, before: int, count: int) -> NDArray[np.int64]:
    """Return the coordinates, (count, 2) int64, of `count` entries from entry `before` on, in the format `array`."""
    numbers = np.arange(before, before + count)
    if header.symmetry == "general":
        return np.stack((numbers % header.rows, numbers // header.rows), axis=1)
    below = int(header.symmetry == "skew-symmetric")
    starts = np.concatenate(([0], np.cumsum(np.arange(header.rows - below, 0, -1))))
    columns = np.searchsorted(starts, numbers, "right") - 1
    return np.stack((numbers - starts[columns] + columns + below, columns), axis=1)


def _batches(source: InputFile) -> Iterator[tuple[int, Callable[[], MatrixElements]]]:
    """Yield (bytes, reader) of each piece of text; raises `Corrupt` if the number of entries is wrong."""
    path = source.name
    with open_text(source) as file:
        header = _read_header(path, file)
        found, rest = 0, b""
        while True:
            try:
                text = file.read(TEXT_BYTES)
            except (OSError, EOFError, zlib.error) as error:
                raise Corrupt(f"{path} is damaged after {found} entries: {error}.") from error
            lines, _, rest = (rest + text).rpartition(b"\n") if text else (rest, b"", b"")
            if len(rest) > TEXT_BYTES:
                raise Corrupt(f"{path} has a line of more than {TEXT_BYTES} bytes, the limit.")
            tokens = (lines.translate(EXPONENTS) if header.field in FLOATS else lines).split()
            if tokens:
                numbers = header.numbers
                count, odd = divmod(len(tokens), numbers)
                if odd:
                    raise Corrupt(f"{path} has a line without {numbers} numbers, after {found} entries.")
                yield len(lines), partial(_parse, path, header, tokens, found)
                found += count
            if found > header.entries or (not text and found < header.entries):
                raise Corrupt(f"{path} has {found} entries; its header says {header.entries}.")
            if not text:
                return


def _parse(path: str, header: _Header, tokens: list[bytes], before: int) -> MatrixElements:
    dtype, _, numbers = FIELDS[header.field]
    table = np.array(tokens).reshape(-1, header.numbers)
    try:
        if header.is_array:
            # Excess entries are reported by `_batches`, which counts them.
            places = _array_places(header, before, min(len(table), header.entries - before))
            table = table[: len(places)]
        else:
            places = table[:, :2].astype(np.int64) - 1
        if numbers == 1:
            values = table[:, -1].astype(dtype)
        elif numbers == 2:
            parts = np.ascontiguousarray(table[:, -2:].astype("<f8"))
            values = parts.view("<c16")[:, 0]
        else:
            values = np.ones(len(table), dtype)
    except (ValueError, OverflowError) as error:
        raise Corrupt(f"{path} has text in place of a number, after {before} entries: {error}.") from error
    extent = np.array((header.rows, header.columns))
    if ((places < 0) | (places >= extent)).any():
        raise Corrupt(f"{path} has an index beyond {header.rows} x {header.columns}, after {before} entries.")
    return _mirrored(header.symmetry, places.astype(np.uint64), values)


def _mirrored(symmetry: str, places: NDArray[np.uint64], values: NDArray[Any]) -> MatrixElements:
    """Return the entries and, unless the matrix is general, mirror images of the entries off the diagonal."""
    if symmetry == "general":
        return places, values
    other = places[:, 0] != places[:, 1]
    mirrored = values[other]
    if symmetry == "skew-symmetric":
        mirrored = -mirrored
    elif symmetry == "hermitian":
        mirrored = mirrored.conj()
    return np.concatenate((places, places[other][:, ::-1])), np.concatenate((values, mirrored))
