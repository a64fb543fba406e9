"""The chunk map against a dict; its object, of which no byte changes unseen."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.chunk_map import HEAD, MAGIC, ChunkMap, decode_map, digests, encode_map
from hsparse.format.codec_library import crc32

RANK, SECTIONS = 2, 2
row = st.tuples(
    st.tuples(*[st.integers(0, 4)] * RANK),
    st.integers(0, 2**64 - 1),
    st.lists(st.integers(0, 2**64 - 1), min_size=3 * SECTIONS, max_size=3 * SECTIONS),
    st.integers(0, 2**32),
)
rows = st.lists(row, unique_by=lambda one: one[0], max_size=20)
Row = tuple[tuple[int, ...], int, list[int], int]


def made(some: Sequence[Row]) -> ChunkMap:
    """Return a map's rows, in the order given."""
    return ChunkMap(
        np.array([one[0] for one in some], np.uint64).reshape(-1, RANK),
        np.array([one[1] for one in some], np.uint64),
        np.array([one[2] for one in some], np.uint64).reshape(-1, SECTIONS, 3),
        np.array([one[3] for one in some], np.uint64),
        np.zeros((len(some), 0, 5), np.uint64),
    )


def plain(found: ChunkMap) -> list[Row]:
    return [
        (tuple(scaled), digest, [number for section in sections for number in section], defined)
        for scaled, digest, sections, defined in zip(
            found.scaled.tolist(),
            found.digest.tolist(),
            found.sections.tolist(),
            found.defined.tolist(),
            strict=True,
        )
    ]


@given(rows, rows)
def test_newer_rows_take_the_place_of_older_ones(old: list[Row], new: list[Row]) -> None:
    merged = ChunkMap.empty(RANK, SECTIONS).merge(made(old)).merge(made(new))
    expected = {one[0]: one for one in old} | {one[0]: one for one in new}
    assert plain(merged) == [expected[scaled] for scaled in sorted(expected)]


@given(rows, rows)
def test_only_rows_of_the_same_etag_are_found(known: list[Row], asked: list[Row]) -> None:
    found = ChunkMap.empty(RANK, SECTIONS).merge(made(known))
    mixed = [*asked, *known]
    places = found.find(made(mixed).scaled, made(mixed).digest).tolist()
    by_name = {one[:2]: one for one in known}
    for one, place in zip(mixed, places, strict=True):
        assert (place >= 0) == (one[:2] in by_name)
        if place >= 0:
            assert plain(found)[place] == by_name[one[:2]]


@given(rows)
def test_what_lies_outside_a_grid_is_left_out(some: list[Row]) -> None:
    sorted_rows = ChunkMap.empty(RANK, SECTIONS).merge(made(some))
    assert [one[0] for one in plain(sorted_rows.inside((2, 3)))] == sorted(
        one[0] for one in some if one[0][0] < 2 and one[0][1] < 3
    )


@given(rows)
def test_the_object_holds_all_of_it(some: list[Row]) -> None:
    there = ChunkMap.empty(RANK, SECTIONS).merge(made(some))
    assert plain(decode_map(encode_map(there), RANK, SECTIONS)) == plain(there)


def example(count: int = 30) -> ChunkMap:
    return made([((i, 0), i << 40, [i, 2 * i, 0, 8, 8, 0], i) for i in range(count)])


def test_no_changed_byte_goes_unseen() -> None:
    data = encode_map(example())
    for place in range(len(data)):
        bad = bytearray(data)
        bad[place] ^= 0x10
        with pytest.raises(Corrupt):
            decode_map(bytes(bad), RANK, SECTIONS)
        with pytest.raises(Corrupt):
            decode_map(data[:place], RANK, SECTIONS)


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", crc32(body))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        HEAD.pack(MAGIC, 2, RANK, SECTIONS, 0),
        HEAD.pack(MAGIC, 1, RANK + 1, SECTIONS, 0),
        HEAD.pack(MAGIC, 1, RANK, SECTIONS, 2**31) + bytes(100),
        HEAD.pack(MAGIC, 1, RANK, SECTIONS, 3) + bytes(24) + b"no zstd frame",
        encode_map(example(2))[:-4] + b"x",
    ],
)
def test_bodies_with_a_right_checksum_that_are_no_map(body: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_map(sealed(body), RANK, SECTIONS)


def test_rows_out_of_order_are_no_map() -> None:
    twice = made([((1, 1), 5, [0] * 6, 0)] * 2)
    with pytest.raises(Corrupt, match="order"):
        decode_map(encode_map(twice), RANK, SECTIONS)


def test_digests_tell_etags_apart() -> None:
    names = [f"{number:x}" for number in range(10_000)]
    found = digests(names)
    assert len(np.unique(found)) == len(names)
    assert (digests(names[5:6]) == found[5:6]).all()


def test_it_is_compact() -> None:
    """A million chunks: some 10 bytes each, of which 8 are the digest."""
    count = 20_000
    scaled = np.stack(np.divmod(np.arange(count, dtype=np.uint64), np.uint64(200)), axis=1)
    sections = np.tile(np.array([[40, 100, 0], [800, 800, 0]], np.uint64), (count, 1, 1))
    etags = digests(f"{number:032x}" for number in range(count))
    data = encode_map(
        ChunkMap(scaled, etags, sections, np.full(count, 100, np.uint64), np.zeros((count, 0, 5), np.uint64))
    )
    assert len(data) < 10 * count
