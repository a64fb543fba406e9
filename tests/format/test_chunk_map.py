"""Where chunks are, which are asked for, and the statistics kept of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.chunk_map import HEAD, MAGIC, ChunkMap, based, decode_map, digests, encode_map, row_names
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import (
    NANS,
    extremes_of,
    is_known,
    partials_of,
    statistic_columns,
    statistics_bytes,
    unknown_statistics,
)
from hsparse.format.codec_library import crc32, lookup3
from hsparse.format.kinds.sparse import SparseChunk, decode_sparse, encode_sparse
from hsparse.format.query import Ranges, bind_query
from hsparse.format.reductions.partials import Partials
from hsparse.format.structured.container import MAX_FOOTER, read_footer
from tests.format.test_reductions import TYPES, numbers

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
    places = found.find(made(mixed).scaled, made(mixed).digest, row_names(found.scaled)).tolist()
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


@given(rows, st.tuples(st.integers(-3, 2), st.integers(-3, 2)))
def test_the_rows_of_a_signed_dataset_stay_when_its_lower_bound_moves(
    some: list[Row], base: tuple[int, int]
) -> None:
    there = ChunkMap.empty(RANK, SECTIONS).merge(replace(made(some), scaled=based(made(some).scaled, base)))
    inside = decode_map(encode_map(there.inside((2, 3), base)), RANK, SECTIONS)
    back = based(inside.scaled, tuple(-number for number in base))
    assert sorted(map(tuple, back.tolist())) == sorted(
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


coords = st.integers(1, 4).flatmap(
    lambda rank: st.lists(
        st.tuples(*[st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))] * rank), min_size=1
    )
)


@given(coords)
def test_names_sort_and_compare_as_coordinates(rows: list[tuple[int, ...]]) -> None:
    names = row_names(np.array(rows, np.uint64))
    assert [rows[place] for place in np.argsort(names, kind="stable")] == sorted(rows)
    assert [name == names[0] for name in names] == [row == rows[0] for row in rows]


def test_rows_are_taken_and_joined() -> None:
    rows = ChunkRows.of([(0, 1), (2, 3)], 2, [10, 20], ["a", "b"])
    rows = rows.described(np.arange(12, dtype=np.uint64).reshape(2, 2, 3), np.array([5, 6], np.uint64))
    turned = ChunkRows.joined([rows.take(np.array([1])), rows.take(np.array([0]))], 2)
    assert turned.scaled.tolist() == [[2, 3], [0, 1]]
    assert (turned.size.tolist(), turned.etags, turned.defined.tolist()) == ([20, 10], ("b", "a"), [6, 5])
    assert turned.sections.tolist() == rows.sections[::-1].tolist()
    assert len(ChunkRows.joined([], 3)) == 0


DIMS = (20, 30)
PLAIN = ((), ())


def random_values(kind: str, seed: int, count: int) -> NDArray:
    rng = np.random.default_rng(seed)
    values = numbers(kind, count, rng)
    if values.dtype.kind == "f":
        values[rng.random(count) < 0.1] = np.nan
        values[rng.random(count) < 0.02] = np.inf
    return values


@pytest.mark.parametrize("kind", TYPES)
@given(seed=st.integers(0, 2**32), count=st.integers(0, 60))
def test_statistics_of_a_stored_chunk_are_those_of_its_values(kind: str, seed: int, count: int) -> None:
    values = random_values(kind, seed, count)
    chunk = SparseChunk(DIMS, np.arange(count, dtype=np.uint32), values)
    data = encode_sparse(chunk, PLAIN, columns=statistic_columns(chunk.values.dtype))
    footer = read_footer(data[-MAX_FOOTER:], len(data))
    words = np.frombuffer(footer.statistics, "<u8").reshape(1, 5)
    rest = values[~np.isnan(values.astype(float))]
    assert words[0, NANS] == count - len(rest)
    least, greatest = extremes_of(words, values.dtype)
    if len(rest):
        assert (least[0], greatest[0]) == (rest.min(), rest.max())
    else:
        assert least[0] >= greatest[0]
    found = decode_sparse(data, DIMS, values.dtype, PLAIN)
    assert found.values.tobytes() == values.tobytes()
    plain = encode_sparse(chunk, PLAIN)
    assert data.startswith(plain[: footer.size]), "the chunk's own bytes are the same"
    assert len(data) == len(plain) + 40


def test_a_reader_of_the_first_version_says_that_it_is_too_old() -> None:
    """Without statistics a chunk has the bytes that version 1 had; with them its footer says version 2."""
    chunk = SparseChunk(DIMS, np.arange(3, dtype=np.uint32), np.arange(3.0))
    assert encode_sparse(chunk, PLAIN)[-5] == 1
    data = bytearray(encode_sparse(chunk, PLAIN, columns=statistic_columns(chunk.values.dtype)))
    assert data[-5] == 2
    newer = data[:-5] + bytes([3]) + data[-4:]
    with pytest.raises(Unsupported, match="which reads versions up to 2"):
        read_resealed(newer)


def read_resealed(data: bytearray) -> None:
    """Read a footer after its checksum was made right."""
    length = int.from_bytes(data[-16:-12], "little")
    footer = bytes(data[-length:-4])
    read_footer(footer + lookup3(footer).to_bytes(4, "little"), len(data))


@pytest.mark.parametrize("kind", TYPES)
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_reductions_of_chunks_by_their_statistics(kind: str, seed: int, sizes: list[int]) -> None:
    parts = [random_values(kind, seed + i, size) for i, size in enumerate(sizes)]
    columns = ("greatest", "least", "total")
    words = np.stack(
        [np.frombuffer(statistics_bytes(part, statistic_columns(part.dtype)), "<u8") for part in parts]
    )
    found = partials_of(words, np.array(sizes, np.uint64), parts[0].dtype, columns).folded()
    whole = np.concatenate(parts)
    wanted = Partials.of(np.zeros(len(whole), np.int64), whole, 1, columns)
    assert found.count.tolist() == [len(whole)]
    with np.errstate(invalid="ignore"):
        bound = float(np.abs(whole.astype(float)).sum()) * len(whole) * 2.0**-53
        np.testing.assert_allclose(
            found.sums(), wanted.sums(), rtol=0, atol=bound if np.isfinite(bound) else 0
        )
    if len(whole):
        np.testing.assert_array_equal(found.least, wanted.least)
        np.testing.assert_array_equal(found.greatest, wanted.greatest)


QUERIES = [
    "_ {op} {a}", "not (_ {op} {a})", "_ {op} {a} and _ {op} {b}",
    "_ {op} {a} or not (_ > {b} and _ != {a})", "_ in ({a}, {b})", "not (_ in ({a}, {b}))", "_.is_null()",
    "not (_.is_null()) and _ {op} {a}",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["i1", "u8", "i8", "f4", ">f8", "?"])
@given(
    seed=st.integers(0, 2**32),
    query=st.sampled_from(QUERIES),
    op=st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    a=st.one_of(st.integers(-20, 20), st.sampled_from([0.5, -3.25, 1e30, 2**63, -(2**63)])),
    b=st.integers(-20, 20),
)
def test_chunks_that_a_query_leaves_out_have_nothing(
    kind: str, seed: int, query: str, op: str, a: float, b: int
) -> None:
    rng = np.random.default_rng(seed)
    low, high = (0, 2) if kind == "?" else (0, 40) if kind == "u8" else (-20, 20)
    parts = []
    for size in rng.integers(0, 4, 12):
        centre = rng.integers(low, high)
        part = rng.integers(max(low, centre - 2), min(high, centre + 2) + (kind != "?"), size).astype(kind)
        if np.dtype(kind).kind == "f":
            part = part / 4
            part[rng.random(size) < 0.3] = np.nan
        parts.append(part.astype(kind))
    dtype = np.dtype(kind)
    words = np.stack(
        [np.frombuffer(statistics_bytes(part, statistic_columns(dtype)), "<u8") for part in parts]
    )
    bound = bind_query(query.format(op=op, a=a, b=b), dtype)
    ranges = {"_": Ranges(*extremes_of(words, dtype), words[:, NANS] > 0)}
    possible = bound.may_find(ranges, len(parts))
    for part, may in zip(parts, possible.tolist(), strict=True):
        assert may or not bound.mask(part).any()
    assert bound.may_find({}, 3).all()


def test_unknown_statistics() -> None:
    assert is_known(unknown_statistics(3, 1)).tolist() == [False] * 3
    assert is_known(np.zeros((2, 1, 5), np.uint64)).tolist() == [True] * 2
    assert is_known(unknown_statistics(2, 0)).tolist() == [False] * 2
