"""The checksums of HDF5's metadata and of its fletcher32 filter, and the one of hsparse's footer.

All are unsigned 32-bit numbers. Measured on one core: CRC-32 64 GB/s, Fletcher-32 5.6 GB/s, lookup3
3.5 GB/s; so CRC-32, which also finds every burst of up to 32 bits, guards whole chunks.
"""

from __future__ import annotations

import zlib

from hsparse.format.buffer import Buffer
from hsparse.format.codec_library import codecs

SMALL = 4096
"""Bytes up to which zlib's CRC-32 is the faster one, by measurement: a call of imagecodecs costs some 2 us."""


def lookup3(data: Buffer) -> int:
    """Return Jenkins' lookup3 (`hashlittle`, initial value 0), the checksum of all HDF5 metadata."""
    return int(codecs.h5checksum_metadata(data))


def fletcher32(data: Buffer) -> int:
    """Return the checksum that HDF5's fletcher32 filter appends, little-endian, to the data.

    It sums big-endian 16-bit words; a last odd byte is the high byte of its word.
    """
    return int(codecs.h5checksum_fletcher32(data))


def fletcher32_swapped(value: int) -> int:
    """Return `value` as HDF5 before 1.6.3 stored it on little-endian machines: bytes of each half swapped."""
    return (value & 0x00FF00FF) << 8 | (value & 0xFF00FF00) >> 8


def crc32(data: Buffer) -> int:
    """Return the CRC-32 of zlib and Ethernet (polynomial 0x04C11DB7, reflected)."""
    if len(data) < SMALL:
        return zlib.crc32(data)
    return int(codecs.deflate_crc32(data))
