"""Objects of structured chunks of variable-length types: the library's bytes, random values, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.vlen_chunk import (
    SparseVlenChunk,
    decode_dense_vlen,
    decode_sparse_vlen,
    encode_dense_vlen,
    encode_sparse_vlen,
)
from hsparse.format.structured.container import METADATA_VL, StoredChunk, build, open_chunk, seal
from hsparse.format.structured.vlen_sections import decode_elements, encode_elements
from hsparse.model.datatype import parse_type
from hsparse.model.vlen_array import VlenArray
from tests.format.golden_file import GoldenChunk, golden_chunks
from tests.model.type_strategies import ITEMS, length_prefixed, text, values_of

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "lib-2026-09-vlen.h5"
TEXT = parse_type(text("H5T_VARIABLE")).element
DIMS = (3, 4)
DEFLATE = Filter(1, (6,))
PIPELINES: list[tuple[tuple[Filter, ...], ...]] = [
    ((), (), ()),
    ((Filter(2, (4,)), DEFLATE), (Filter(2, (16,)), DEFLATE), (Filter(32015, (3,)),)),
    ((DEFLATE,), (Filter(3, (), optional=False),), ()),
]
WORDS = {
    (10,): {1: "b", 2: "cd", 3: "def"},
    (5,): [
        {1: "b", 4: "efgh"},
        {0: "fghij", 2: ""},
        {0: "klm", 1: "lmno", 3: "nopqrs"},
        {1: "qr", 2: "rst"},
    ],
}


def golden() -> list[GoldenChunk]:
    return list(golden_chunks(GOLDEN.read_bytes()))


def sealed(chunk: GoldenChunk, count: int) -> bytes:
    images = tuple(chunk.data[part.offset : part.offset + part.size] for part in chunk.sections)
    return seal(StoredChunk(images, chunk.sections), count)


def as_words(chunk: SparseVlenChunk) -> dict[int, str]:
    return {n: word[4:].decode() for n, word in zip(chunk.offsets.tolist(), chunk.values, strict=True)}


def test_the_librarys_chunks_have_the_words_that_were_written() -> None:
    found = [
        as_words(decode_sparse_vlen(sealed(c, n), c.dims, TEXT, c.pipelines))
        for c, n in zip(golden(), (3, 2, 2, 3, 2, 2, 2, 3, 2), strict=True)
    ]
    assert found == [WORDS[10,], *WORDS[5,], *WORDS[5,]]


def test_the_librarys_bytes_are_written_again() -> None:
    """Every section but the selection, which is written in its smallest form here."""
    for chunk in golden():
        sections = open_chunk(chunk.data, chunk.sections, METADATA_VL, chunk.pipelines)
        values = decode_elements(sections[1], sections[2], TEXT, ("1", "2"))
        again = build((sections[0], *encode_elements(values, TEXT)), METADATA_VL, chunk.pipelines)
        assert [part.unfiltered for part in again.sections] == [part.unfiltered for part in chunk.sections]
        if not any(chunk.pipelines):
            assert again.data == chunk.data
        opened = open_chunk(again.data, again.sections, METADATA_VL, chunk.pipelines)
        assert list(map(bytes, opened)) == list(map(bytes, sections))


@st.composite
def columns(draw: st.DrawFn, size: int) -> tuple[Any, list[bytes]]:
    item = draw(ITEMS.filter(lambda item: parse_type(item).is_vlen))
    values = draw(st.lists(values_of(item), min_size=size, max_size=size))
    return item, [length_prefixed(item, value) for value in values]


@pytest.mark.endurance
@given(columns(12), st.sets(st.integers(0, 11)), st.sampled_from(PIPELINES))
def test_what_is_stored_is_loaded(
    drawn: tuple[Any, list[bytes]], places: set[int], pipelines: tuple[tuple[Filter, ...], ...]
) -> None:
    item, values = drawn
    element = parse_type(item).element
    offsets = np.array(sorted(places), np.uint32)
    column = VlenArray.of([values[offset] for offset in offsets])
    data = encode_sparse_vlen(SparseVlenChunk(DIMS, offsets, column), element, pipelines)
    chunk = decode_sparse_vlen(data, DIMS, element, pipelines)
    assert chunk.offsets.tolist() == offsets.tolist()
    assert list(chunk.values) == list(column)
    dense = encode_dense_vlen(VlenArray.of(values, DIMS), element, pipelines)
    whole = decode_dense_vlen(dense, DIMS, element, pipelines)
    assert (whole.shape, list(whole)) == (DIMS, values)


def example(pipelines: tuple[tuple[Filter, ...], ...]) -> bytes:
    values = VlenArray.of([length_prefixed(text("H5T_VARIABLE"), "w" * n) for n in range(4)])
    return encode_sparse_vlen(
        SparseVlenChunk(DIMS, np.array([1, 2, 7, 11], np.uint32), values), TEXT, pipelines
    )


@pytest.mark.parametrize("pipelines", PIPELINES)
def test_every_changed_bit_is_found(pipelines: tuple[tuple[Filter, ...], ...]) -> None:
    data = example(pipelines)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(Corrupt, match=r"(S|s)ection|footer"):
            decode_sparse_vlen(bytes(damaged), DIMS, TEXT, pipelines)


@given(st.data())
def test_sections_that_lie_are_named(data: st.DataObject) -> None:
    """Damage under right checksums, as another program's error would leave it."""
    values = VlenArray.of([length_prefixed(text("H5T_VARIABLE"), "w" * n) for n in range(4)])
    sections = [bytearray(part) for part in encode_elements(values, TEXT)]
    number = data.draw(st.integers(0, 1))
    place = data.draw(st.integers(0, len(sections[number]) - 1))
    if data.draw(st.booleans()):
        sections[number][place] ^= data.draw(st.integers(1, 255))
    else:
        del sections[number][place:]
    stored = build((b"", *map(bytes, sections)), METADATA_VL, PIPELINES[0])
    outcome = told(seal(stored, 4))
    assert outcome.startswith("Section ") or int(outcome) < 1000, outcome


def told(data: bytes) -> str:
    """Return the error's message, or how many bytes the chunk takes."""
    try:
        return str(decode_dense_vlen(data, (2, 2), TEXT, PIPELINES[0]).nbytes)
    except Corrupt as error:
        return error.message


def test_what_is_of_another_kind() -> None:
    sparse = example(PIPELINES[0])
    with pytest.raises(Corrupt, match="dense chunk"):
        decode_dense_vlen(sparse, DIMS, TEXT, PIPELINES[0])
    dense = encode_dense_vlen(VlenArray.of([bytes(4)] * 12, DIMS), TEXT, PIPELINES[0])
    with pytest.raises(Corrupt, match="Section 0"):
        decode_sparse_vlen(dense, DIMS, TEXT, PIPELINES[0])
    with pytest.raises(Corrupt, match="Section 1"):
        decode_sparse_vlen(sparse, (1, 3), TEXT, PIPELINES[0])
    with pytest.raises(Corrupt, match="3 sections"):
        decode_sparse_vlen(sparse, DIMS, TEXT, ((), ()))
