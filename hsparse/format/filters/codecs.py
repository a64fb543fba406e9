"""The filters. Compressors: Blosc, LZ4, deflate, Zstandard and LZF. Others: byte and bit shuffle, and the checksum.

To add one, write a class and list it in `COMPRESSORS` or `TRANSFORMS`. HSDS's clients are told of compressors in that
order. Some filters are known by name only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from hsparse.errors import BadRequest, Unsupported
from hsparse.format import codec_library as raw_codec
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.byte_planes import has_bits, join_high_planes
from hsparse.format.codec_library import fletcher32, fletcher32_swapped
from hsparse.format.filters import bitshuffle
from hsparse.format.filters.definition import (
    ClientValues,
    DataSizes,
    Filter,
    FilterDefinition,
    FilterRequest,
    Json,
    value_at,
)

BLOSC_COMPRESSORS = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
"""Blosc's compressors, by its code."""
BLOSC_LARGEST_ELEMENT = 255
"""Bytes of the largest element that Blosc shuffles."""
BLOSC_LEVEL = 5


class Compressor(FilterDefinition):
    """A compressor that Blosc has too, under the name `blosc_name`."""

    is_compressor = True
    blosc_name: ClassVar[str]

    def blosc_level(self, values: ClientValues) -> int:
        """Return Blosc's level for this compressor's."""
        return BLOSC_LEVEL

    def as_blosc(self, values: ClientValues, shuffle: int, sizes: DataSizes) -> Filter:
        compressor = BLOSC_COMPRESSORS.index(self.blosc_name)
        return Filter(Blosc.id, Blosc.values(self.blosc_level(values), shuffle, compressor, sizes))


class Blosc(Compressor):
    """Blosc 1.

    Client values: revisions of the filter and the format, sizes of an element and of a chunk in bytes, level,
    shuffle, compressor.
    """

    id = 32001
    name = "blosc"
    api_names = ("blosclz",)
    declines = True
    hsds_compressor = True

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        # Clients give the values from the fifth on.
        given = request.parameters[4:]
        level = request.level if request.level is not None else value_at(given, 0, BLOSC_LEVEL)
        shuffle = request.number("shuffle", value_at(given, 1, 1), 2)
        compressor = request.number("compressor", self.compressor(given), len(BLOSC_COMPRESSORS) - 1)
        return self.values(request.number("level", level, 9), shuffle, compressor, sizes)

    def compressor(self, given: ClientValues) -> int:
        """Return the code of the compressor in the values that a client gives."""
        return value_at(given, 2, 0)

    @staticmethod
    def values(level: int, shuffle: int, compressor: int, sizes: DataSizes) -> ClientValues:
        """Return client values; `shuffle` is 0 none, 1 bytes, 2 bits."""
        element = sizes.element if sizes.element <= BLOSC_LARGEST_ELEMENT else 1
        return 2, 2, element, sizes.chunk, level, shuffle, compressor

    def as_blosc(self, values: ClientValues, shuffle: int, sizes: DataSizes) -> Filter:
        return Filter(self.id, (*values[:5], shuffle or values[5], *values[6:]))

    def encode(self, values: ClientValues, data: Buffer) -> Buffer:
        return raw_codec.blosc_encode(
            data,
            value_at(values, 4, BLOSC_LEVEL),
            value_at(values, 5, 1),
            value_at(values, 6, 0),
            value_at(values, 2, 1),
        )

    def decode(self, values: ClientValues, data: Buffer, limit: int) -> Buffer:
        # Blosc 1 header: two versions, flags, element size; u32 sizes of the data, of a block, of the frame.
        if len(data) < 16:
            raise ValueError("the header is cut short")
        size, _, frame = struct.unpack_from("<III", data, 4)
        if size > limit or frame != len(data):
            raise ValueError(f"the header's sizes {size} and {frame} are not valid")
        return raw_codec.blosc_decode(data, size)

    def numcodecs(self, values: ClientValues) -> Json:
        if len(values) <= 6:
            return super().numcodecs(values)
        name = BLOSC_COMPRESSORS[values[6]]
        return {"id": "blosc", "cname": name, "clevel": values[4], "shuffle": values[5], "blocksize": 0}


class Lz4(Compressor):
    """LZ4 blocks. Client value: the size of a block in bytes, 0 for the default."""

    id = 32004
    name = "lz4"
    api_names = ("lz4",)
    blosc_name = "lz4"
    hsds_compressor = True

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        # The filter has no level; one is checked and dropped.
        if request.level is not None:
            request.number("level", request.level, 9)
        return (request.number("block size", value_at(request.parameters, 0, 0), 0x7E000000),)

    def encode(self, values: ClientValues, data: Buffer) -> Buffer:
        return raw_codec.lz4h5_encode(data, value_at(values, 0, 0))

    def decode(self, values: ClientValues, data: Buffer, limit: int) -> Buffer:
        # Header, big-endian: u64 size of the data, u32 size of a block.
        if len(data) < 12:
            raise ValueError("the header is cut short")
        size, block = struct.unpack_from(">QI", data)
        if size > limit or not block:
            raise ValueError(f"the header's sizes {size} and {block} are not valid")
        return raw_codec.lz4h5_decode(data, size)


class Lz4hc(Blosc):
    """The REST API's own id: HDF5 has LZ4HC as a compressor of Blosc, which is stored."""

    id = 32005
    name = "lz4hc"
    api_names = ("lz4hc",)
    has_codec = False

    def requested(self, request: FilterRequest, sizes: DataSizes) -> Filter:
        return Filter(Blosc.id, self.client_values(request, sizes), self.optional)

    def compressor(self, given: ClientValues) -> int:
        return BLOSC_COMPRESSORS.index("lz4hc")


