"""Structured chunks whose sections libhdf5 wrote: they verify, decode and are written again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hsparse.errors import Corrupt
from hsparse.format.kinds.sparse import decode_sparse, encode_sparse
from hsparse.format.selections.encoded_selection import decode_offsets
from hsparse.format.structured.container import (
    METADATA_FIXED,
    METADATA_VL,
    StoredChunk,
    build,
    open_chunk,
    seal,
)
from tests.format.golden_file import GoldenChunk, golden_chunks

FOLDER = Path(__file__).parent.parent / "data" / "golden"
FILES = {
    "lib-2026-09-farray.h5": 53,
    "lib-2026-09-single.h5": 6,
    "lib-2026-09-vlen.h5": 9,
    "rfc-2025-10-farray.h5": 53,
}


def chunks(name: str) -> list[GoldenChunk]:
    return list(golden_chunks((FOLDER / name).read_bytes()))


def stored(chunk: GoldenChunk) -> StoredChunk:
    images = tuple(chunk.data[part.offset : part.offset + part.size] for part in chunk.sections)
    return StoredChunk(images, chunk.sections)


@pytest.mark.parametrize("name", FILES)
def test_every_chunk_verifies_and_decodes(name: str) -> None:
    found = chunks(name)
    assert len(found) == FILES[name]
    for chunk in found:
        sections = open_chunk(chunk.data, chunk.sections, chunk.metadata, chunk.pipelines)
        offsets, _ = decode_offsets(sections[0], chunk.dims)
        assert len(sections[1]) == len(offsets) * chunk.itemsize
        assert chunk.metadata == (METADATA_VL if len(sections) == 3 else METADATA_FIXED)


@pytest.mark.parametrize("name", FILES)
def test_building_the_same_sections_gives_chunks_that_open_to_them(name: str) -> None:
    for chunk in chunks(name):
        sections = open_chunk(chunk.data, chunk.sections, chunk.metadata, chunk.pipelines)
        built = build(sections, chunk.metadata, chunk.pipelines)
        assert [part.unfiltered for part in built.sections] == [part.unfiltered for part in chunk.sections]
        if not any(chunk.pipelines):
            assert (built.data, built.sections) == (chunk.data, chunk.sections)
        again = open_chunk(built.data, built.sections, chunk.metadata, chunk.pipelines)
        assert [bytes(section) for section in again] == [bytes(section) for section in sections]


@pytest.mark.parametrize("name", FILES)
def test_every_changed_byte_of_a_metadata_section_is_found(name: str) -> None:
    for chunk in chunks(name)[:6]:
        for number in chunk.metadata:
            part = chunk.sections[number]
            for place in range(part.offset, part.offset + part.size, 1 + part.size // 40):
                damaged = bytearray(chunk.data)
                damaged[place] ^= 0xFF
                with pytest.raises(Corrupt, match=f"Section {number}"):
                    open_chunk(bytes(damaged), chunk.sections, chunk.metadata, chunk.pipelines)


def test_the_minimal_chunk_has_the_elements_that_were_written() -> None:
    chunk = next(found for found in chunks("lib-2026-09-single.h5") if found.dims == (5,))
    data = seal(stored(chunk), 3)
    assert data.startswith(chunk.data)
    found = decode_sparse(data, chunk.dims, np.dtype("<i4"), chunk.pipelines)
    assert found.offsets.tolist() == [1, 2, 3]
    assert found.values.tolist() == [11, 21, 31]


@pytest.mark.parametrize("name", [name for name in FILES if "vlen" not in name])
def test_chunks_of_fixed_size_types_read_as_objects_and_are_written_again(name: str) -> None:
    for chunk in chunks(name):
        dtype = np.dtype(f"V{chunk.itemsize}")
        selection = open_chunk(chunk.data, chunk.sections, chunk.metadata, chunk.pipelines)[0]
        count = len(decode_offsets(selection, chunk.dims)[0])
        found = decode_sparse(seal(stored(chunk), count), chunk.dims, dtype, chunk.pipelines)
        again = decode_sparse(encode_sparse(found, chunk.pipelines), chunk.dims, dtype, chunk.pipelines)
        assert again.offsets.tolist() == found.offsets.tolist()
        assert again.values.tobytes() == found.values.tobytes()
