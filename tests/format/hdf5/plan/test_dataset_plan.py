"""What a dataset becomes in a file, and what no file can have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hsparse.errors import Corrupt, TooLarge, Unsupported
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.dataspace_message import FormatRevision
from hsparse.hdf5.format.plan.dataset_plan import DatasetPlan, check_transcoded, chunk_form, plan_dataset
from hsparse.hdf5.format.plan.file_form import STOCK, STRUCTURED, FileForm, FileLayout
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm, PlannedChunks
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan

ID = "d-1c2d3e4f-00112233-4455-667788-99aabb"
INT = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
REFERENCE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
REGION = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"}
CONTIGUOUS, CHUNKED, SPARSE = "H5D_CONTIGUOUS", "H5D_CHUNKED", "H5D_STRUCT_CHUNK"


def record(kind: Any, dims: list[int], layout: str, chunk: list[int], **more: Any) -> dict[str, Any]:
    stored: dict[str, Any] = {"class": layout, "dims": chunk}
    if layout == SPARSE:
        stored["flags"] = ["H5D_SPARSE_DATA"]
    if layout == CONTIGUOUS:
        stored["class"] = CHUNKED
        more["askedLayout"] = {"class": CONTIGUOUS}
    shape: dict[str, Any] = {"class": "H5S_SIMPLE", "dims": dims}
    if "maxdims" in more:
        shape["maxdims"] = more.pop("maxdims")
    properties = more.pop("properties", {})
    return {
        "id": ID,
        "type": kind,
        "shape": shape,
        "layout": stored,
        "creationProperties": properties,
        **more,
    }


def chunks(places: list[list[int]], size: int, sections: int = 0) -> PlannedChunks:
    count = len(places)
    table = np.zeros((count, sections, 3), np.uint64)
    return PlannedChunks(
        np.array(places, np.uint64).reshape(count, 1),
        np.arange(count, dtype=np.uint64),
        np.full(count, size, np.uint64),
        table,
        np.ones(count, np.uint64),
        np.ones(count, np.bool_),
    )


def plan(about: dict[str, Any], some: PlannedChunks, layout: FileForm = STOCK) -> DatasetPlan:
    return plan_dataset(about, some, layout, (), GlobalHeapPlan(), lambda name: None)


def test_forms() -> None:
    for kind, layout, stock, structured in (
        (INT, CHUNKED, ChunkForm.STORED, ChunkForm.STORED),
        (TEXT, CHUNKED, ChunkForm.TRANSCODED, ChunkForm.TRANSCODED),
        (REFERENCE, CHUNKED, ChunkForm.TRANSCODED, ChunkForm.TRANSCODED),
        (INT, SPARSE, ChunkForm.TRANSCODED, ChunkForm.STORED),
        (TEXT, SPARSE, ChunkForm.TRANSCODED, ChunkForm.STORED),
    ):
        spec = chunk_spec(record(kind, [10], layout, [5]))
        assert (chunk_form(spec, STOCK), chunk_form(spec, STRUCTURED)) == (stock, structured)
    for kind, newest, older in (
        (INT, ChunkForm.STORED, ChunkForm.STORED),
        (TEXT, ChunkForm.STORED, ChunkForm.TRANSCODED_SECTIONS),
        (REFERENCE, ChunkForm.TRANSCODED_SECTIONS, ChunkForm.TRANSCODED_SECTIONS),
    ):
        spec = chunk_spec(record(kind, [10], SPARSE, [5]))
        assert chunk_form(spec, STRUCTURED) is newest
        assert chunk_form(spec, FileForm(FileLayout.STRUCTURED, FormatRevision.RFC_2025_10)) is older
    dense = chunk_spec(record(INT, [10], CHUNKED, [5]))
    assert chunk_form(dense, STOCK, foreign=True) is ChunkForm.TRANSCODED


def test_one_chunk_that_nobody_asked_for_is_contiguous() -> None:
    one = chunks([[0]], 40)
    assert plan(record(INT, [10], CONTIGUOUS, [10]), one).planned.layout.data[1] == 1
    assert plan(record(INT, [10], CHUNKED, [10]), one).planned.layout.data[1] == 2
    growing = record(INT, [10], CONTIGUOUS, [10], maxdims=["H5S_UNLIMITED"])
    assert plan(growing, one).planned.layout.data[1] == 2
    assert plan(record(INT, [20], CONTIGUOUS, [10]), one).planned.layout.data[1] == 2


def test_chunks_of_a_wrong_size() -> None:
    with pytest.raises(Corrupt, match=f"The chunk 1 of {ID} has 19 bytes, not 20"):
        plan(record(INT, [10], CHUNKED, [5]), chunks([[1]], 19))


def test_what_no_file_can_have() -> None:
    with pytest.raises(Unsupported, match="layout=stock"):
        plan(record(REGION, [10], SPARSE, [5]), chunks([[1]], 19, 2), STRUCTURED)
    wide = record(INT, [2**26], SPARSE, [1], maxdims=[2**27])
    with pytest.raises(TooLarge, match="layout=stock"):
        plan(wide, chunks([[1]], 19, 2), STRUCTURED)
    assert plan(wide, chunks([[1]], 4, 2)).region is not None
    initial = record(
        INT, [10**6], CHUNKED, [5], properties={"initializer": ["arange", "--start=0", "--step=1"]}
    )
    with pytest.raises(TooLarge, match="199999 chunks of 20 bytes that were never written"):
        plan(initial, chunks([[1]], 20))


def test_what_was_never_written_is_made_where_no_library_fills_it_in() -> None:
    filled = {"fillValue": "none"}
    for about, complete in (
        (record(INT, [23], CHUNKED, [5], properties={"fillValue": 3}), False),
        (record(TEXT, [23], CHUNKED, [5]), False),
        (record(TEXT, [23], CHUNKED, [5], properties=filled), True),
        (record(TEXT, [23], SPARSE, [5], properties=filled), True),
        (record(TEXT, [10**9], SPARSE, [5], properties=filled), False),
    ):
        found = plan(about, chunks([[1], [3]], 20, 2 if about["layout"]["class"] == SPARSE else 0)).region
        assert found is not None
        assert found.chunks.scaled[:, 0].tolist() == (list(range(5)) if complete else [1, 3])
        assert found.chunks.stored.tolist() == [place in (1, 3) for place in found.chunks.scaled[:, 0]]


def test_nothing_is_made_where_there_are_no_elements() -> None:
    for dims in ([0], [3, 0]):
        about = record(TEXT, dims, CHUNKED, [5] * len(dims), maxdims=["H5S_UNLIMITED"] * len(dims))
        about["creationProperties"] = {"fillValue": "none"}
        found = plan(about, PlannedChunks.of([], len(dims)))
        assert found.pieces == ()


def test_chunks_that_would_be_made_too_large() -> None:
    spec = chunk_spec(record(INT, [10**6], SPARSE, [10**6]))
    check_transcoded(spec, STRUCTURED, 1000)
    check_transcoded(spec, STOCK, 4 * 10**6)
    with pytest.raises(TooLarge, match="layout=structured"):
        check_transcoded(spec, STOCK, 4 * 10**6 - 1)
