"""The footer: found in a suffix, about this object and no other, and no changed byte goes unseen."""

from __future__ import annotations

import struct

import pytest

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.codec_library import lookup3
from hsparse.format.structured.container import (
    MAX_FOOTER,
    METADATA_FIXED,
    build,
    footer_size,
    read_footer,
    seal,
    unseal,
)


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
