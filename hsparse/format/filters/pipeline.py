"""Filter pipelines: bytes through HDF5's filters and back, exactly as libhdf5 and its plugins do it.

A filter that fails, or one that HDF5 skips because its output is not smaller, sets its bit in the filter
mask if it is optional (H5.format.html, IV.A.2.l "Filter Pipeline Message").
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.format import raw_codec
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.checksum import fletcher32, fletcher32_swapped
from hsparse.format.filters.bitshuffle import NONE, decode_bitshuffle, encode_bitshuffle
from hsparse.format.filters.definition import Filter

Values = tuple[int, ...]

UNKNOWN_LIMIT = 1 << 30
"""What unfiltered data of unknown size is limited to, in bytes."""

DEFAULT_DEFLATE_LEVEL = 6
DEFAULT_ZSTD_LEVEL = 3
DEFAULT_BLOSC_LEVEL = 5


@dataclass(frozen=True, slots=True)
class Codec:
    """One filter: `decode` is given the most bytes it may return.

    Both raise `ValueError` or `RuntimeError`. `growth` tells by how many bytes encoding makes data longer,
    None when that depends on the data. `declines`: HDF5 skips the filter when it does not make data smaller.
    """

    name: str
    encode: Callable[[Values, Buffer], Buffer]
    decode: Callable[[Values, Buffer, int], Buffer]
    growth: Callable[[Values], int | None]
    declines: bool = False


def encode(pipeline: tuple[Filter, ...], data: Buffer) -> tuple[Buffer, int]:
    """Filter `data`; return what comes out and the filter mask. No data is never filtered.

    `BadRequest` when a filter that is not optional fails.
    """
    mask = 0
    if not len(data):
        return data, mask
    for place, filter in enumerate(pipeline):
        codec = codec_of(filter)
        try:
            output = codec.encode(filter.values, data)
        except (RuntimeError, ValueError) as error:
            if not filter.optional:
                raise BadRequest(
                    f"The filter {codec.name} cannot encode {len(data)} bytes: {error}."
                ) from error
            mask |= 1 << place
            continue
        if codec.declines and filter.optional and len(output) >= len(data):
            mask |= 1 << place
        else:
            data = output
    return data, mask


def decode(pipeline: tuple[Filter, ...], data: Buffer, mask: int, expected_size: int | None) -> Buffer:
    """Reverse the pipeline; filters whose bit is set in `mask` are skipped.

    `expected_size` is the size of the unfiltered data in bytes; without it the result is limited to
    `UNKNOWN_LIMIT`. `Corrupt`, naming the filter, when the data is not what the filters made.
    """
    if mask >> len(pipeline):
        raise Corrupt(
            f"The filter mask {mask:#x} has bits beyond the {len(pipeline)} filters of the pipeline."
        )
    if len(data) or expected_size:
        sizes = _sizes(pipeline, mask, UNKNOWN_LIMIT if expected_size is None else expected_size)
        for place in reversed(range(len(pipeline))):
            if not mask >> place & 1:
                data = _decode_one(pipeline[place], data, sizes[place])
    if expected_size is not None and len(data) != expected_size:
        raise Corrupt(f"The filters return {len(data)} bytes; {expected_size} are expected.")
    return data


def codec_of(filter: Filter) -> Codec:
    """Return how a filter works; `Unsupported` when it is none of `CODECS`."""
    try:
        return CODECS[filter.id]
    except KeyError:
        names = ", ".join(codec.name for codec in CODECS.values())
        raise Unsupported(f"The filter with id {filter.id} is not available; use one of {names}.") from None


def _decode_one(filter: Filter, data: Buffer, limit: int) -> Buffer:
    codec = codec_of(filter)
    try:
        output = codec.decode(filter.values, data, limit)
    except (RuntimeError, ValueError) as error:
        raise Corrupt(f"The filter {codec.name} cannot decode {len(data)} bytes: {error}.") from error
    if len(output) > limit:
        raise Corrupt(f"The filter {codec.name} returns {len(output)} bytes; at most {limit} are expected.")
    return output


def _sizes(pipeline: tuple[Filter, ...], mask: int, size: int) -> list[int]:
    """Return, for each filter, the most bytes that went into it when unfiltered data has `size` bytes."""
    sizes = []
    most = 8 * size
    for place, filter in enumerate(pipeline):
        sizes.append(size)
        if not mask >> place & 1:
            growth = codec_of(filter).growth(filter.values)
            # No compressor makes data eight times as long: the small blocks LZ4 may be told to use are worst.
            size = min(8 * size, most) + 4096 if growth is None else size + growth
    return sizes


def _any_growth(values: Values) -> None:
    return None


def _no_growth(values: Values) -> int:
    return 0


def _value(values: Values, place: int, default: int) -> int:
    return values[place] if len(values) > place else default


def _deflate_encode(values: Values, data: Buffer) -> Buffer:
    return raw_codec.deflate_encode(data, _value(values, 0, DEFAULT_DEFLATE_LEVEL))


def _deflate_decode(values: Values, data: Buffer, limit: int) -> Buffer:
    # Two bits code at most 258 bytes, so memory need not be taken for more.
    return raw_codec.deflate_decode(data, min(limit, 1040 * len(data)))


def _shuffle_encode(values: Values, data: Buffer) -> Buffer:
    count, itemsize = _elements(values, data)
    if count < 2 or itemsize == 1:
        return data
    output = np.empty(len(data), np.uint8)
    whole = np.frombuffer(data, np.uint8)
    split = count * itemsize
    output[:split].reshape(itemsize, count)[:] = whole[:split].reshape(count, itemsize).T
    output[split:] = whole[split:]
    return byte_view(output)


def _shuffle_decode(values: Values, data: Buffer, limit: int) -> Buffer:
    count, itemsize = _elements(values, data)
    if count < 2 or itemsize == 1:
        return data
    output = np.empty(len(data), np.uint8)
    whole = np.frombuffer(data, np.uint8)
    split = count * itemsize
    rows, shuffled = output[:split].reshape(count, itemsize), whole[:split].reshape(itemsize, count)
    if itemsize < count:  # up to 8 times as fast as the transposition in one go
        for place in range(itemsize):
            rows[:, place] = shuffled[place]
    else:
        rows[:] = shuffled.T
    output[split:] = whole[split:]
    return byte_view(output)


def _elements(values: Values, data: Buffer) -> tuple[int, int]:
    """Return the number of whole elements and their size in bytes."""
    if len(values) != 1 or values[0] < 1:
        raise ValueError("the client values have no element size")
    return len(data) // values[0], values[0]


def _fletcher32_encode(values: Values, data: Buffer) -> Buffer:
    return b"".join((data, struct.pack("<I", fletcher32(data))))


def _fletcher32_decode(values: Values, data: Buffer, limit: int) -> Buffer:
    if len(data) < 4:
        raise ValueError("the checksum is cut short")
    body = memoryview(data)[:-4]
    (stored,) = struct.unpack("<I", memoryview(data)[-4:])
    found = fletcher32(body)
    if stored not in (found, fletcher32_swapped(found)):
        raise ValueError(f"the checksum is {found:#010x}, not {stored:#010x} as stored")
    return body


def _lzf_encode(values: Values, data: Buffer) -> Buffer:
    return raw_codec.lzf_encode(data)


def _lzf_decode(values: Values, data: Buffer, limit: int) -> Buffer:
    # Three bytes code at most 264.
    return raw_codec.lzf_decode(data, min(limit, 88 * len(data)))


def _blosc_encode(values: Values, data: Buffer) -> Buffer:
    return raw_codec.blosc_encode(
        data,
        _value(values, 4, DEFAULT_BLOSC_LEVEL),
        _value(values, 5, 1),
        _value(values, 6, 0),
        _value(values, 2, 1),
    )


def _blosc_decode(values: Values, data: Buffer, limit: int) -> Buffer:
    # Blosc 1 header: two versions, flags, element size; u32 sizes of the data, of a block, of the frame.
    if len(data) < 16:
        raise ValueError("the header is cut short")
    size, _, frame = struct.unpack_from("<III", data, 4)
    if size > limit or frame != len(data):
        raise ValueError(f"the header's sizes {size} and {frame} are not valid")
    return raw_codec.blosc_decode(data, size)


def _lz4_encode(values: Values, data: Buffer) -> Buffer:
    return raw_codec.lz4h5_encode(data, _value(values, 0, 0))


def _lz4_decode(values: Values, data: Buffer, limit: int) -> Buffer:
    # Header, big-endian: u64 size of the data, u32 size of a block.
    if len(data) < 12:
        raise ValueError("the header is cut short")
    size, block = struct.unpack_from(">QI", data)
    if size > limit or not block:
        raise ValueError(f"the header's sizes {size} and {block} are not valid")
    return raw_codec.lz4h5_decode(data, size)


def _zstd_encode(values: Values, data: Buffer) -> Buffer:
    return raw_codec.zstd_encode(data, _value(values, 0, DEFAULT_ZSTD_LEVEL))


def _zstd_decode(values: Values, data: Buffer, limit: int) -> Buffer:
    return raw_codec.zstd_decode(data, limit)


CODECS = {
    1: Codec("deflate", _deflate_encode, _deflate_decode, _any_growth),
    2: Codec("shuffle", _shuffle_encode, _shuffle_decode, _no_growth),
    3: Codec("fletcher32", _fletcher32_encode, _fletcher32_decode, lambda values: 4),
    32000: Codec("lzf", _lzf_encode, _lzf_decode, _any_growth, declines=True),
    32001: Codec("blosc", _blosc_encode, _blosc_decode, _any_growth, declines=True),
    32004: Codec("lz4", _lz4_encode, _lz4_decode, _any_growth),
    32008: Codec(
        "bitshuffle",
        encode_bitshuffle,
        decode_bitshuffle,
        lambda values: 0 if _value(values, 4, NONE) == NONE else None,
    ),
    32015: Codec("zstd", _zstd_encode, _zstd_decode, _any_growth),
}
