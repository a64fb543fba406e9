"""Bands of random matrices against scipy: every column, by any range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse as sp

from hsparse.errors import Corrupt, Moved
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.hdf5.made_band import BandMaker, MadeBand, add_pointers, column_bytes, known_pointers
from hsparse.format.hdf5.matrix_bands import MatrixBands, MatrixPart
from hsparse.format.hdf5.planned_chunks import PlannedChunks
from hsparse.format.kinds.sparse_chunk import SparseChunk, encode_sparse
from hsparse.format.structured.footer import unseal

INT = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
Stored = dict[tuple[int, ...], bytes]


def stored_matrix(
    matrix: sp.coo_array, dims: tuple[int, int], axis: int
) -> tuple[MatrixBands, dict[tuple[int, ...], bytes]]:
    """Return the bands of a matrix, and its stored chunks by their scaled coordinates."""
    spec = ChunkSpec("d-1", INT, dims, True, b"", ((), ()))
    scaled = np.stack((matrix.row // dims[0], matrix.col // dims[1]), 1)
    chunks: Stored = {}
    rows = []
    for place in np.unique(scaled, axis=0):
        inside = (scaled == place).all(1)
        offsets = matrix.row[inside] % dims[0] * dims[1] + matrix.col[inside] % dims[1]
        chunk = SparseChunk.empty(dims, spec.dtype).merge(offsets, matrix.data[inside].astype("<i4"))
        data, footer = unseal(encode_sparse(chunk, spec.filters))
        chunks[tuple(place.tolist())] = bytes(data)
        rows.append(
            (place, [(one.size, one.unfiltered, one.mask) for one in footer.sections], footer.defined)
        )
    count = len(rows)
    planned = PlannedChunks(
        np.array([place for place, _, _ in rows], np.uint64).reshape(count, 2),
        np.zeros(count, np.uint64),
        np.array([sum(size for size, _, _ in sections) for _, sections, _ in rows], np.uint64),
        np.array([sections for _, sections, _ in rows], np.uint64).reshape(count, 2, 3),
        np.array([defined for _, _, defined in rows], np.uint64),
        np.ones(count, np.bool_),
    )
    return MatrixBands.of(spec, matrix.shape, axis, planned), chunks


def made(bands: MatrixBands, chunks: Stored, band: int) -> MadeBand:
    maker = BandMaker(bands, band)
    for row in range(int(bands.rows[band]), int(bands.rows[band + 1])):
        maker.add(chunks[tuple(bands.chunks.scaled[row].tolist())])
    return maker.finish()


@st.composite
def matrices(draw: st.DrawFn) -> sp.coo_array:
    shape = draw(st.tuples(st.integers(1, 30), st.integers(1, 30)))
    places = draw(st.sets(st.integers(0, shape[0] * shape[1] - 1), max_size=60))
    row, col = np.divmod(np.array(sorted(places), np.int64), shape[1])
    values = np.arange(1, len(row) + 1)
    return sp.coo_array((values, (row, col)), shape)


@given(matrices(), st.tuples(st.integers(1, 30), st.integers(1, 30)), st.sampled_from([0, 1]), st.data())
def test_any_entries_are_those_of_scipy(
    matrix: sp.coo_array, dims: tuple[int, int], axis: int, data: st.DataObject
) -> None:
    bands, chunks = stored_matrix(matrix, dims, axis)
    expected = matrix.tocsc() if axis else matrix.tocsr()
    along = np.repeat(np.arange(matrix.shape[axis]), np.diff(expected.indptr))
    columns: dict[MatrixPart, Any] = {
        MatrixPart.VALUES: expected.data,
        MatrixPart.ACROSS: expected.indices,
        MatrixPart.ALONG: along,
        MatrixPart.POINTERS: expected.indptr,
    }
    for part, column in columns.items():
        assert bands.entries(part) == len(column)
        first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(column))] * 2)))
        some = {band: made(bands, chunks, band) for band in bands.bands_of(part, first, last)}
        if part is MatrixPart.POINTERS:
            found = known_pointers(bands, first, last)
            for band, one in some.items():
                add_pointers(bands, band, one, found, first)
        else:
            raw = b"".join(
                bytes(column_bytes(bands, band, one, part, first, last)) for band, one in some.items()
            )
            found = np.frombuffer(raw, "<i4")
        assert found.tolist() == column[first:last].tolist()
        assert all(one.nbytes <= bands.weights[band] for band, one in some.items())


def test_what_is_not_as_planned() -> None:
    matrix = sp.coo_array((np.ones(2), ([0, 9], [0, 5])), (10, 6))
    bands, chunks = stored_matrix(matrix, (5, 6), 0)
    with pytest.raises(Corrupt, match="A chunk of d-1 is corrupt"):
        BandMaker(bands, 0).add(chunks[0, 0][:-1])
    shrunk = MatrixBands.of(bands.spec, (9, 6), 0, bands.chunks)
    with pytest.raises(Moved, match="being made smaller"):
        BandMaker(shrunk, 1).add(chunks[1, 0])
