"""Sparse values of a region as bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, TooLarge
from hsparse.format.selections.points import Points
from hsparse.format.structured.region import (
    decode_region,
    decode_vlen_region,
    encode_region,
    encode_vlen_region,
)
from hsparse.model.datatype import parse_type
from hsparse.model.vlen_array import VlenArray
from tests.model.type_strategies import ITEMS, length_prefixed, text, values_of

EXTENT = (70000, 9)
points = st.lists(st.tuples(*(st.integers(0, length - 1) for length in EXTENT)), max_size=20)


@given(points)
def test_what_is_written_is_read(found: list[tuple[int, int]]) -> None:
    coords = np.array(found, np.uint64).reshape(-1, 2)
    values = np.arange(len(coords), dtype=">i4") - 3
    selection, read = decode_region(encode_region(Points(EXTENT, coords), values), values.dtype)
    assert np.array_equal(selection.coords(), coords)
    assert np.array_equal(read, values)
    assert selection.extent == EXTENT


def test_a_changed_byte_of_the_selection_is_found() -> None:
    coords = np.array([[3, 4], [60000, 8]], np.uint64)
    whole = encode_region(Points(EXTENT, coords), np.array([1, 2], "u1"))
    assert decode_region(whole, np.dtype("u1"))[1].tolist() == [1, 2]
    for place in range(len(whole) - 2):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        with pytest.raises(Corrupt):
            decode_region(damaged, np.dtype("u1"))


@pytest.mark.parametrize("change", [-1, 1])
def test_too_few_or_too_many_values_are_found(change: int) -> None:
    whole = encode_region(Points(EXTENT, np.zeros((3, 2), np.uint64)), np.arange(3, dtype="u4"))
    data = whole[:change] if change < 0 else whole + b"x"
    with pytest.raises(Corrupt, match="3 elements of 4 bytes"):
        decode_region(data, np.dtype("u4"))


@pytest.mark.parametrize("values", [np.zeros(2), np.zeros((3, 1)), np.zeros(())])
def test_values_must_be_one_a_point(values: np.ndarray) -> None:
    with pytest.raises(BadRequest, match="3 elements"):
        encode_region(Points(EXTENT, np.zeros((3, 2), np.uint64)), values)


WORDS = parse_type(text("H5T_VARIABLE")).element


def words(*found: str) -> VlenArray:
    return VlenArray.of([length_prefixed(text("H5T_VARIABLE"), word) for word in found])


@given(points, st.data())
def test_elements_of_variable_length(found: list[tuple[int, int]], data: st.DataObject) -> None:
    item = data.draw(ITEMS.filter(lambda item: parse_type(item).is_vlen))
    element = parse_type(item).element
    values = [length_prefixed(item, data.draw(values_of(item))) for _ in found]
    coords = np.array(found, np.uint64).reshape(-1, 2)
    whole = encode_vlen_region(Points(EXTENT, coords), VlenArray.of(values), element)
    selection, read = decode_vlen_region(whole, element)
    assert np.array_equal(selection.coords(), coords)
    assert list(read) == values


def test_a_changed_byte_of_any_section_is_found() -> None:
    coords = np.array([[3, 4], [60000, 8]], np.uint64)
    whole = encode_vlen_region(Points(EXTENT, coords), words("one", ""), WORDS)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        with pytest.raises(Corrupt):
            decode_vlen_region(damaged, WORDS)
    for length in range(len(whole)):
        with pytest.raises(Corrupt):
            decode_vlen_region(whole[:length], WORDS)


def test_elements_of_variable_length_must_be_one_a_point() -> None:
    with pytest.raises(BadRequest, match="3 elements"):
        encode_vlen_region(Points(EXTENT, np.zeros((3, 2), np.uint64)), words("a", "b"), WORDS)


def test_more_references_than_a_heap_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.format.structured.vlen_sections.MAX_REFERENCES", 2)
    with pytest.raises(TooLarge, match="select less"):
        encode_vlen_region(Points(EXTENT, np.zeros((3, 2), np.uint64)), words("a", "b", "c"), WORDS)
