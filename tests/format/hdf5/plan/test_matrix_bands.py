"""Bands of random matrices against scipy: every column, by any range, from the bands that it needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse as sp

from hsparse.errors import Corrupt, Moved, TooLarge
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.sparse import SparseChunk, encode_sparse
from hsparse.format.structured.container import unseal
from hsparse.hdf5.format.plan.matrix_plan import (
    MAX_LINES,
    BandSorter,
    MatrixBands,
    MatrixColumn,
    MatrixPart,
    SortedBand,
    add_pointers,
    check_bands,
    check_lines,
    encode_entries,
    known_pointers,
)
from hsparse.hdf5.format.plan.planned_chunks import PlannedChunks

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


def made(bands: MatrixBands, chunks: Stored, band: int) -> SortedBand:
    maker = BandSorter(bands, band)
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
                bytes(encode_entries(bands, band, one, part, first, last)) for band, one in some.items()
            )
            found = np.frombuffer(raw, "<i4")
        assert found.tolist() == column[first:last].tolist()
        assert all(one.nbytes <= bands.weights[band] for band, one in some.items())


def test_what_is_not_as_planned() -> None:
    matrix = sp.coo_array((np.ones(2), ([0, 9], [0, 5])), (10, 6))
    bands, chunks = stored_matrix(matrix, (5, 6), 0)
    with pytest.raises(Corrupt, match="A chunk of d-1 is corrupt"):
        BandSorter(bands, 0).add(chunks[0, 0][:-1])
    shrunk = MatrixBands.of(bands.spec, (9, 6), 0, bands.chunks)
    with pytest.raises(Moved, match="being made smaller"):
        BandSorter(shrunk, 1).add(chunks[1, 0])


@given(matrices(), st.tuples(st.integers(1, 30), st.integers(1, 30)), st.sampled_from([0, 1]), st.data())
def test_only_bands_that_are_needed(
    matrix: sp.coo_array, dims: tuple[int, int], axis: int, data: st.DataObject
) -> None:
    bands, _ = stored_matrix(matrix, dims, axis)
    for part in (MatrixPart.VALUES, MatrixPart.POINTERS):
        first, last = sorted(data.draw(st.tuples(*[st.integers(0, bands.entries(part))] * 2)))
        needed = []
        for band, line in enumerate(bands.lines.tolist()):
            if part is MatrixPart.POINTERS:
                inside = any(line < number < line + dims[axis] for number in range(first, last))
            else:
                inside = max(first, int(bands.starts[band])) < min(last, int(bands.starts[band + 1]))
            needed += [band] if inside else []
        assert list(bands.bands_of(part, first, last)) == needed


def test_a_column_in_bytes() -> None:
    bands, _ = stored_matrix(sp.coo_array(np.ones((4, 5))), (2, 2), 0)
    assert bands.lines.tolist() == [0, 2]
    assert bands.starts.tolist() == [0, 10, 20]
    pointers = MatrixColumn(bands, MatrixPart.POINTERS)
    assert (pointers.entries, pointers.width, pointers.size) == (5, 4, 20)
    assert MatrixColumn(bands, MatrixPart.VALUES).span(5, 13) == (1, 4)
    assert bands.memory(MatrixPart.VALUES, 0, 10, 0) == int(bands.weights[0])
    assert bands.memory(MatrixPart.VALUES, 0, 20, 10**9) == int(bands.weights.sum())
    assert bands.nbytes > 0


def test_indices_are_wide_where_they_must_be() -> None:
    bands, _ = stored_matrix(sp.coo_array(np.ones((1, 1))), (1, 1), 0)
    for shape, width in (((2**31 - 1, 5), 4), ((2**31, 5), 8), ((5, 2**31), 8)):
        assert MatrixBands.of(bands.spec, shape, 0, bands.chunks).index.itemsize == width


def test_what_is_too_large() -> None:
    bands, _ = stored_matrix(sp.coo_array(np.ones((4, 5))), (2, 2), 1)
    check_bands(bands, int(bands.weights.max()))
    with pytest.raises(TooLarge, match=r"2 columns of d-1 .* ask for the form by rows"):
        check_bands(bands, int(bands.weights.max()) - 1)
    check_bands(MatrixBands.of(bands.spec, (4, 5), 1, bands.chunks.take(np.zeros(0, np.intp))), 0)
    check_lines(replace(bands, shape=(1, MAX_LINES)))
    with pytest.raises(TooLarge, match=r"4294967297 columns.*binsparse-coo"):
        check_lines(replace(bands, shape=(1, MAX_LINES + 1)))
