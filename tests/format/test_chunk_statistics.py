"""Statistics of chunks: those of numpy, through the object of a chunk, and what queries and reductions make of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.chunk_spec import (
    NANS,
    extremes_of,
    is_known,
    partials_of,
    statistics_of,
    unknown_statistics,
)
from hsparse.format.codec_library import lookup3
from hsparse.format.kinds.sparse import SparseChunk, decode_sparse, encode_sparse
from hsparse.format.query import Ranges, bind_query
from hsparse.format.reductions.partials import Partials
from hsparse.format.structured.container import MAX_FOOTER, read_footer
from tests.format.reductions.test_partials import TYPES, numbers

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
    data = encode_sparse(chunk, PLAIN, statistics=True)
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
    data = bytearray(encode_sparse(chunk, PLAIN, statistics=True))
    assert data[-5] == 2
    newer = data[:-5] + bytes([3]) + data[-4:]
    with pytest.raises(Unsupported, match="which here reads version 2"):
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
    words = np.stack([statistics_of(part, part.dtype)[0] for part in parts])
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
    "_ {op} {a}",
    "not (_ {op} {a})",
    "_ {op} {a} and _ {op} {b}",
    "_ {op} {a} or not (_ > {b} and _ != {a})",
    "_ in ({a}, {b})",
    "not (_ in ({a}, {b}))",
    "_.is_null()",
    "not (_.is_null()) and _ {op} {a}",
]


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
    words = np.stack([statistics_of(part, dtype)[0] for part in parts])
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
