"""Codecs and checksums from imagecodecs, or from Python's standard library if imagecodecs is not installed.

The base install omits imagecodecs, which is larger than numpy. Deflate and CRC-32 then use zlib, lookup3 and
Fletcher-32 are computed in Python, and every other codec raises `Misconfigured`. On one core, lookup3 takes 0.2 seconds
per megabyte in Python and 0.0003 in imagecodecs.

The functions of imagecodecs take any buffer and release the GIL. A decoder returns and allocates at
most `size` bytes, possibly fewer. Every decoder raises `RuntimeError` or `ValueError` for data that it cannot decode.

Checksums are unsigned 32-bit numbers: lookup3 of HDF5's metadata (3.5 GB/s on one core), Fletcher-32 of HDF5's filter
(5.6 GB/s), and CRC-32 (64 GB/s). CRC-32 guards whole chunks, because it detects every burst error of up to 32 bits.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from hsparse.errors import Misconfigured
from hsparse.format.buffer import Buffer

MASK = 0xFFFFFFFF
SEED = 0xDEADBEEF
"""The initial state of lookup3."""
SLOW_CHECKSUM_BYTES = 64 * 1024
"""Bytes of data above which a checksum in Python is slow enough to warn about."""
ROTATIONS = ((0, 1, 14), (2, 0, 11), (1, 2, 25), (0, 1, 16), (2, 0, 4), (1, 2, 14), (0, 1, 24))
"""The final steps of lookup3 over the words (c, b, a): index of the changed word, index of the other word, rotation."""


class StandardCodecs:
    """The functions of imagecodecs that the standard library can replace; other functions raise `Misconfigured`."""

    def deflate_encode(self, data: Buffer, level: int) -> bytes:
        return zlib.compress(data, min(level, 9))

    def deflate_decode(self, data: Buffer, out: int) -> bytes:
        """Return the decoded bytes; raise `RuntimeError` for an incomplete stream or more than `out` bytes."""
        stream = zlib.decompressobj()
        try:
            found = stream.decompress(data, out + 1)
        except zlib.error as error:
            raise RuntimeError(str(error)) from error
        if len(found) > out or not stream.eof:
            raise RuntimeError(f"the data is no complete zlib stream of at most {out} bytes")
        return found

    def deflate_crc32(self, data: Buffer) -> int:
        return zlib.crc32(data)

    def h5checksum_metadata(self, data: Buffer) -> int:
        if len(data) > SLOW_CHECKSUM_BYTES:
            warnings.warn(
                "Checksums of chunks are computed in Python here, which makes writing 3 to 5 times as slow: "
                'pip install "hsparse[files]"',
                stacklevel=2,
            )
        return lookup3_in_python(data)

    def h5checksum_fletcher32(self, data: Buffer) -> int:
        return fletcher32_in_python(data)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise Misconfigured(
            f'The codec {name.partition("_")[0]} is not installed here: pip install "hsparse[files]"'
        )


def lookup3_in_python(data: Buffer) -> int:
    """Return Bob Jenkins' `hashlittle` with the initial value 0 (lookup3.c, public domain)."""
    view = memoryview(data).cast("B")
    a = b = c = (SEED + len(view)) & MASK
    if not len(view):
        return c
    whole = (len(view) - 1) // 12 * 12
    words = iter(np.frombuffer(view[:whole], "<u4").tolist())
    for x, y, z in zip(words, words, words, strict=True):
        a, b, c = a + x, b + y, (c + z) & MASK
        a = (a - c) & MASK ^ ((c << 4) & MASK | c >> 28)
        c += b
        b = (b - a) & MASK ^ ((a << 6) & MASK | a >> 26)
        a = (a + c) & MASK
        c = (c - b) & MASK ^ ((b << 8) & MASK | b >> 24)
        b = (b + a) & MASK
        a = (a - c) & MASK ^ ((c << 16) & MASK | c >> 16)
        c = (c + b) & MASK
        b = (b - a) & MASK ^ ((a << 19) & MASK | a >> 13)
        a = (a + c) & MASK
        c = (c - b) & MASK ^ ((b << 4) & MASK | b >> 28)
        b = (b + a) & MASK
    last = np.frombuffer(bytes(view[whole:]).ljust(12, b"\0"), "<u4").tolist()
    state = [(c + last[2]) & MASK, (b + last[1]) & MASK, (a + last[0]) & MASK]
    for changed, by, bits in ROTATIONS:
        value = state[by]
        state[changed] = ((state[changed] ^ value) - ((value << bits) & MASK | value >> (32 - bits))) & MASK
    return int(state[0])


