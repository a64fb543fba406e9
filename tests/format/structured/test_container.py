"""The container: layout, checksums before filters, and damage named by section."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.byte_planes import BytePlanes
from hsparse.format.codec_library import lookup3
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import undo_filters
from hsparse.format.structured.container import (
    METADATA_FIXED,
    METADATA_VL,
    Section,
    build,
    open_chunk,
    open_planes,
)

DEFLATE = (Filter(2, (4,)), Filter(1, (4,)))
LZF = (Filter(32000, (4, 0x0105, 100)),)

contents = st.lists(st.binary(max_size=200), min_size=2, max_size=3)
pipelines = st.lists(st.sampled_from([(), DEFLATE, LZF, (Filter(3),)]), min_size=3, max_size=3)


@given(contents, pipelines, st.sampled_from([METADATA_FIXED, METADATA_VL]))
def test_sections_come_back(
    sections: list[bytes], filters: list[tuple[Filter, ...]], metadata: tuple[int, ...]
) -> None:
    filters = filters[: len(sections)]
    chunk = build(sections, metadata, filters)
    found = open_chunk(chunk.data, chunk.sections, metadata, filters)
    assert [bytes(section) for section in found] == sections


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


def test_an_unfiltered_chunk_is_the_sections_and_one_checksum() -> None:
    chunk = build([b"where", b"what"], METADATA_FIXED, [(), ()])
    assert chunk.data == b"where" + struct.pack("<I", lookup3(b"where")) + b"what"
    assert chunk.sections == (Section(0, 9, 9, 0), Section(9, 4, 4, 0))


def test_an_empty_section_has_neither_checksum_nor_filters() -> None:
    chunk = build([b"none", b"", b""], METADATA_VL, [DEFLATE] * 3)
    assert chunk.sections[1:] == (Section(chunk.sections[0].size, 0, 0, 0),) * 2


def test_unfiltered_sections_are_views() -> None:
    chunk = build([b"where", b"what"], METADATA_FIXED, [(), ()])
    data = chunk.data
    values = open_chunk(data, chunk.sections, METADATA_FIXED, [(), ()])[1]
    assert isinstance(values, memoryview)
    assert values.obj is data


def test_a_damaged_checksum_names_the_section() -> None:
    chunk = build([b"where", b"what"], METADATA_VL, [(), ()])
    for place in range(len(chunk.data)):
        damaged = bytearray(chunk.data)
        damaged[place] ^= 1
        name = r"Section 0 \(selection\)" if place < 9 else r"Section 1 \(fixed-size values\)"
        with pytest.raises(Corrupt, match=name):
            open_chunk(bytes(damaged), chunk.sections, METADATA_VL, [(), ()])


def test_checksums_of_bytes_that_were_checked_are_cut_off_unread() -> None:
    chunk = build([b"where", b"what"], METADATA_VL, [(), ()])
    damaged = bytearray(chunk.data)
    damaged[0] ^= 1
    section = chunk.sections[0]
    found = open_planes(0, bytes(damaged)[: section.size], section, METADATA_VL, ())
    assert not isinstance(found, BytePlanes)
    assert bytes(found) == bytes([ord("w") ^ 1]) + b"here"


def test_a_section_that_does_not_decode_is_named() -> None:
    chunk = build([b"where" * 9, b"what" * 9], METADATA_FIXED, [DEFLATE, DEFLATE])
    data = bytearray(chunk.data)
    data[chunk.sections[1].offset] ^= 0xFF
    with pytest.raises(Corrupt, match=r"Section 1 .*deflate"):
        open_chunk(bytes(data), chunk.sections, METADATA_FIXED, [DEFLATE, DEFLATE])


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


def test_a_section_too_short_for_its_checksum_is_corrupt() -> None:
    sections = (Section(0, 4, 4, 0), Section(4, 0, 0, 0))
    with pytest.raises(Corrupt, match="too few"):
        open_chunk(b"abcd", sections, METADATA_FIXED, [(), ()])


def test_another_number_of_sections_is_corrupt() -> None:
    chunk = build([b"where", b"what"], METADATA_FIXED, [(), ()])
    with pytest.raises(Corrupt, match="2 sections"):
        open_chunk(chunk.data, chunk.sections, METADATA_FIXED, [(), (), ()])


def test_a_mandatory_filter_that_fails_is_refused() -> None:
    with pytest.raises(BadRequest, match="bitshuffle"):
        build([b"where", b"what"], METADATA_FIXED, [(), (Filter(32008, (0, 4, 3), optional=False),)])
