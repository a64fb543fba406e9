"""Layouts and chunk records to test indexes with, stock and structured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.codec_library import lookup3
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.structured.container import Section
from hsparse.hdf5.format.chunk_indexes.chunk_records import ChunkRecords, dense_records
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import plan_chunk_index, read_chunk_index
from hsparse.hdf5.format.file_fields import ByteRange, run_reads
from tests.format.hdf5.host_file import assert_same, fetch_from

ADDRESS = 40
"""Where the tests put an index in its file, so that no address of it is an offset."""


def make_layout(kind: IndexKind, counts: tuple[int, ...], sections: int, filtered: bool) -> IndexLayout:
    """Return the layout of a dataset of at most so many chunks, which its index leaves as limits where it can."""
    chunk = tuple(3 + dim for dim in range(len(counts)))
    limits: list[int | None] = [count * step for count, step in zip(counts, chunk, strict=True)]
    if kind is IndexKind.EXTENSIBLE_ARRAY:
        limits[-1] = None
    if kind is IndexKind.BTREE_V2:
        limits = [None] * len(counts)
    version = 3 if kind is IndexKind.BTREE_V1 else 5 if sections else 4
    return IndexLayout(
        kind, chunk, tuple(limits), 4, filtered, sections, message_version=version, address=ADDRESS
    )


def extent_of(layout: IndexLayout, counts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(count * step for count, step in zip(counts, layout.chunk, strict=True))


def make_records(layout: IndexLayout, scaled: np.ndarray, seed: int = 0) -> ChunkRecords:
    """Return records of chunks at `scaled` coordinates with made-up places and sizes."""
    random, count, sections = np.random.default_rng(seed), len(scaled), layout.sections
    address = random.integers(0, 2**48, count, np.uint64)
    if layout.filtered or sections:
        size = random.integers(0, min(2**40, 256**layout.size_width), count, np.uint64)
    else:
        size = np.full(count, layout.chunk_bytes, np.uint64)
    if layout.kind is IndexKind.BTREE_V1:
        size = size % np.uint64(2**32)
    mask = random.integers(0, 8 if layout.filtered and not sections else 1, count).astype(np.uint32)
    records = dense_records(scaled, address, size, mask)
    if not sections:
        return records
    most = np.uint64(2**32 if layout.revision is FormatRevision.RFC_2023_07 else 2**40)
    offsets = np.sort(
        random.integers(0, 2**40, (count, sections - 1), np.uint64)
        % (np.minimum(size, most - 1) + 1)[:, None],
        1,
    )
    ends = np.column_stack((offsets, size))
    unfiltered = ends - np.column_stack((np.zeros(count, np.uint64), offsets))
    masks = np.zeros((count, sections), np.uint32)
    if layout.filtered:
        unfiltered = random.integers(0, most, (count, sections), np.uint64)
        masks = random.integers(0, 4, (count, sections)).astype(np.uint32)
    return replace(records, offsets=offsets, unfiltered=unfiltered, masks=masks)


def choose_scaled(counts: tuple[int, ...], share: float, seed: int = 0) -> np.ndarray:
    """Return a share of the chunks of a grid of `counts`, at least one of them, ascending."""
    total = int(np.prod(counts))
    random = np.random.default_rng(seed)
    chosen = np.sort(random.choice(total, max(1, int(total * share)), replace=False))
    return np.stack(np.unravel_index(chosen, counts), 1).astype(np.uint64)


def store(layout: IndexLayout, records: ChunkRecords) -> bytes:
    """Return a file that has nothing but the index, at `ADDRESS`."""
    return bytes(ADDRESS) + plan_chunk_index(layout, records.scaled).encode(ADDRESS, records)


def load(layout: IndexLayout, extent: tuple[int, ...], data: bytes) -> ChunkRecords:
    return run_reads(read_chunk_index(layout, extent, len(data)), fetch_from(data))


def steps_of(layout: IndexLayout, extent: tuple[int, ...], data: bytes) -> list[tuple[ByteRange, ...]]:
    """Return what a reader asked for, step by step."""
    steps: list[tuple[ByteRange, ...]] = []
    fetch = fetch_from(data)

    def record(wanted: tuple[ByteRange, ...]) -> list[bytes]:
        steps.append(wanted)
        return list(fetch(wanted))

    run_reads(read_chunk_index(layout, extent, len(data)), record)
    return steps


def assert_damage_is_found(layout: IndexLayout, extent: tuple[int, ...], data: bytes, step: int = 1) -> None:
    """Assert that every changed byte that is read, and every end of the file before the index's, is `Corrupt`."""
    read = [
        place
        for wanted in steps_of(layout, extent, data)
        for address, size in wanted
        for place in range(address, address + size)
    ]
    for place in read[::step]:
        damaged = bytearray(data)
        damaged[place] ^= 0x15
        with pytest.raises(Corrupt):
            load(layout, extent, bytes(damaged))
    for end in range(ADDRESS, max(read) + 1, step):
        with pytest.raises(Corrupt):
            load(layout, extent, data[:end])


def blocks_of(layout: IndexLayout, extent: tuple[int, ...], data: bytes) -> list[ByteRange]:
    """Return the blocks that a reader asks for."""
    return [block for wanted in steps_of(layout, extent, data) for block in wanted]


def resealed(data: bytes, block: ByteRange, changes: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the file with bytes put into places of a block, whose checksum is right again."""
    content = bytearray(data[block.address : block.address + block.size - 4])
    for place, value in changes:
        content[place : place + len(value)] = value
    assert len(content) == block.size - 4
    sealed = bytes(content) + lookup3(content).to_bytes(4, "little")
    return data[: block.address] + sealed + data[block.address + block.size :]


def stored_and_loaded(layout: IndexLayout, counts: tuple[int, ...], share: float, seed: int) -> bytes:
    """Store records of a share of all chunks, see that the same are loaded; return the file."""
    records = make_records(layout, choose_scaled(counts, share, seed), seed)
    data = store(layout, records)
    assert_same(load(layout, extent_of(layout, counts), data), records)
    return data


def load_damaged(layout: IndexLayout, extent: tuple[int, ...], data: bytes) -> ChunkRecords | None:
    """Return what is read, None when it is refused."""
    try:
        return load(layout, extent, data)
    except Corrupt:
        return None


def damage_sealed(
    layout: IndexLayout, extent: tuple[int, ...], data: bytes, number: int, changes: Sequence[tuple[int, int]]
) -> ChunkRecords | None:
    """Return what is read after a block's bytes were changed by someone who computes checksums, None when refused."""
    blocks = blocks_of(layout, extent, data)
    block = blocks[number % len(blocks)]
    values = [(place % (block.size - 4), bytes((value,))) for place, value in changes]
    return load_damaged(layout, extent, resealed(data, block, values))


structures = st.tuples(st.sampled_from([0, 2, 3]), st.booleans())
revisions = st.sampled_from(list(FormatRevision))


def structured_records(
    scaled: NDArray[np.uint64], address: NDArray[np.uint64], sections: list[tuple[Section, ...]]
) -> ChunkRecords:
    """Return records of structured chunks, of which there is at least one."""
    table = np.array(
        [[(part.offset, part.size, part.unfiltered, part.mask) for part in parts] for parts in sections],
        np.uint64,
    )
    return ChunkRecords(
        scaled,
        address,
        table[:, :, 1].sum(1, dtype=np.uint64),
        np.zeros(len(address), np.uint32),
        table[:, 1:, 0],
        table[:, :, 2],
        table[:, :, 3].astype(np.uint32),
    )