class Deflate(Compressor):
    """A zlib stream. Client value: the level."""

    id = 1
    name = "deflate"
    api_names = ("gzip", "deflate")
    blosc_name = "zlib"
    aliases = ("zlib",)
    hsds_compressor = hsds_applies = True
    dmrpp = "deflate"
    level = 6

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        return (request.level_of(4, 9),)

    def creation_property(self, values: ClientValues) -> Json:
        return {"id": self.id, "level": values[0]} if values else super().creation_property(values)

    def decoding_values(self, values: ClientValues) -> ClientValues:
        return ()

    def encode(self, values: ClientValues, data: Buffer) -> Buffer:
        return raw_codec.deflate_encode(data, values[0] if values else self.level)

    def decode(self, values: ClientValues, data: Buffer, limit: int) -> Buffer:
        # Two bits code at most 258 bytes, so memory need not be taken for more.
        return raw_codec.deflate_decode(data, min(limit, 1040 * len(data)))

    def blosc_level(self, values: ClientValues) -> int:
        return values[0]

    def dmrpp_level(self, values: ClientValues, element_size: int) -> str:
        return str(value_at(values, 0, self.level))

    def numcodecs(self, values: ClientValues) -> Json:
        return {"id": "zlib", "level": value_at(values, 0, self.level)}


class Zstd(Compressor):
    """A Zstandard frame. Client value: the level."""

    id = 32015
    name = "zstd"
    api_names = ("zstd",)
    blosc_name = "zstd"
    hsds_compressor = True
    level = 3

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        return (request.level_of(self.level, 22),)

    def encode(self, values: ClientValues, data: Buffer) -> Buffer:
        return raw_codec.zstd_encode(data, value_at(values, 0, self.level))

    def decode(self, values: ClientValues, data: Buffer, limit: int) -> Buffer:
        return raw_codec.zstd_decode(data, limit)

    def blosc_level(self, values: ClientValues) -> int:
        # Blosc's level n is 2n-1 of Zstandard's, 9 the highest; 0 would not compress.
        level = values[0]
        return 9 if level >= 18 else (level + 1) // 2 if level else 2

    def numcodecs(self, values: ClientValues) -> Json:
        return {"id": "zstd", "level": value_at(values, 0, self.level)}


class Lzf(Compressor):
    """LZF. Client values: the filter's revision, the library's version 1.5 (0x0105), the size of a chunk."""

    id = 32000
    name = "lzf"
    api_names = ("lzf",)
    blosc_name = "blosclz"
    declines = True

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        return 4, 0x0105, sizes.chunk

    def encode(self, values: ClientValues, data: Buffer) -> Buffer:
        return raw_codec.lzf_encode(data)

    def decode(self, values: ClientValues, data: Buffer, limit: int) -> Buffer:
        # Three bytes code at most 264.
        return raw_codec.lzf_decode(data, min(limit, 88 * len(data)))


class Szip(FilterDefinition):
    """Known by name only."""

    id = 4
    name = "szip"
    available = has_codec = False


class Snappy(FilterDefinition):
    """Known by name only."""

    id = 32003
    name = "snappy"
    available = has_codec = False


COMPRESSORS: tuple[FilterDefinition, ...] = (
    Blosc(),
    Lz4(),
    Lz4hc(),
    Deflate(),
    Zstd(),
    Lzf(),
    Szip(),
    Snappy(),
)


class Shuffle(FilterDefinition):
    """The bytes of elements, sorted by their place in an element. Client value: the size of an element."""

    id = 2
    name = "shuffle"
    api_names = ("shuffle",)
    dmrpp = "shuffle"
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
            # Small numbers: half of the time.
            return byte_view(join_high_planes(planes).astype(f"<u{itemsize}", copy=False))
        output = np.empty(len(data), np.uint8)
        rows, shuffled = output[:split].reshape(count, itemsize), whole[:split].reshape(itemsize, count)
        if itemsize < count:  # up to 8 times as fast as the transposition in one go
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

    def dmrpp_level(self, values: ClientValues, element_size: int) -> str:
        if values[:1] != (element_size,):
            raise Unsupported(f"DMR++ has no shuffle of {values} bytes, other than an element's.")
        return ""

    def numcodecs(self, values: ClientValues) -> Json:
        return {"id": "shuffle", "elementsize": values[0]}


class Fletcher32(FilterDefinition):
    """A checksum after the data, u32 little-endian."""

    id = 3
    name = "fletcher32"
    api_names = ("fletcher32",)
    dmrpp = "fletcher32"
    optional = False  # as H5Pset_fletcher32 does: a checksum that may silently be missing is none
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
    """The bits of elements, sorted by their place; `bitshuffle` has the client values and the form of the data."""

    id = 32008
    name = "bitshuffle"
    api_names = ("bitshuffle",)
    shuffles_bits = True
    whole_elements = True

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        given = request.parameters
        stored = len(given) > 4 or (len(given) == 3 and given[:2] == (0, 4))
        given = given[3:] if stored else given  # a client that copies a file's pipeline sends all values
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
    """Known by name only."""

    id = 5
    name = "nbit"
    api_names = ("nbit",)
    available = has_codec = False
    hsds_keeps = True


class ScaleOffset(FilterDefinition):
    """Known by name only."""

    id = 6
    name = "scaleoffset"
    api_names = ("scaleoffset",)
    available = has_codec = False
    hsds_keeps = hsds_takes_for_compressor = True


class NoFilter(FilterDefinition):
    """The name with which a request asks for no filter, not even the defaults of structured chunks."""

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
    """Return the number of whole elements and their size in bytes."""
    if len(values) != 1 or values[0] < 1:
        raise ValueError("the client values have no element size")
    return len(data) // values[0], values[0]
