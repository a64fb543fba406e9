"""The filters that rearrange bytes or append a checksum: shuffle, bitshuffle and fletcher32.

To add such a filter, write a class and list it in `TRANSFORMS`. Some filters are known only by name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from hsparse.errors import BadRequest
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.byte_planes import has_bits, join_high_planes
from hsparse.format.codec_library import fletcher32, fletcher32_swapped
from hsparse.format.filters import bitshuffle
from hsparse.format.filters.definition import (
    ClientValues,
    DataSizes,
    FilterDefinition,
    FilterRequest,
    Json,
    value_at,
)


class Shuffle(FilterDefinition):
    """The shuffle filter, which sorts bytes by position in the element. Client value: the element size in bytes."""

    id = 2
    name = "shuffle"
    api_names = ("shuffle",)
    shuffles_bytes = True

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        return (sizes.element,)

    def encode(self, values: ClientValues, data: Buffer) -> Buffer:
        count, itemsize = _elements(values, data)
        if count < 2 or itemsize == 1:
            return data
        output = np.empty(len(data), np.uint8)
        whole = np.frombuffer(data, np.uint8)
        split = count * itemsize
        output[:split].reshape(itemsize, count)[:] = whole[:split].reshape(count, itemsize).T
        output[split:] = whole[split:]
        return output.data

    def decode(self, values: ClientValues, data: Buffer, limit: int) -> Buffer:
        count, itemsize = _elements(values, data)
        if count < 2 or itemsize == 1:
            return data
        whole = np.frombuffer(data, np.uint8)
        split = count * itemsize
        planes = list(whole[:split].reshape(itemsize, count)) if itemsize in (2, 4, 8) else []
        if planes and split == len(data) and not any(map(has_bits, planes[: itemsize // 2])):
            # If the high half of all numbers is zero, this takes half of the time.
            return byte_view(join_high_planes(planes).astype(f"<u{itemsize}", copy=False))
        output = np.empty(len(data), np.uint8)
        rows, shuffled = output[:split].reshape(count, itemsize), whole[:split].reshape(itemsize, count)
        if itemsize < count:  # byte by byte is up to 8 times as fast as one transposition
            for place in range(itemsize):
                rows[:, place] = shuffled[place]
        else:
            rows[:] = shuffled.T
        output[split:] = whole[split:]
        return byte_view(output)

    def growth(self, values: ClientValues) -> int:
        return 0

    def plane_element(self, values: ClientValues) -> int | None:
        return values[0] if len(values) == 1 else None

    def numcodecs(self, values: ClientValues) -> Json:
        return {"id": "shuffle", "elementsize": values[0]}


class Fletcher32(FilterDefinition):
    """The fletcher32 filter, which appends a checksum, u32 little-endian, to the data."""

    id = 3
    name = "fletcher32"
    api_names = ("fletcher32",)
    optional = False  # as in H5Pset_fletcher32: a checksum that may be missing protects nothing
    is_checksum = True
    left_out_by_clients = True

    def encode(self, values: ClientValues, data: Buffer) -> Buffer:
        return b"".join((data, struct.pack("<I", fletcher32(data))))

    def decode(self, values: ClientValues, data: Buffer, limit: int) -> Buffer:
        if len(data) < 4:
            raise ValueError("the checksum is cut short")
        body = memoryview(data)[:-4]
        (stored,) = struct.unpack("<I", memoryview(data)[-4:])
        found = fletcher32(body)
        if stored not in (found, fletcher32_swapped(found)):
            raise ValueError(f"the checksum is {found:#010x}, not {stored:#010x} as stored")
        return body

    def growth(self, values: ClientValues) -> int:
        return 4

    def numcodecs(self, values: ClientValues) -> Json:
        return {"id": "fletcher32"}


class Bitshuffle(FilterDefinition):
    """The bitshuffle filter; the module `bitshuffle` describes its client values and its output."""

    id = 32008
    name = "bitshuffle"
    api_names = ("bitshuffle",)
    shuffles_bits = True
    whole_elements = True

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        given = request.parameters
        stored = len(given) > 4 or (len(given) == 3 and given[:2] == (0, 4))
        given = given[3:] if stored else given  # clients that copy a file's pipeline send all values
        if given and given[0] % 8:
            raise BadRequest(
                f"The block size of the filter {request.name} must be a multiple of 8, not {given[0]}."
            )
        if len(given) > 1 and given[1] not in (bitshuffle.NONE, bitshuffle.LZ4, bitshuffle.ZSTD):
            raise BadRequest(
                f"The compression of the filter {request.name} must be 0 (none), 2 (LZ4) or 3 (zstd),"
                f" not {given[1]}."
            )
        if len(given) > 2:
            request.number("level", given[2], 22)
        return 0, 4, sizes.element, *given[:3]

    def other_values(self, values: ClientValues) -> Iterator[ClientValues]:
        # h5pyd's hsload omits the compression of the filter.
        if len(values) < 5:
            yield *values[:3], 0, bitshuffle.LZ4
            yield *values[:3], 0, bitshuffle.ZSTD

    def encode(self, values: ClientValues, data: Buffer) -> Buffer:
        return bitshuffle.encode_bitshuffle(values, data)

    def decode(self, values: ClientValues, data: Buffer, limit: int) -> Buffer:
        return bitshuffle.decode_bitshuffle(values, data, limit)

    def growth(self, values: ClientValues) -> int | None:
        return 0 if value_at(values, 4, bitshuffle.NONE) == bitshuffle.NONE else None

    def hsds_undoes(self, values: ClientValues) -> bool:
        return value_at(values, 4, bitshuffle.NONE) == bitshuffle.NONE


class Nbit(FilterDefinition):
    """The nbit filter, which is known only by name."""

    id = 5
    name = "nbit"
    api_names = ("nbit",)
    available = has_codec = False
    hsds_keeps = True


class ScaleOffset(FilterDefinition):
    """The scaleoffset filter, which is known only by name."""

    id = 6
    name = "scaleoffset"
    api_names = ("scaleoffset",)
    available = has_codec = False
    hsds_keeps = hsds_takes_for_compressor = True


class NoFilter(FilterDefinition):
    """The name `none` in requests: no filter is applied, not even the default filters of structured chunks."""

    id = 0
    name = "none"
    has_codec = False


TRANSFORMS: tuple[FilterDefinition, ...] = (
    Shuffle(),
    Fletcher32(),
    Bitshuffle(),
    Nbit(),
    ScaleOffset(),
    NoFilter(),
)


def _elements(values: ClientValues, data: Buffer) -> tuple[int, int]:
    """Return a pair: the number of whole elements in `data`, and the size of an element in bytes."""
    if len(values) != 1 or values[0] < 1:
        raise ValueError("the client values have no element size")
    return len(data) // values[0], values[0]
