"""The chunks of a matrix's arrays: what is in them, and where they are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from hsparse.format.filters.pipeline import undo_filters
from hsparse.hdf5.format.plan import matrix_plan as matrix_chunks
from hsparse.hdf5.format.plan.matrix_plan import (
    MatrixColumn,
    MatrixPart,
    column_region,
    column_spec,
    encode_column_chunk,
)
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm
from tests.format.hdf5.plan.test_matrix_bands import stored_matrix

BANDS, _ = stored_matrix(sp.coo_array(np.ones((4, 5))), (1, 5), 0)


@pytest.mark.parametrize(("entries", "dims"), [(8, (8,)), (20, (20,)), (1000, (20,))])
@pytest.mark.parametrize("part", [MatrixPart.VALUES, MatrixPart.ACROSS])
def test_a_chunk_decodes_to_its_entries(
    monkeypatch: pytest.MonkeyPatch, part: MatrixPart, entries: int, dims: tuple[int, ...]
) -> None:
    monkeypatch.setattr(matrix_chunks, "ENTRIES", entries)
    column = MatrixColumn(BANDS, part)
    spec = column_spec(column)
    assert (spec.dims, spec.dtype.itemsize) == (dims, column.width)
    data = bytes(range(3 * column.width))
    size = dims[0] * column.width
    # Bytes that do not become less are filtered too: the chunk index has no masks.
    encoded = encode_column_chunk(spec, data)
    assert bytes(undo_filters(spec.filters[0], encoded, 0, size)) == data + bytes(size - len(data))


def test_chunks_lie_one_after_the_other() -> None:
    column = MatrixColumn(BANDS, MatrixPart.VALUES)
    region = column_region(("m", "data"), column, np.array([5, 16, 3], np.uint64))
    assert region.form is ChunkForm.COMPRESSED
    assert region.starts.tolist() == [0, 8, 24, 32]
    assert region.chunks.scaled.tolist() == [[0], [1], [2]]
    assert region.weights(range(2)).tolist() == [20 * column.width] * 2
