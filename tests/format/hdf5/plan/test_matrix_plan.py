"""The group of a matrix in a planned file; with elements it is in `tests/sn/virtual_file/test_matrix_pieces.py`."""

from __future__ import annotations

import io

import h5py
import pytest

from hsparse.hdf5.format.plan.domain_plan import plan_domain
from hsparse.hdf5.format.plan.file_form import FileForm
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from hsparse.hdf5.format.plan.planned_chunks import PlannedChunks
from tests.format.hdf5.plan.test_domain_plan import ROOT, SET, TYPE, hard
from tests.format.hdf5.plan.test_matrix_encoding import INT, record


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
