"""The filters that compress: Blosc, LZ4, deflate, Zstandard and LZF. Some filters are known only by name.

To add a compressor, write a class and list it in `COMPRESSORS`. HSDS's clients see the compressors in the order of the
list. `hsparse.format.filters.transforms` has all other filters.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from hsparse.format import codec_library as raw_codec
from hsparse.format.buffer import Buffer
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
"""The names of Blosc's compressors; the index is Blosc's code."""
BLOSC_LARGEST_ELEMENT = 255
"""The most bytes of an element that Blosc can shuffle."""
BLOSC_LEVEL = 5


class Compressor(FilterDefinition):
    """A compressor that is also available inside Blosc, under the name `blosc_name`."""

    is_compressor = True
    blosc_name: ClassVar[str]

    def blosc_level(self, values: ClientValues) -> int:
        """Return Blosc's level that corresponds to this compressor's level."""
        return BLOSC_LEVEL

    def as_blosc(self, values: ClientValues, shuffle: int, sizes: DataSizes) -> Filter:
        compressor = BLOSC_COMPRESSORS.index(self.blosc_name)
        return Filter(Blosc.id, Blosc.values(self.blosc_level(values), shuffle, compressor, sizes))


class Blosc(Compressor):
    """The Blosc 1 filter.

    Client values: revisions of the filter and of the format, sizes of an element and of a chunk in bytes, level,
    shuffle, compressor.
    """

    id = 32001
    name = "blosc"
    api_names = ("blosclz",)
    declines = True
    hsds_compressor = True

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        # The level, the fifth client value, is the first one that clients choose.
        given = request.parameters[4:]
        level = request.level if request.level is not None else value_at(given, 0, BLOSC_LEVEL)
        shuffle = request.number("shuffle", value_at(given, 1, 1), 2)
        compressor = request.number("compressor", self.compressor(given), len(BLOSC_COMPRESSORS) - 1)
        return self.values(request.number("level", level, 9), shuffle, compressor, sizes)

    def compressor(self, given: ClientValues) -> int:
        """Return the compressor's code, given the client values of a request."""
        return value_at(given, 2, 0)

    @staticmethod
    def values(level: int, shuffle: int, compressor: int, sizes: DataSizes) -> ClientValues:
        """Return the client values; `shuffle` is 0 (none), 1 (bytes) or 2 (bits)."""
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
        # The Blosc 1 header: two versions, flags, element size; u32 sizes of the data, of a block, of the frame.
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
    """The LZ4 filter, which writes LZ4 blocks. Client value: the size of a block in bytes, 0 for the default."""

    id = 32004
    name = "lz4"
    api_names = ("lz4",)
    blosc_name = "lz4"
    hsds_compressor = True

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        # The filter has no level; a given level is checked and ignored.
        if request.level is not None:
            request.number("level", request.level, 9)
        return (request.number("block size", value_at(request.parameters, 0, 0), 0x7E000000),)

    def encode(self, values: ClientValues, data: Buffer) -> Buffer:
        return raw_codec.lz4h5_encode(data, value_at(values, 0, 0))

    def decode(self, values: ClientValues, data: Buffer, limit: int) -> Buffer:
        # The header is big-endian: u64 size of the data, u32 size of a block.
        if len(data) < 12:
            raise ValueError("the header is cut short")
        size, block = struct.unpack_from(">QI", data)
        if size > limit or not block:
            raise ValueError(f"the header's sizes {size} and {block} are not valid")
        return raw_codec.lz4h5_decode(data, size)


class Lz4hc(Blosc):
    """The REST API's filter LZ4HC, which is stored as Blosc with this compressor because HDF5 has no such filter."""

    id = 32005
    name = "lz4hc"
    api_names = ("lz4hc",)
    has_codec = False

    def requested(self, request: FilterRequest, sizes: DataSizes) -> Filter:
        return Filter(Blosc.id, self.client_values(request, sizes), self.optional)

    def compressor(self, given: ClientValues) -> int:
        return BLOSC_COMPRESSORS.index("lz4hc")


class Deflate(Compressor):
    """The deflate filter, which writes a zlib stream. Client value: the level."""

    id = 1
    name = "deflate"
    api_names = ("gzip", "deflate")
    blosc_name = "zlib"
    aliases = ("zlib",)
    hsds_compressor = hsds_applies = True
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
        # Two bits encode at most 258 bytes, which bounds the memory to allocate.
        return raw_codec.deflate_decode(data, min(limit, 1040 * len(data)))

    def blosc_level(self, values: ClientValues) -> int:
        return values[0]

    def numcodecs(self, values: ClientValues) -> Json:
        return {"id": "zlib", "level": value_at(values, 0, self.level)}


class Zstd(Compressor):
    """The Zstandard filter, which writes a Zstandard frame. Client value: the level."""

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
        # Blosc's level n is Zstandard's level 2n-1, and 9 the highest level; Blosc's level 0 does not compress.
        level = values[0]
        return 9 if level >= 18 else (level + 1) // 2 if level else 2

    def numcodecs(self, values: ClientValues) -> Json:
        return {"id": "zstd", "level": value_at(values, 0, self.level)}


class Lzf(Compressor):
    """The LZF filter. Client values: its revision, the library's version (0x0105), a chunk's size in bytes."""

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
        # Three bytes encode at most 264 bytes, which bounds the memory to allocate.
        return raw_codec.lzf_decode(data, min(limit, 88 * len(data)))


class Szip(FilterDefinition):
    """The szip filter, which is known only by name."""

    id = 4
    name = "szip"
    available = has_codec = False


class Snappy(FilterDefinition):
    """The snappy filter, which is known only by name."""

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
