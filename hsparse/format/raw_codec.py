"""Raw codecs of imagecodecs: at C speed, on any buffer, without the GIL.

`size` is the most bytes that a decoder may return, and allocates; the result may be shorter. All raise
`RuntimeError` or `ValueError` when they cannot encode or decode the data.
"""

from __future__ import annotations

from hsparse.format.buffer import Buffer
from hsparse.format.codec_library import codecs


def deflate_encode(data: Buffer, level: int) -> bytes:
    """Return a zlib stream; by libdeflate, as small as zlib's own in half its time or less."""
    result: bytes = codecs.deflate_encode(data, level=level)
    return result


def deflate_decode(data: Buffer, size: int) -> bytes:
    result: bytes = codecs.deflate_decode(data, out=size)
    return result


def lzf_encode(data: Buffer) -> bytes:
    """Return an LZF stream, of literals alone where the data does not get smaller."""
    result: bytes = codecs.lzf_encode(data)
    return result


def lzf_decode(data: Buffer, size: int) -> bytes:
    result: bytes = codecs.lzf_decode(data, out=size)
    return result


def zstd_encode(data: Buffer, level: int) -> bytes:
    result: bytes = codecs.zstd_encode(data, level=level)
    return result


def zstd_decode(data: Buffer, size: int) -> bytes:
    result: bytes = codecs.zstd_decode(data, out=size)
    return result


def zstd_decode_into(data: Buffer, out: memoryview) -> int:
    """Decode to the start of `out`; return how many bytes came."""
    return len(codecs.zstd_decode(data, out=out))


def lz4_encode(data: Buffer) -> bytes:
    """Return one LZ4 block."""
    result: bytes = codecs.lz4_encode(data)
    return result


def lz4_decode_into(data: Buffer, out: memoryview) -> int:
    """Decode one LZ4 block to the start of `out`; return how many bytes came."""
    return len(codecs.lz4_decode(data, out=out))


def lz4h5_encode(data: Buffer, block: int) -> bytes:
    """Return HDF5's framing of LZ4 blocks of `block` bytes, 0 for the default of 1 GiB."""
    result: bytes = codecs.lz4h5_encode(data, blocksize=block or None)
    return result


def lz4h5_decode(data: Buffer, size: int) -> bytes:
    result: bytes = codecs.lz4h5_decode(data, out=size)
    return result


def blosc_encode(data: Buffer, level: int, shuffle: int, compressor: int, itemsize: int) -> bytes:
    """Return a Blosc 1 frame, uncompressed where the data does not get smaller."""
    result: bytes = codecs.blosc_encode(
        data, level=level, shuffle=shuffle, compressor=compressor, typesize=itemsize, numthreads=1
    )
    return result


def blosc_decode(data: Buffer, size: int) -> bytes:
    result: bytes = codecs.blosc_decode(data, out=size, numthreads=1)
    return result


def bitshuffle_encode(data: Buffer, itemsize: int, block: int) -> bytes:
    """Transpose bits in blocks of `block` elements; up to 7 elements at the end stay as they are."""
    result: bytes = codecs.bitshuffle_encode(data, itemsize=itemsize, blocksize=block)
    return result


def bitshuffle_decode(data: Buffer, itemsize: int, block: int) -> bytes:
    result: bytes = codecs.bitshuffle_decode(data, itemsize=itemsize, blocksize=block)
    return result
