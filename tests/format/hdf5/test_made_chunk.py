"""Chunks that are made of stored ones: their elements come back from a file, and their sizes were right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.chunk_rows import sections_of
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.hdf5.made_chunk import made_size, make_chunk, make_defined
from hsparse.format.kinds.sparse_chunk import SparseChunk, encode_sparse
from hsparse.format.kinds.vlen_chunk import (
    SparseVlenChunk,
    encode_bare_vlen,
    encode_dense_vlen,
    encode_sparse_vlen,
)
from hsparse.format.structured.footer import unseal
from hsparse.model.vlen_array import VlenArray

TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
DEFLATE = (Filter(1, (3,)),)
NONE = np.zeros((0, 3), np.uint64)
PLACES = st.lists(st.integers(0, 11), unique=True, max_size=12).map(sorted)


def opened(data: bytes) -> tuple[bytes, np.ndarray]:
    """Return a structured chunk's bytes without the footer, and its table of sections."""
    content, footer = unseal(data)
    table = [[one.size, one.unfiltered, one.mask] for one in footer.sections]
    return bytes(content), np.array(table, np.uint64)


def length_prefixed(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "little") + data


def texts(data: bytes, address: int, count: int) -> list[str]:
    """Return what elements at `address` refer to: global heap collections behind them."""
    found = []
    for element in range(count):
        at = 16 * element
        length, heap = (
            int.from_bytes(data[at : at + 4], "little"),
            int.from_bytes(data[at + 4 : at + 12], "little"),
        )
        number = int.from_bytes(data[at + 12 : at + 16], "little")
        place = heap - address
        assert place % 8 == 0
        assert data[place : place + 4] == b"GCOL"
        place += 16
        while int.from_bytes(data[place : place + 2], "little") != number:
            size = int.from_bytes(data[place + 8 : place + 16], "little")
            place += 16 + size + -size % 8
        found.append(data[place + 16 : place + 16 + length].decode())
    return found


def nowhere(key: Any) -> int:
    raise AssertionError(f"{key} was asked for")


@given(PLACES)
def test_sparse_numbers(places: list[int]) -> None:
    spec = ChunkSpec("d-x", "H5T_STD_I16BE", (3, 4), True, b"\xff\xfe", (DEFLATE, DEFLATE))
    values = np.arange(len(places), dtype=">i2")
    chunk = SparseChunk((3, 4), np.array(places, np.uint32), values)
    data, table = opened(encode_sparse(chunk, spec.filters))
    expected = np.full(12, -2, ">i2")
    expected[places] = values
    made = make_chunk(spec, data, table, 0, nowhere, lambda _: None)
    assert np.frombuffer(made, ">i2").tolist() == expected.tolist()
    assert made_size(spec, data, table, lambda _: None) == len(made)
    defined = make_defined(spec, data, table)
    assert np.flatnonzero(np.frombuffer(defined, np.uint8)).tolist() == places
    assert sections_of(table)[1].offset == sections_of(table)[0].size


@given(PLACES, st.lists(st.text(max_size=9), min_size=12, max_size=12))
def test_sparse_text(places: list[int], words: list[str]) -> None:
    spec = ChunkSpec("d-x", TEXT, (12,), True, length_prefixed("?"), (DEFLATE, (), ()))
    some = [words[place] for place in places]
    chunk = SparseVlenChunk(
        (12,), np.array(places, np.uint32), VlenArray.of([length_prefixed(one) for one in some])
    )
    data, table = opened(encode_sparse_vlen(chunk, spec.datatype.element, spec.filters))
    made = make_chunk(spec, data, table, 4096, nowhere, lambda _: None)
    assert len(made) == made_size(spec, data, table, lambda _: None)
    assert texts(made, 4096, 12) == [word if place in places else "?" for place, word in enumerate(words)]
    defined = make_defined(spec, data, table)
    assert np.flatnonzero(np.frombuffer(defined, np.uint8)).tolist() == places


@given(st.lists(st.text(max_size=9), min_size=12, max_size=12), st.booleans())
def test_dense_text(words: list[str], structured: bool) -> None:
    filters = ((), (), DEFLATE) if structured else (DEFLATE,)
    spec = ChunkSpec("d-x", TEXT, (3, 4), False, b"", filters)
    array = VlenArray.of([length_prefixed(word) for word in words], (3, 4))
    if structured:
        data = encode_dense_vlen(array, spec.datatype.element, filters)
    else:
        data = bytes(encode_bare_vlen(array, filters[0]))
    made = make_chunk(spec, data, NONE, 8, nowhere, lambda _: None)
    assert len(made) == made_size(spec, data, NONE, lambda _: None)
    assert texts(made, 8, 12) == words


def test_references_become_addresses() -> None:
    item = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
    spec = ChunkSpec("d-x", item, (3,), False, b"", ((),))
    data = b"".join(name.encode().ljust(48, b"\0") for name in ("datasets/d-1", "", "groups/g-none"))
    made = make_chunk(
        spec, data, NONE, 0, {"key": 77}.__getitem__, lambda name: "key" if name == "datasets/d-1" else None
    )
    assert np.frombuffer(made, "<u8").tolist() == [77, 0, 0]


def test_bytes_that_do_not_decode_are_named() -> None:
    spec = ChunkSpec("d-x", TEXT, (3, 4), False, b"", (DEFLATE,))
    with pytest.raises(Corrupt, match="d-x"):
        make_chunk(spec, b"nonsense", NONE, 0, nowhere, lambda _: None)
