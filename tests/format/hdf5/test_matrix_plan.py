"""Matrices in a planned file: which datasets are ones, their bands and chunks against scipy, their group."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse as sp

from hsparse.errors import Corrupt, Moved, TooLarge
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.pipeline import undo_filters
from hsparse.format.kinds.sparse import SparseChunk, encode_sparse
from hsparse.format.structured.container import unseal
from hsparse.hdf5.format.plan import matrix_plan as matrix_chunks
from hsparse.hdf5.format.plan.domain_plan import plan_domain
from hsparse.hdf5.format.plan.file_form import FileForm
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding, declared_encoding
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
    column_region,
    column_spec,
    encode_column_chunk,
    encode_entries,
    known_pointers,
)
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm, PlannedChunks
from tests.format.hdf5.test_domain_plan import ROOT, SET, TYPE, hard
from tests.model.type_strategies import ID

INT = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
WORD = {"class": "H5T_STRING", "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD", "length": 4}
TEXT = WORD | {"length": "H5T_VARIABLE"}
REFERENCE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
COLOURS = {
    "class": "H5T_ENUM",
    "base": INT,
    "members": [{"name": "FALSE", "value": 0}, {"name": "TRUE", "value": 1}],
}


def record(
    kind: Any = INT, dims: tuple[int, ...] = (9, 9), flags: tuple[str, ...] = ("H5D_SPARSE_DATA",)
) -> Any:
    layout = {
        "class": "H5D_STRUCT_CHUNK",
        "dims": [max(1, min(4, dim)) for dim in dims],
        "flags": list(flags),
    }
    if not flags:
        layout = {"class": "H5D_CHUNKED", "dims": layout["dims"]}
    shape = {"class": "H5S_SIMPLE", "dims": list(dims)}
    return {"id": ID, "type": kind, "shape": shape, "layout": layout}


@pytest.mark.parametrize(
    ("about", "anndata", "binsparse"),
    [
        (record(), True, True),
        (record(WORD), True, False),
        (record(COLOURS), True, False),
        (record(REFERENCE), False, False),
        (record(TEXT), False, False),
        (record(dims=(9,)), False, False),
        (record(dims=(9, 9, 9)), False, False),
        (record(dims=(0, 9)), False, False),
        (record(flags=()), False, False),
        (record() | {"shape": {"class": "H5S_NULL"}}, False, False),
    ],
)
def test_what_is_a_matrix(about: Any, anndata: bool, binsparse: bool) -> None:
    assert MatrixEncoding.ANNDATA_CSC.fits(about) is anndata
    assert MatrixEncoding.BINSPARSE_COO.fits(about) is binsparse


def test_what_is_said() -> None:
    found = MatrixEncoding.ANNDATA_CSC.attributes(record(), 5)
    assert {name: one["value"] for name, one in found.items()} == {
        "encoding-type": "csc_matrix",
        "encoding-version": "0.1.0",
        "shape": [9, 9],
    }
    filled = record() | {"creationProperties": {"fillValue": 7}}
    said = json.loads(MatrixEncoding.BINSPARSE_CSR.attributes(filled, 5)["binsparse"]["value"])["binsparse"]
    assert said == {
        "version": "0.1.0",
        "format": "CSR",
        "shape": [9, 9],
        "number_of_stored_values": 5,
        "fill": True,
        "data_types": {
            "pointers_to_1": "int32",
            "indices_1": "int32",
            "values": "int32",
            "fill_value": "int32",
        },
    }
    listed = json.loads(MatrixEncoding.BINSPARSE_COO.attributes(record(), 2**31)["binsparse"]["value"])
    assert listed["binsparse"]["data_types"] == {
        "indices_0": "int64",
        "indices_1": "int64",
        "values": "int32",
    }
    assert "fill" not in listed["binsparse"]


def declaring(**attributes: Any) -> Any:
    """Return a matrix with attributes of these values; `_` stands for `-` in their names."""
    return record() | {
        "attributes": {name.replace("_", "-"): {"value": one} for name, one in attributes.items()}
    }


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        (record(), None),
        (declaring(encoding_type="csr_matrix"), MatrixEncoding.ANNDATA_CSR),
        (declaring(encoding_type="csc_matrix"), MatrixEncoding.ANNDATA_CSC),
        (declaring(encoding_type="array"), None),
        (declaring(encoding_type=["csr_matrix"]), None),
        (declaring(encoding_type=None), None),
        (record() | {"attributes": {"h5sparse_format": {"value": "csc"}}}, MatrixEncoding.ANNDATA_CSC),
        (declaring(binsparse='{"binsparse": {"format": "CSC"}}'), MatrixEncoding.BINSPARSE_CSC),
        (declaring(binsparse='{"format": "COOR"}'), MatrixEncoding.BINSPARSE_COO),
        (declaring(binsparse='{"format": "DMAT"}'), None),
        (declaring(binsparse='{"format": [1]}'), None),
        (declaring(binsparse="[]"), None),
        (declaring(binsparse="no JSON"), None),
    ],
)
def test_what_attributes_declare(about: Any, expected: MatrixEncoding | None) -> None:
    assert declared_encoding(about) is expected


def test_an_old_declaration_stays_if_it_may() -> None:
    old = record() | {"attributes": {"h5sparse_format": {"value": "csc"}}}
    kept = MatrixEncoding.ANNDATA_CSC.attributes(old, 5, keep_old=True)
    assert {name: one["value"] for name, one in kept.items()} == {
        "h5sparse_format": "csc",
        "h5sparse_shape": [9, 9],
    }
    assert "encoding-type" in MatrixEncoding.ANNDATA_CSC.attributes(old, 5)
    assert "encoding-type" in MatrixEncoding.ANNDATA_CSC.attributes(record(), 5, keep_old=True)


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


@pytest.mark.parametrize("encoding", list(MatrixEncoding))
def test_a_matrix_without_elements(encoding: MatrixEncoding) -> None:
    matrix = record(INT | {"id": TYPE}) | {
        "id": SET,
        "creationProperties": {"fillValue": 7, "CreateOrder": 1},
    }
    records = {
        ROOT: {"id": ROOT, "links": {"m": hard(SET), "again": hard(SET), "t": hard(TYPE)}},
        SET: matrix,
        TYPE: {"id": TYPE, "type": INT},
    }
    plan = plan_domain(ROOT, records, {SET: PlannedChunks.of([], 2)}, FileForm(matrices=encoding))
    data = plan.file
    pointers = [key for key, column in plan.columns.items() if column.size]
    assert len(pointers) == (0 if encoding.kind == "coo" else 1)
    # What others bring is zeros here, which the pointers of nothing are.
    image = bytearray(data.size)
    for address, piece in data.pieces_in(0, data.size):
        image[address : address + piece.size] = (
            bytes(piece.size) if piece.make is None else data.bytes_of(piece)
        )
    with h5py.File(io.BytesIO(bytes(image))) as file:
        assert sorted(file) == ["again", "m", "t"]
        group = file["again"]
        assert group == file["m"]
        values = group["values" if encoding.is_binsparse else "data"]
        assert values.shape == (0,)
        assert values.fillvalue == 7
        assert h5py.h5t.TypeID.committed(values.id.get_type())
        assert ("fill_value" in group) is encoding.is_binsparse
        if encoding.is_binsparse:
            assert group["fill_value"][()].tolist() == [7]
        if pointers:
            assert group["pointers_to_1" if encoding.is_binsparse else "indptr"][()].tolist() == [0] * 10
    assert plan.nbytes > 0
