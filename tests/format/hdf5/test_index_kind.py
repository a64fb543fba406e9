"""Which index a dataset has: the same that libhdf5 chooses."""

from __future__ import annotations

from typing import Any

import h5py
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.hdf5.index_kind import STRUCTURED_KINDS, IndexKind, choose_index, parse_kind
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
    assert choose_index(extent, limits, chunk, early=early, message_version=version) is layout.kind
    if version > 3 and not early:
        assert layout.kind in STRUCTURED_KINDS


def test_kinds_that_are_not_there_are_corrupt() -> None:
    assert parse_kind(3, STRUCTURED_KINDS) is IndexKind.FIXED_ARRAY
    assert parse_kind(2, list(IndexKind)) is IndexKind.IMPLICIT
    for number in (0, 2, 6):
        with pytest.raises(Corrupt, match=f"type {number}; it can be 1, 3, 4, 5"):
            parse_kind(number, STRUCTURED_KINDS)
