"""Selections as HDF5/JSON, and as libhdf5 writes them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection
from hsparse.format.selections.selection_encoding import encode_blocks, encode_points, encode_regular
from hsparse.format.selections.selection_json import parse_selection_json, selection_json
from hsparse.format.selections.serialized_selection import Serialized, decode_serialized
from tests.format.selection_strategies import any_selections, iterate
from tests.support.characters import CHARACTERS


@given(any_selections())
def test_round_trip(selection: Selection) -> None:
    text = json.dumps(selection_json(selection))
    assert iterate(parse_selection_json(json.loads(text), selection.extent)) == iterate(selection)


def test_forms() -> None:
    assert selection_json(Orthogonal.all((4,))) == {"class": "H5S_SEL_ALL"}
    assert selection_json(Orthogonal.none((4,))) == {"class": "H5S_SEL_NONE"}
    assert selection_json(Orthogonal((9, 9), (StridedSpan(1, 4, 2, 3), StridedSpan.range(2, 5)))) == {
        "class": "H5S_SEL_HYPERSLABS",
        "start": [1, 2],
        "stride": [4, 1],
        "count": [2, 1],
        "block": [3, 3],
    }
    assert selection_json(Boxes((9, 9), [[0, 0], [2, 3]], [[1, 1], [4, 5]])) == {
        "class": "H5S_SEL_HYPERSLABS",
        "coordinates": [[[0, 0], [0, 0]], [[2, 3], [3, 4]]],
    }
    assert selection_json(Orthogonal((9,), (np.array([5, 1], np.uint64),))) == {
        "class": "H5S_SEL_POINTS",
        "coordinates": [[5], [1]],
    }


def test_region_reference_keys_and_defaults() -> None:
    value: dict[str, Any] = {"select_type": "H5S_SEL_POINTS", "selection": [[1, 2]]}
    assert parse_selection_json(value, (3, 3)) == Points((3, 3), [[1, 2]])
    value = {"select_type": "H5S_SEL_HYPERSLABS", "selection": [[[0, 0], [1, 2]]]}
    assert parse_selection_json(value, (3, 3)) == Orthogonal.box((3, 3), (0, 0), (2, 3))
    value = {"class": "H5S_SEL_HYPERSLABS", "start": [1], "count": [2]}
    assert parse_selection_json(value, (3,)) == Orthogonal.box((3,), (1,), (3,))
    assert parse_selection_json({"class": "H5S_SEL_NONE"}, ()).size == 0
    assert parse_selection_json({"class": "H5S_SEL_POINTS", "coordinates": []}, (3,)).size == 0
    assert parse_selection_json({"class": "H5S_SEL_HYPERSLABS", "coordinates": []}, (3,)).size == 0


def _slabs(**fields: Any) -> dict[str, Any]:
    return {"class": "H5S_SEL_HYPERSLABS", **fields}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "JSON object"),
        ({}, "class is None"),
        ({"class": "H5S_SEL_ODD"}, "class is 'H5S_SEL_ODD'"),
        ({"class": "H5S_SEL_POINTS"}, "must be a list"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1]]}, "shape"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 2], [1]]}, "equal length"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 2.5]]}, "integers"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, "2"]]}, "integers"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 10**30]]}, "integers"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, -2]]}, "-2"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 5]]}, "dimension 1"),
        (_slabs(coordinates=[[[0, 0], [1, 5]]]), "imension 1"),
        (_slabs(coordinates=[[[2, 0], [1, 1]]]), "ends before it starts in dimension 0"),
        (_slabs(coordinates=[[[0, 0], [1, 1]], [[1, 1], [2, 2]]]), "overlap"),
        (_slabs(), "start must be a list"),
        (_slabs(start=[0], count=[1]), "start must be a list of 2"),
        (_slabs(start=[0, 0], count=[1, True]), "count must be integers"),
        (_slabs(start=[0, 0], count=[1, 1.0]), "count must be integers"),
        (_slabs(start=[0, 0], count=[1, -1]), "count must be integers"),
        (_slabs(start=[0, 0], count=[1, 6]), "Dimension 1"),
        (_slabs(start=[0, 0], count=[1, 2], block=[1, 2]), "overlap"),
    ],
)
def test_refused(value: Any, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        parse_selection_json(value, (4, 5))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.floats(0, 5) | st.text(CHARACTERS, max_size=2),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["H5S_SEL_POINTS", "H5S_SEL_HYPERSLABS"]),
    st.dictionaries(st.sampled_from(["coordinates", "start", "stride", "count", "block"]), JSON),
)
def test_any_fields_select_or_are_refused(kind: str, fields: dict[str, Any]) -> None:
    for extent in ((), (9,), (4, 5)):
        try:
            selection = parse_selection_json({"class": kind, **fields}, extent)
        except BadRequest:
            continue
        assert len(iterate(selection)) == selection.size


def test_scalar_has_no_hyperslabs() -> None:
    with pytest.raises(BadRequest, match="scalar"):
        parse_selection_json(_slabs(coordinates=[[[], []]]), ())


DIMS = (60,)


def read(text: str, dims: tuple[int, ...] = DIMS) -> Serialized:
    reader = ByteReader(memoryview(bytes.fromhex(text)))
    found = decode_serialized(reader, dims)
    reader.done("selection")
    return found


def column(*values: int) -> np.ndarray:
    return np.array(values, np.uint64).reshape(-1, 1)


BLOCK_V1 = "02000000 01000000 00000000 10000000 01000000 01000000 02000000 04000000"
BLOCKS_V1 = (
    "02000000 01000000 00000000 20000000 01000000 03000000"
    "00000000 00000000 07000000 08000000 14000000 15000000"
)
BLOCKS_V3 = "02000000 03000000 00 02 01000000 0300 0000 0000 0700 0800 1400 1500"
REGULAR_V2 = (
    "02000000 02000000 01 24000000 01000000"
    "0100000000000000 0a00000000000000 0500000000000000 0200000000000000"
)
REGULAR_V3 = "02000000 03000000 01 02 01000000 0100 0a00 0500 0200"
POINTS_V1 = "01000000 01000000 00000000 14000000 01000000 03000000 07000000 02000000 05000000"
POINTS_V2 = "01000000 02000000 02 01000000 0300 0700 0200 0500"


def test_no_such_version() -> None:
    for call in (
        lambda: encode_points([np.array([1])], 3),
        lambda: encode_blocks(column(1), column(1), 2),
        lambda: encode_regular([StridedSpan(1)], 1),
    ):
        with pytest.raises(BadRequest, match="no version"):
            call()
    with pytest.raises(BadRequest, match="32-bit"):
        encode_points([np.array([2**32], np.uint64)], 1)
    with pytest.raises(BadRequest, match="32-bit"):
        encode_blocks(column(0), column(2**32), 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("04000000 01000000 00000000 00000000", "type 4"),
        ("03000000 02000000 00000000 00000000", "version other than 1"),
        ("03000000 01000000 00000000 04000000", "or a length"),
        ("03000000 01000000 00000000 00000000 00", "followed by 1 bytes"),
        ("03000000 01000000 00000000 0000", "ends inside its selection header"),
        (POINTS_V1.replace("14000000", "15000000"), "says 21 bytes and has 20"),
        (POINTS_V1.replace("00000000", "01000000", 1), "reserved"),
        (POINTS_V1.replace("01000000 01000000", "01000000 03000000", 1), "version 3"),
        (POINTS_V2.replace("0700", "3c00"), "coordinate 60 in dimension 0, not below 60"),
        (POINTS_V2.replace("02000000 02", "02000000 03"), "in 3 bytes"),
        (POINTS_V2.replace("01000000 0300", "02000000 0300"), "rank 2, its dataspace 1"),
        (POINTS_V2.replace("0300", "ffff"), "131070 bytes are needed"),
        (BLOCK_V1.replace("02000000 04000000", "04000000 02000000"), "ends before it starts"),
        (BLOCK_V1.replace("04000000", "3c000000"), "not below 60"),
        (BLOCK_V1.replace("10000000", "0f000000"), "says 15 bytes"),
        (BLOCKS_V1.replace("00000000 20000000", "00000001 20000000", 1), "reserved"),
        (BLOCKS_V3.replace("00 02", "02 02"), "flags 2"),
        (REGULAR_V2.replace("01 24", "00 24"), "flags 0"),
        (REGULAR_V2.replace("24000000", "25000000"), "says 37 bytes"),
        (REGULAR_V2.replace("02000000 02000000", "02000000 04000000"), "version 4"),
        (REGULAR_V3.replace("0a00 0500", "0a00 0700"), "ends at 63"),
        (REGULAR_V3.replace("0a00", "0100"), "overlaps itself"),
        (REGULAR_V3.replace("0500 0200", "0000 0200"), "empty"),
        (REGULAR_V3.replace("0500 0200", "0500 0000"), "empty"),
        (REGULAR_V3.replace("0a00", "0000"), "overlaps itself|empty"),
        (REGULAR_V3.replace("0500", "ffff"), "ends at"),
    ],
)
def test_corrupt(text: str, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        read(text)


def test_counts_are_checked_before_anything_is_allocated() -> None:
    with pytest.raises(Corrupt, match="bytes are needed"):
        read("01000000 02000000 08 01000000 ffffffffffffff7f", (2**62,))
    with pytest.raises(Corrupt, match="bytes are needed"):
        read("02000000 03000000 00 08 01000000 ffffffffffffffff", (2**62,))
