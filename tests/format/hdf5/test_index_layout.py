"""What follows from an index's layout: the width of sizes, limits in chunks, versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hsparse.format.hdf5.format_revision import FormatRevision
from hsparse.format.hdf5.index_kind import IndexKind
from hsparse.format.hdf5.index_layout import IndexLayout

LAYOUT = IndexLayout(IndexKind.FIXED_ARRAY, (5, 2), (11, None), 4)


@pytest.mark.parametrize(
    ("chunk", "size", "width"),
    [
        ((1,), 1, 2),
        ((5,), 4, 2),
        ((255,), 1, 2),
        ((256,), 1, 3),
        ((2**16,), 1, 4),
        ((2**31, 2**31), 8, 8),
        ((2**32 - 1,) * 3, 8, 8),
    ],
)
def test_sizes_take_a_byte_more_than_the_nominal_size(chunk: tuple[int, ...], size: int, width: int) -> None:
    layout = replace(LAYOUT, chunk=chunk, element_size=size)
    assert layout.size_width == width
    assert replace(layout, sections=2, message_version=5).size_width == width
    assert replace(layout, sections=3, message_version=5).size_width == 8
    assert replace(layout, message_version=5).size_width == 8


def test_widths_of_addresses_and_lengths() -> None:
    narrow = replace(LAYOUT, address_width=4, length_width=2)
    assert (LAYOUT.undefined, narrow.undefined) == (2**64 - 1, 2**32 - 1)
    assert (LAYOUT.fields("BOLH").size, narrow.fields("BOLH").size) == (19, 9)
    assert narrow.fields("OL").pack(1, 2) == b"\1\0\0\0\2\0"
    assert replace(narrow, message_version=5).size_width == 2


def test_counts_and_clients() -> None:
    assert (LAYOUT.counts, LAYOUT.chunk_bytes, LAYOUT.rank) == ((3, None), 40, 2)
    clients = [replace(LAYOUT, sections=n, filtered=f).client for n in (0, 2, 3) for f in (False, True)]
    assert clients == [0, 1, 2, 3, 2, 3]


@pytest.mark.parametrize(("revision", "version"), list(zip(FormatRevision, (1, 0, 1), strict=True)))
def test_versions_of_blocks(revision: FormatRevision, version: int) -> None:
    assert replace(LAYOUT, revision=revision).block_version == 0
    assert replace(LAYOUT, revision=revision, sections=2).block_version == version
