"""The index kinds that libhdf5 chooses, and what follows from a layout: widths of sizes, limits, versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import h5py
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import FormatRevision
from hsparse.hdf5.format.chunk_indexes.index_layout import (
    STRUCTURED_KINDS,
    IndexKind,
    IndexLayout,
    choose_index_kind,
    parse_index_kind,
)
from tests.format.hdf5.host_file import make_file, open_layout


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 2), st.booleans(), st.integers(1, 4)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["earliest", "new", "newest"]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=200)
def test_libhdf5_chooses_the_same(
    dims: list[tuple[int, int, bool, int]], libver: str, early: bool, filtered: bool
) -> None:
    extent = tuple(length for length, *_ in dims)
    limits = tuple(None if endless else length + more for length, more, endless, _ in dims)
    chunk = tuple(
        step if limit is None else min(step, limit) for limit, (*_, step) in zip(limits, dims, strict=True)
    )
    early = early and not filtered

    def write(dset: h5py.Dataset) -> None:
        dset[...] = 1

    arguments: dict[str, Any] = {"shape": extent, "maxshape": limits, "chunks": chunk}
    if not early:
        arguments |= {"dtype": "<i4", "compression": 1 if filtered else None}
    layout = open_layout(make_file(libver, write, early=early, **arguments))[0]
    version = layout.message_version
    assert choose_index_kind(extent, limits, chunk, early=early, message_version=version) is layout.kind
    if version > 3 and not early:
        assert layout.kind in STRUCTURED_KINDS


def test_kinds_that_are_not_there_are_corrupt() -> None:
    assert parse_index_kind(3, STRUCTURED_KINDS) is IndexKind.FIXED_ARRAY
    assert parse_index_kind(2, list(IndexKind)) is IndexKind.IMPLICIT
    for number in (0, 2, 6):
        with pytest.raises(Corrupt, match=f"type {number}; it can be 1, 3, 4, 5"):
            parse_index_kind(number, STRUCTURED_KINDS)


LAYOUT = IndexLayout(IndexKind.FIXED_ARRAY, (5, 2), (11, None), 4)


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