def fletcher32_in_python(data: Buffer) -> int:
    """Return the Fletcher-32 of HDF5's filter over big-endian 16-bit words, the last word padded with a zero byte."""
    view = memoryview(data).cast("B")
    words = np.frombuffer(bytes(view) + bytes(len(view) % 2), ">u2").astype(np.uint64)
    modulus = 0xFFFF
    # The second sum counts the first word len(words) times and the last word once.
    counts = np.arange(len(words), 0, -1, dtype=np.uint64) % np.uint64(modulus)
    first, second = int(words.sum()), int((words * counts % np.uint64(modulus)).sum())
    # 65535 and 0 are congruent; the filter stores 65535 unless all words are 0.
    zero = modulus if first else 0
    return (second % modulus or zero) << 16 | (first % modulus or zero)


try:
    import imagecodecs
except ModuleNotFoundError:
    codecs: Any = StandardCodecs()
else:
    codecs = imagecodecs


def deflate_encode(data: Buffer, level: int) -> bytes:
    """Return `data` as a zlib stream; imagecodecs uses libdeflate, which takes half of zlib's time or less."""
    return cast(bytes, codecs.deflate_encode(data, level=level))


def deflate_decode(data: Buffer, size: int) -> bytes:
    return cast(bytes, codecs.deflate_decode(data, out=size))


def lzf_encode(data: Buffer) -> bytes:
    """Return `data` as an LZF stream, which has only literals if the data does not compress."""
    return cast(bytes, codecs.lzf_encode(data))


def lzf_decode(data: Buffer, size: int) -> bytes:
    return cast(bytes, codecs.lzf_decode(data, out=size))


def zstd_encode(data: Buffer, level: int) -> bytes:
    return cast(bytes, codecs.zstd_encode(data, level=level))


def zstd_decode(data: Buffer, size: int) -> bytes:
    return cast(bytes, codecs.zstd_decode(data, out=size))


def zstd_decode_into(data: Buffer, out: memoryview) -> int:
    """Decode into the start of `out`; return the number of decoded bytes."""
    return len(codecs.zstd_decode(data, out=out))


def lz4_encode(data: Buffer) -> bytes:
    """Return one LZ4 block."""
    return cast(bytes, codecs.lz4_encode(data))


def lz4_decode_into(data: Buffer, out: memoryview) -> int:
    """Decode one LZ4 block into the start of `out`; return the number of decoded bytes."""
    return len(codecs.lz4_decode(data, out=out))


def lz4h5_encode(data: Buffer, block: int) -> bytes:
    """Return LZ4 blocks of `block` bytes (0: the default of 1 GiB) in the framing of HDF5's LZ4 filter."""
    return cast(bytes, codecs.lz4h5_encode(data, blocksize=block or None))


def lz4h5_decode(data: Buffer, size: int) -> bytes:
    return cast(bytes, codecs.lz4h5_decode(data, out=size))


def blosc_encode(data: Buffer, level: int, shuffle: int, compressor: int, itemsize: int) -> bytes:
    """Return a Blosc 1 frame, which is uncompressed if the data does not compress."""
    return cast(
        bytes,
        codecs.blosc_encode(
            data, level=level, shuffle=shuffle, compressor=compressor, typesize=itemsize, numthreads=1
        ),
    )


def blosc_decode(data: Buffer, size: int) -> bytes:
    return cast(bytes, codecs.blosc_decode(data, out=size, numthreads=1))


def bitshuffle_encode(data: Buffer, itemsize: int, block: int) -> bytes:
    """Return `data` with transposed bits in blocks of `block` elements; the last 0 to 7 elements stay unchanged."""
    return cast(bytes, codecs.bitshuffle_encode(data, itemsize=itemsize, blocksize=block))


def bitshuffle_decode(data: Buffer, itemsize: int, block: int) -> bytes:
    return cast(bytes, codecs.bitshuffle_decode(data, itemsize=itemsize, blocksize=block))


ZLIB_CRC_BYTES = 4096
"""The number of bytes below which zlib's CRC-32 is faster: a call of imagecodecs costs about 2 us."""


def lookup3(data: Buffer) -> int:
    """Return Jenkins' lookup3 (`hashlittle`, initial value 0), the checksum of all HDF5 metadata."""
    return int(codecs.h5checksum_metadata(data))


def fletcher32(data: Buffer) -> int:
    """Return the checksum that HDF5's fletcher32 filter appends, little-endian, to the data.

    The checksum sums big-endian 16-bit words; an odd last byte is the high byte of its word.
    """
    return int(codecs.h5checksum_fletcher32(data))


def fletcher32_swapped(value: int) -> int:
    """Return `value` with the two bytes of each half swapped, as HDF5 before 1.6.3 did on little-endian machines."""
    return (value & 0x00FF00FF) << 8 | (value & 0xFF00FF00) >> 8


def crc32(data: Buffer) -> int:
    """Return the CRC-32 of zlib and Ethernet (polynomial 0x04C11DB7, reflected)."""
    if len(data) < ZLIB_CRC_BYTES:
        return zlib.crc32(data)
    return int(codecs.deflate_crc32(data))
