"""HDF5 files of h5py and others, whose chunk indexes are found and replaced; layouts and records to make some of."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.codec_library import lookup3
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.filters.definition import Filter
from hsparse.format.structured.container import Section
from hsparse.hdf5.format.chunk_indexes.chunk_records import ChunkRecords, dense_records
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import (
    index_info_size,
    plan_chunk_index,
    read_chunk_index,
)
from hsparse.hdf5.format.file_fields import ByteRange, run_reads
from hsparse.hdf5.format.messages.filter_pipeline_message import (
    decode_section_pipelines,
    is_section_pipelines,
)
from hsparse.hdf5.format.messages.structured_layout import StructuredLayout, decode_structured_layout

LAYOUT = 8
BOUNDS = {
    "earliest": (h5py.h5f.LIBVER_EARLIEST, h5py.h5f.LIBVER_LATEST),
    "old": (h5py.h5f.LIBVER_V18, h5py.h5f.LIBVER_V114),
    "new": (h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_V110),
    "newest": (h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST),
}
"""Bounds of the library's versions: with the first two v1 B-trees, with the last layout messages of version 5."""
Fetch = Callable[[tuple[ByteRange, ...]], Sequence[bytes]]


def fetch_from(data: bytes) -> Fetch:
    """Return what serves ranges of `data`, all of which lie in it."""

    def fetch(wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        assert all(0 <= address <= address + size <= len(data) for address, size in wanted)
        return [data[address : address + size] for address, size in wanted]

    return fetch


def open_image(data: bytes) -> h5py.File:
    """Open a file that is in memory, as libhdf5 reads one there: of a Python object each chunk is a call."""
    return h5py.File(h5py.h5f.open_file_image(data))


def make_file(
    libver: str,
    fill: Callable[[h5py.Dataset], None],
    *,
    early: bool = False,
    widths: tuple[int, int] = (8, 8),
    **arguments: Any,
) -> bytes:
    """Return a file with the dataset `d`, which `fill` writes; `widths` are those of addresses and lengths."""
    access, creation = h5py.h5p.create(h5py.h5p.FILE_ACCESS), h5py.h5p.create(h5py.h5p.FILE_CREATE)
    access.set_fapl_core(2**16, False)
    access.set_libver_bounds(*BOUNDS[libver])
    creation.set_sizes(*widths)
    with h5py.File(h5py.h5f.create(b"d.h5", h5py.h5f.ACC_TRUNC, creation, access)) as file:
        if early:
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            properties.set_chunk(arguments["chunks"])
            limits = tuple(h5py.h5s.UNLIMITED if limit is None else limit for limit in arguments["maxshape"])
            space = h5py.h5s.create_simple(arguments["shape"], limits)
            h5py.h5d.create(file.id, b"d", h5py.h5t.STD_I32LE, space, properties)
        else:
            file.create_dataset("d", **arguments)
        fill(file["d"])
        file.flush()
        image: bytes = file.id.get_file_image()
    return image


def messages(data: bytes, header: int) -> dict[int, tuple[int, bytes]]:
    """Return place and content of the messages in the first block of the object header at `header`."""
    found = {}
    if data[header : header + 4] == b"OHDR":
        flags = data[header + 5]
        place = header + 6 + 16 * (flags >> 5 & 1) + 4 * (flags >> 4 & 1)
        width = 1 << (flags & 3)
        end = place + width + int.from_bytes(data[place : place + width], "little")
        place += width
        while place + 4 <= end:
            size = int.from_bytes(data[place + 1 : place + 3], "little")
            start = place + 4 + 2 * (flags >> 2 & 1)
            found[data[place]] = start, data[start : start + size]
            place = start + size
        return found
    (length,) = struct.unpack_from("<I", data, header + 8)
    place = header + 16
    while place < header + 16 + length:
        kind, size = struct.unpack_from("<HH", data, place)
        found[kind] = place + 8, data[place + 8 : place + 8 + size]
        place += 8 + size
    return found


def header_end(data: bytes, header: int) -> int:
    """Return where the checksum of the first block of an object header of version 2 is."""
    flags = data[header + 5]
    place = header + 6 + 16 * (flags >> 5 & 1) + 4 * (flags >> 4 & 1)
    width = 1 << (flags & 3)
    return place + width + int.from_bytes(data[place : place + width], "little")


def open_layout(data: bytes) -> tuple[IndexLayout, tuple[int, ...], int, int]:
    """Return the index layout and extent of dataset `d`, where its index's address is, and its object header."""
    with open_image(data) as file:
        dset = file["d"]
        header = h5py.h5o.get_info(dset.id).addr
        filtered = dset.id.get_create_plist().get_nfilters() > 0
        extent, limits, size = dset.shape, dset.maxshape, dset.id.get_type().get_size()
    place, body = messages(data, header)[LAYOUT]
    address_width, length_width = data[13:15] if data[8] < 2 else data[9:11]
    common = {
        "max_dims": limits,
        "element_size": size,
        "filtered": filtered,
        "message_version": body[0],
        "address_width": address_width,
        "length_width": length_width,
    }
    if body[0] == 3:
        rank = body[2] - 1
        chunk = struct.unpack_from(f"<{rank}I", body, 3 + address_width)
        address_place = 3
        layout = IndexLayout(IndexKind.BTREE_V1, chunk, **common)
    else:
        rank, width = body[3] - 1, body[4]
        chunk = tuple(
            int.from_bytes(body[5 + dim * width : 5 + (dim + 1) * width], "little") for dim in range(rank)
        )
        start = 5 + (rank + 1) * width
        layout = IndexLayout(IndexKind(body[start]), chunk, **common)
        address_place = start + 1 + index_info_size(layout)
        layout = replace(layout, info=body[start + 1 : address_place])
    address = int.from_bytes(body[address_place : address_place + address_width], "little")
    layout = replace(layout, address=None if address == layout.undefined else address)
    return layout, extent, place + address_place, header


def read_records(data: bytes) -> ChunkRecords:
    """Return the chunks of dataset `d` by our reader."""
    layout, extent, _, _ = open_layout(data)
    return run_reads(read_chunk_index(layout, extent, len(data)), fetch_from(data))


def assert_hdf5_finds(data: bytes, records: ChunkRecords) -> None:
    """Assert that libhdf5 finds these chunks of dataset `d`, and no others.

    Each is read by its coordinates; chunks whose bytes differ are told apart. Iterating (`chunk_iter`) gives wrong
    coordinates where the unlimited dimension of an extensible array is not the first one; the rest it gives right.
    """
    columns = (records.address, records.size, records.mask)
    wanted = list(zip(*(column.tolist() for column in columns), strict=True))
    with open_image(data) as file:
        dset, found = file["d"], list[Any]()
        dset.id.chunk_iter(found.append)
        coords = list(map(tuple, (records.scaled * np.array(dset.chunks, np.uint64)).tolist()))
        for place, (address, size, mask) in zip(coords, wanted, strict=True):
            assert dset.id.read_direct_chunk(place) == (mask, data[address : address + size])
        swizzled = dset.maxshape.count(None) == 1 and dset.maxshape[0] is not None
    if swizzled:
        coords = [()] * len(coords)
    assert sorted(
        (() if swizzled else info.chunk_offset, info.byte_offset, info.size, info.filter_mask)
        for info in found
    ) == sorted((place, *entry) for place, entry in zip(coords, wanted, strict=True))


def assert_same(found: ChunkRecords, wanted: ChunkRecords) -> None:
    for name in ("scaled", "address", "size", "mask", "offsets", "unfiltered", "masks"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)


def replace_index(data: bytes, make: Callable[[int], bytes]) -> bytes:
    """Return the file with the index that `make` returns for an address, in place of that of dataset `d`."""
    layout, _, place, header = open_layout(data)
    width = layout.address_width
    image = bytearray(data)
    address = -(-len(image) // 8) * 8
    image.extend(bytes(address - len(image)))
    image.extend(make(address))
    image[place : place + width] = address.to_bytes(width, "little")
    if image[header : header + 4] == b"OHDR":
        end = header_end(data, header)
        struct.pack_into("<I", image, end, lookup3(image[header:end]))
    file_end = (24 if image[8] < 2 else 12) + 2 * width
    image[file_end : file_end + width] = len(image).to_bytes(width, "little")
    if image[8] >= 2:
        end = 12 + 4 * width
        struct.pack_into("<I", image, end, lookup3(image[:end]))
    return bytes(image)


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


Pipelines = tuple[tuple[Filter, ...], ...]
UNLIMITED = 2**64 - 1


@dataclass(frozen=True)
class GoldenChunk:
    """A chunk: dimensions, bytes of an element, stored bytes, and what its index says of them."""

    dims: tuple[int, ...]
    itemsize: int
    metadata: tuple[int, ...]
    pipelines: Pipelines
    data: bytes
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class GoldenDataset:
    """A dataset: its extent, its messages as stored and decoded, its chunks."""

    extent: tuple[int, ...]
    message: bytes
    layout: StructuredLayout
    filters: tuple[int, bytes] | None
    pipelines: Pipelines
    records: ChunkRecords


def golden_datasets(data: bytes) -> Iterator[GoldenDataset]:
    """Yield every dataset of structured chunks of a file, in the order of their object headers."""
    for match in re.finditer(b"OHDR\x02", data):
        found = {kind: body for kind, (_, body) in messages(data, match.start()).items()}
        if found.get(8, b"")[:2] != b"\5\4":
            continue
        extent, limits = dataspace(found[1])
        filters = next((item for item in found.items() if is_section_pipelines(*item)), None)
        layout = decode_structured_layout(found[8], limits, filtered=filters is not None)
        sections = layout.index.sections
        pipelines: Pipelines = ((),) * sections
        if filters is not None:
            pipelines = decode_section_pipelines(filters[1], sections)
        records = run_reads(read_chunk_index(layout.index, extent, len(data)), fetch_from(data))
        yield GoldenDataset(extent, found[8], layout, filters, pipelines, records)


def dataspace(message: bytes) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Return extent and limits of a dataspace message, version 2."""
    rank = message[1]
    numbers = [int.from_bytes(message[at : at + 8], "little") for at in range(4, len(message), 8)]
    limits = numbers[rank : 2 * rank] if message[2] & 1 else numbers[:rank]
    return tuple(numbers[:rank]), tuple(None if limit == UNLIMITED else limit for limit in limits)


def golden_chunks(data: bytes) -> Iterator[GoldenChunk]:
    """Yield every structured chunk of a file, in the order of its object headers."""
    for dataset in golden_datasets(data):
        index, records = dataset.layout.index, dataset.records
        for row, (address, size) in enumerate(
            zip(records.address.tolist(), records.size.tolist(), strict=True)
        ):
            ends = (records.scaled[row].astype(int) + 1) * index.chunk
            plain = not dataset.layout.filtered_edges and bool((ends > dataset.extent).any())
            yield GoldenChunk(
                index.chunk,
                index.element_size,
                dataset.layout.metadata,
                ((),) * index.sections if plain else dataset.pipelines,
                data[address : address + size],
                records.sections(row),
            )
