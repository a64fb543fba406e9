"""The bitshuffle filter (registered id 32008): bits are transposed in blocks, and optionally compressed.

Client values: major and minor version, element size in bytes, block size in elements (0: the default),
compression (0 none, 2 LZ4, 3 Zstandard), Zstandard level.

Without compression the output has the size of the data. With compression it is a 12-byte header (big-endian: u64 size
of the data, u32 size of a block in bytes); for each block, its compressed size (big-endian u32) and its compressed
bytes; then, unchanged, the last elements that do not fill a group of 8. The last block may be shorter, with a multiple
of 8 elements.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from hsparse.format import codec_library as raw_codec
from hsparse.format.buffer import Buffer

HEADER = struct.Struct(">QI")
LENGTH = struct.Struct(">I")
NONE, LZ4, ZSTD = 0, 2, 3
DEFAULT_ZSTD_LEVEL = 3
TARGET_BLOCK_BYTES = 8192
MIN_BLOCK = 128


def encode_bitshuffle(values: tuple[int, ...], data: Buffer) -> Buffer:
    """Return `data` filtered; raise `ValueError` for an incomplete last element or invalid client values."""
    itemsize, block, compression, level = _parameters(values)
    if len(data) % itemsize:
        raise ValueError(f"{len(data)} bytes are not a whole number of {itemsize}-byte elements")
    shuffled = memoryview(raw_codec.bitshuffle_encode(data, itemsize, block))
    if compression == NONE:
        return shuffled
    parts: list[Buffer] = [HEADER.pack(len(data), block * itemsize)]
    end = 0
    for start, end in _blocks(len(data), block * itemsize, itemsize):
        piece = shuffled[start:end]
        packed = raw_codec.lz4_encode(piece) if compression == LZ4 else raw_codec.zstd_encode(piece, level)
        parts += LENGTH.pack(len(packed)), packed
    parts.append(shuffled[end:])
    return b"".join(parts)


def decode_bitshuffle(values: tuple[int, ...], data: Buffer, limit: int) -> Buffer:
    """Return `data` unfiltered; raise `ValueError` if it is invalid or would have more than `limit` bytes."""
    itemsize, block, compression, _ = _parameters(values)
    if compression == NONE:
        if len(data) > limit or len(data) % itemsize:
            raise ValueError(f"{len(data)} bytes are not {limit} bytes of {itemsize}-byte elements")
        return raw_codec.bitshuffle_decode(data, itemsize, block)
    view = memoryview(data)
    if len(view) < HEADER.size:
        raise ValueError("the header is cut short")
    size, block_bytes = HEADER.unpack_from(view)
    if size > limit or size % itemsize or not block_bytes or block_bytes % (8 * itemsize):
        raise ValueError(f"the header's sizes {size} and {block_bytes} are not valid")
    shuffled = _unpack(view[HEADER.size :], size, block_bytes, itemsize, compression)
    return raw_codec.bitshuffle_decode(shuffled, itemsize, block_bytes // itemsize)


def _unpack(view: memoryview, size: int, block_bytes: int, itemsize: int, compression: int) -> bytearray:
    """Decompress every block, and copy the last elements, into one buffer of `size` bytes."""
    decode = raw_codec.lz4_decode_into if compression == LZ4 else raw_codec.zstd_decode_into
    shuffled = bytearray(size)
    out = memoryview(shuffled)
    place, end = 0, 0
    for start, end in _blocks(size, block_bytes, itemsize):
        if place + LENGTH.size > len(view):
            raise ValueError("a block is missing")
        (length,) = LENGTH.unpack_from(view, place)
        place += LENGTH.size
        if place + length > len(view):
            raise ValueError("a block is cut short")
        if decode(view[place : place + length], out[start:end]) != end - start:
            raise ValueError("a block has another size than the header says")
        place += length
    if len(view) - place != size - end:
        raise ValueError("the elements after the last block are missing")
    out[end:] = view[place:]
    return shuffled


def _blocks(size: int, block_bytes: int, itemsize: int) -> Iterator[tuple[int, int]]:
    """Yield pairs: start and (exclusive) end of each block in bytes. Blocks have only whole groups of 8 elements."""
    grouped = size - size % (8 * itemsize)
    for start in range(0, grouped, block_bytes):
        yield start, min(start + block_bytes, grouped)


def _parameters(values: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return four numbers: element size in bytes, block size in elements, compression, and its level."""
    if len(values) < 3 or values[2] < 1:
        raise ValueError("the client values have no element size")
    itemsize = values[2]
    block = values[3] if len(values) > 3 else 0
    compression = values[4] if len(values) > 4 else NONE
    level = values[5] if len(values) > 5 else DEFAULT_ZSTD_LEVEL
    if block % 8:
        raise ValueError(f"the block size of {block} elements is not a multiple of 8")
    if compression not in (NONE, LZ4, ZSTD):
        raise ValueError(f"compression {compression} is unknown")
    return itemsize, block or max(TARGET_BLOCK_BYTES // itemsize // 8 * 8, MIN_BLOCK), compression, level
