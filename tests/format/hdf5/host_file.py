"""HDF5 files that h5py writes in memory: their chunk indexes are found, and replaced by others.

It knows as much of object headers as that takes: H5.format.html, IV.A.1, and "The Data Layout Message", versions 3 to
5 of class 2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import h5py
import numpy as np

from hsparse.format.codec_library import lookup3
from hsparse.hdf5.format.chunk_indexes.chunk_records import ChunkRecords
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import index_info_size, read_chunk_index
from hsparse.hdf5.format.file_fields import ByteRange, run_reads

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
