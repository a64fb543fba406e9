"""The container: layout, checksums before filters, and damage named by section."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.codec_library import lookup3
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import undo_filters
from hsparse.format.structured.container import (
    METADATA_FIXED,
    METADATA_VL,
    build,
    open_chunk,
)

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
