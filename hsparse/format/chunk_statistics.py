"""Statistics of a sparse chunk: of each column of numbers how many are NaN, the least, the greatest, and the sum.

A column is the element, if it is a number, or a field of a compound that is one: the first `MAX_COLUMNS` of them. They
are stored with the chunk, in its footer (`hsparse.format.structured.footer`), so they are those of its elements.

A column has five words of 8 bytes: the number of NaN; the least and the greatest of the other numbers, and their sum
in two words, as `total` of `hsparse.format.reductions.partials` has it. Floats are doubles, integers have 64 bits. Of
no numbers at all the least is the greatest of the type, and the greatest the least. A number of NaN of `UNKNOWN` says
that a chunk has no statistics.

Tests: tests/format/test_chunk_statistics.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.format.reductions.partials import Partials

Statistics: TypeAlias = NDArray[np.uint64]
"""Words: (columns, 5) of one chunk, (n, columns, 5) of several."""
MAX_COLUMNS = 4
"""So many fit into a footer of 256 bytes."""
WORDS = 5
NANS, LEAST, GREATEST, TOTAL = 0, 1, 2, slice(3, 5)
UNKNOWN = 2**64 - 1
SUMMED = ("greatest", "least", "total")
"""The columns of `Partials` that statistics have, besides the count."""


def statistic_columns(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names of the columns that elements of `dtype` have statistics of; "" is the element itself."""
    names: Sequence[str] = dtype.names if dtype.names is not None else ("",)
    return tuple(name for name in names if _is_number(_column_type(dtype, name)))[:MAX_COLUMNS]


def statistics_of(values: NDArray[Any], dtype: np.dtype[Any]) -> Statistics:
    """Return the statistics of a chunk's values, (n,) of `dtype`."""
    names = statistic_columns(dtype)
    words = np.zeros((len(names), WORDS), np.uint64)
    for row, name in zip(words, names, strict=True):
        column = values[name] if name else values
        if column.dtype.kind == "f":
            missing = np.isnan(column)
            row[NANS] = np.count_nonzero(missing)
            column = column[~missing] if row[NANS] else column
        found = Partials.of_rows(column.reshape(1, -1), SUMMED)
        wide = _wide(column.dtype)
        row[LEAST], row[GREATEST] = (
            one.astype(wide).view(np.uint64)[0] for one in (found.least, found.greatest)
        )
        row[TOTAL] = found.total[:, 0].copy().view(np.uint64)
    return words


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
