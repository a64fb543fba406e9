"""Statistics of a sparse chunk: of each column of numbers how many are NaN, the least, the greatest, and the sum.

A column is the element, if it is a number, or a field of a compound that is one: the first `MAX_COLUMNS` of them. They
are stored with the chunk, in its footer (`hsparse.format.structured.container`), so they are those of its elements.

A column has five words of 8 bytes: the number of NaN; the least and the greatest of the other numbers, and their sum
in two words, as `total` of `hsparse.format.reductions.partials` has it. Floats are doubles, integers have 64 bits. Of
no numbers at all the least is the greatest of the type, and the greatest the least. A number of NaN of `UNKNOWN` says
that a chunk has no statistics.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.format.reductions.partials import LIMB, LOW, Partials, extremes, split_integers

Statistics: TypeAlias = NDArray[np.uint64]
"""Words: (columns, 5) of one chunk, (n, columns, 5) of several."""
MAX_COLUMNS = 4
"""So many fit into a footer of 256 bytes."""
WORDS = 5
NANS, LEAST, GREATEST, TOTAL = 0, 1, 2, slice(3, 5)
UNKNOWN = 2**64 - 1
FLOAT_WORDS, SIGNED_WORDS, UNSIGNED_WORDS = map(struct.Struct, ("<Q4d", "<QqqqQ", "<QQQqQ"))
SUMMED = ("greatest", "least", "total")
"""The columns of `Partials` that statistics have, besides the count."""


def statistic_columns(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names of the columns that elements of `dtype` have statistics of; "" is the element itself."""
    names: Sequence[str] = dtype.names if dtype.names is not None else ("",)
    return tuple(name for name in names if _is_number(_column_type(dtype, name)))[:MAX_COLUMNS]


def statistics_of(values: NDArray[Any], dtype: np.dtype[Any]) -> Statistics:
    """Return the statistics of a chunk's values, (n,) of `dtype`."""
    columns = [values[name] if name else values for name in statistic_columns(dtype)]
    data = b"".join(map(_column_words, columns))
    return np.frombuffer(data, "<u8").reshape(len(columns), WORDS).astype(np.uint64)


def _column_words(column: NDArray[Any]) -> bytes:
    """Return the words of one column; plain calls of numpy, because most chunks are small."""
    if column.dtype.kind == "f":
        doubles = column.astype(np.float64)
        nans = int(np.count_nonzero(np.isnan(doubles)))
        doubles = doubles[~np.isnan(doubles)] if nans else doubles
        if not doubles.size:
            return FLOAT_WORDS.pack(nans, np.inf, -np.inf, 0.0, 0.0)
        with np.errstate(invalid="ignore", over="ignore"):
            return FLOAT_WORDS.pack(nans, doubles.min(), doubles.max(), doubles.sum(), 0.0)
    words = SIGNED_WORDS if column.dtype.kind == "i" else UNSIGNED_WORDS
    if not column.size:
        least, greatest = extremes(column.dtype)
        return words.pack(0, greatest, least, 0, 0)
    if column.dtype.itemsize < 8:
        total = int(column.sum(dtype=np.int64))
    else:
        high, low = split_integers(column)
        total = (int(high.sum()) << LIMB) + int(low.sum())
    return words.pack(0, int(column.min()), int(column.max()), total >> LIMB, total & LOW)


def unknown_statistics(count: int, columns: int) -> Statistics:
    """Return the statistics of chunks that have none."""
    words = np.zeros((count, columns, WORDS), np.uint64)
    words[..., NANS] = UNKNOWN
    return words


def is_known(words: Statistics) -> NDArray[np.bool_]:
    """Return which of some chunks, (n, columns, 5), have statistics."""
    if not words.shape[1]:
        return np.zeros(len(words), np.bool_)
    return np.asarray(words[:, 0, NANS] != UNKNOWN)


def extremes_of(words: Statistics, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the least and the greatest numbers of a column of `dtype` in some chunks, given its words, (n, 5)."""
    wide = _wide(dtype)
    native = dtype.newbyteorder("=")
    least, greatest = (np.ascontiguousarray(words[:, at]).view(wide) for at in (LEAST, GREATEST))
    return least.astype(native), greatest.astype(native)


def partials_of(
    words: Statistics, defined: NDArray[np.uint64], dtype: np.dtype[Any], columns: Sequence[str]
) -> Partials:
    """Return what the elements of each of some chunks reduce to, a place each; `words` (n, 5) are of one column.

    As in numpy a chunk with a NaN has that as sum, least and greatest number.
    """
    found = Partials.empty(len(words), dtype, columns)
    found.count[:] = defined
    if found.total.size:
        total = np.ascontiguousarray(words[:, TOTAL].T)
        found.total[:] = total.view(found.total.dtype)
    least, greatest = extremes_of(words, dtype)
    if len(found.least):
        found.least[:] = least
    if len(found.greatest):
        found.greatest[:] = greatest
    if dtype.kind == "f":
        missing = words[:, NANS] > 0
        for column in (found.total[0], found.least, found.greatest):
            if len(column):
                column[missing] = np.nan
    return found


def _column_type(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    return dtype[name] if name else dtype


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.subdtype is None and dtype.kind in "biuf" and dtype.itemsize <= 8


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which a number is stored."""
    return np.dtype({"f": "f8", "i": "i8"}.get(dtype.kind, "u8"))
