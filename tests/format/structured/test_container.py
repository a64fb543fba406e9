"""Structured chunks as objects: sections, checksums, footer, regions."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, TooLarge, Unsupported
from hsparse.format.codec_library import lookup3
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import undo_filters
from hsparse.format.selections.points import Points
from hsparse.format.structured.container import (
    MAX_FOOTER,
    METADATA_FIXED,
    METADATA_VL,
    build,
    footer_size,
    open_chunk,
    read_footer,
    seal,
    unseal,
)
from hsparse.format.structured.region import (
    decode_region,
    decode_vlen_region,
    encode_region,
    encode_vlen_region,
)
from hsparse.model.datatype import parse_type
from hsparse.model.vlen_array import VlenArray
from tests.model.type_strategies import ITEMS, length_prefixed, text, values_of

DEFLATE = (Filter(2, (4,)), Filter(1, (4,)))
LZF = (Filter(32000, (4, 0x0105, 100)),)

contents = st.lists(st.binary(max_size=200), min_size=2, max_size=3)
pipelines = st.lists(st.sampled_from([(), DEFLATE, LZF, (Filter(3),)]), min_size=3, max_size=3)


@given(contents, pipelines)
def test_the_layout_is_the_specifications(sections: list[bytes], filters: list[tuple[Filter, ...]]) -> None:
    filters = filters[: len(sections)]
    chunk = build(sections, METADATA_VL, filters)
    end = 0
    for content, pipeline, section in zip(sections, filters, chunk.sections, strict=True):
        checked = content + struct.pack("<I", lookup3(content)) if content else b""
        assert section.offset == end
        assert section.unfiltered == len(checked)
        stored = chunk.data[section.offset : section.offset + section.size]
        assert bytes(undo_filters(pipeline, stored, section.mask, len(checked))) == checked
        end += section.size
    assert end == len(chunk.data)


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (0, {"offset": 1}, "Section 0"),
        (1, {"offset": 10}, "Section 1"),
        (1, {"offset": 8}, "Section 1"),
        (1, {"size": 3}, "Section 1"),
        (1, {"size": 5}, "Section 1"),
        (1, {"unfiltered": 3}, "Section 1"),
        (0, {"unfiltered": 1 << 40}, "Section 0"),
        (1, {"mask": 1}, "Section 1"),
    ],
    ids=str,
)
def test_metadata_that_does_not_fit_is_corrupt(number: int, change: dict[str, int], message: str) -> None:
    chunk = build([b"where", b"what"], METADATA_FIXED, [(), ()])
    sections = list(chunk.sections)
    sections[number] = replace(sections[number], **change)
    with pytest.raises(Corrupt, match=message):
        open_chunk(chunk.data, sections, METADATA_FIXED, [(), ()])


def test_a_mandatory_filter_that_fails_is_refused() -> None:
    with pytest.raises(BadRequest, match="bitshuffle"):
        build([b"where", b"what"], METADATA_FIXED, [(), (Filter(32008, (0, 4, 3), optional=False),)])


def test_its_bytes_are_as_documented() -> None:
    footer = seal(build([b"ab", b"c"], METADATA_FIXED, [(), ()]), 5)[7:]
    assert struct.unpack_from("<QQQI", footer, 0) == (0, 6, 6, 0)
    assert struct.unpack_from("<QQQI", footer, 32) == (6, 1, 1, 0)
    assert struct.unpack_from("<QHHI", footer, 64) == (5, 2, 0, len(footer))
    assert footer[80:88] == b"hsparse\1"
    assert struct.unpack_from("<I", footer, 88) == (lookup3(footer[:88]),)
    assert len(footer) == 92


def test_every_changed_byte_is_found_and_its_section_named() -> None:
    chunk = build([b"where", b"what"], METADATA_FIXED, [(), ()])
    data = seal(chunk, 4)
    for place in range(len(data)):
        name = "Section 0" if place < 9 else "Section 1" if place < 13 else "footer"
        for change in (1, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= change
            with pytest.raises(Corrupt, match=name):
                unseal(bytes(damaged))


def test_a_footer_of_another_object_is_corrupt() -> None:
    short = seal(build([b"where", b"what"], METADATA_FIXED, [(), ()]), 4)
    longer = seal(build([b"where", b"whatever"], METADATA_FIXED, [(), ()]), 4)
    with pytest.raises(Corrupt, match="Section 1"):
        read_footer(short[-footer_size(2) :], len(longer))
    with pytest.raises(Corrupt, match="Section 1"):
        unseal(longer[: -footer_size(2)] + short[-footer_size(2) :])


def resealed(footer: bytearray) -> bytes:
    return bytes(footer[:-4]) + struct.pack("<I", lookup3(footer[:-4]))


def test_a_newer_version_is_told_apart_from_damage() -> None:
    footer = bytearray(seal(build([b""], (), [()]), 0))
    footer[-5] = 3
    with pytest.raises(Unsupported, match="version 3"):
        read_footer(resealed(footer), len(footer))


def test_a_footer_without_room_for_a_section_is_corrupt() -> None:
    footer = struct.pack("<I7sB", 16, b"hsparse", 1)
    with pytest.raises(Corrupt, match="too few"):
        read_footer(footer + struct.pack("<I", lookup3(footer)), 16)


@pytest.mark.parametrize("columns", [1, 4])
def test_statistics_stand_before_the_number_of_elements(columns: int) -> None:
    words = bytes(range(40)) * columns
    chunk = build([b"where", b"what"], METADATA_FIXED, [(), ()])
    data = seal(chunk, 4, words)
    footer = read_footer(data[-MAX_FOOTER:], len(data))
    assert (footer.statistics, footer.defined) == (words, 4)
    assert len(data) == len(chunk.data) + footer_size(2, columns) <= len(chunk.data) + MAX_FOOTER
    assert data[: len(chunk.data)] == chunk.data
    for version, count in [(1, columns), (2, columns + 1), (2, 0)]:
        damaged = bytearray(data[-footer_size(2, columns) :])
        damaged[-5] = version
        struct.pack_into("<H", damaged, len(damaged) - 18, count)
        with pytest.raises(Corrupt, match="do not describe"):
            read_footer(resealed(damaged), len(data))


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
