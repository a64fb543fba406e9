"""Check the index columns of a group before the group is treated as a sparse matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.hdf5_matrix import Column, column_bytes, open_column, read_pointers
from hsparse.hdf5.importer.matrix_forms import EVENTS, MatrixForm
from hsparse.hdf5.importer.sparse_matrix import ELEMENTS_PER_REQUEST
from hsparse.model.layout import MAX_CHUNK_ELEMENTS
from hsparse.setting import MIB


def look_at_indices(
    objects: FileObjects, form: MatrixForm, *, most: int | None = None, ordered: bool = False
) -> MatrixForm:
    """Check a matrix and return its form; a form of events gets the number of pixels (highest event id + 1).

    With `ordered`, raises `Unsupported` if the elements of a coo matrix are not sorted by row, or if a row does not
    fit into a chunk. Raises `Unsupported` if a column has more than `most` bytes, and `Corrupt` if it is damaged.
    """
    if form.kind == EVENTS:
        ids = open_column(objects, form.indices[0], "indices")
        read_pointers(objects, form, ids.dims[0])
        highest = max(int(piece.max()) for piece in _pieces(ids, "event_id", most))
        form = replace(form, shape=(form.shape[0], highest + 1))
    elif form.kind == "coo" and ordered:
        _check_order(objects, form, most)
    else:
        return form
    if ordered and form.shape[1] > MAX_CHUNK_ELEMENTS:
        raise Unsupported(
            f"A row of {form.shape[1]} does not fit into a chunk, {MAX_CHUNK_ELEMENTS}: import the file."
        )
    return form


def _check_order(objects: FileObjects, form: MatrixForm, most: int | None) -> None:
    rows = open_column(objects, form.indices[0], "indices")
    last = 0
    for piece in _pieces(rows, "row index", most):
        if int(piece[0]) < last or (piece[1:] < piece[:-1]).any():
            raise Unsupported("The elements of the coo matrix are not sorted by row: it stays a group.")
        last = int(piece[-1])
    if last >= form.shape[0]:
        raise Corrupt(f"An index of the matrix is {last}, not below its extent {form.shape[0]}.")


def _pieces(column: Column, what: str, most: int | None) -> Iterator[NDArray[Any]]:
    """Yield a column's elements in pieces; `Corrupt` if an element is negative, `Unsupported` beyond `most` bytes."""
    nbytes = column_bytes(column)
    if most is not None and nbytes > most:
        raise Unsupported(
            f"Its {what} has {nbytes / MIB:.1f} MiB, more than the {most / MIB:.1f} that are checked "
            "when a file is opened: import it."
        )
    count, layout = column.dims[0], column.dataset.layout
    stored = layout.dims[0] if isinstance(layout, ChunkedLayout) else 1
    step = max(1, ELEMENTS_PER_REQUEST // stored) * stored
    for begin in range(0, count, step):
        piece = np.asarray(column.read((begin,), (min(begin + step, count),)))
        if int(piece.min()) < 0:
            raise Corrupt(f"Its {what} {int(piece.min())} is negative.")
        yield piece
