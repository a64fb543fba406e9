"""The superblock, versions 0 to 3: base address, widths of addresses and lengths, and root group of a file.

H5.format.html, II.A. The superblock is at byte 0 or, after a user block, at 512, 1024, 2048 and so on. Its extension
may have the message "B-tree 'K' Values" (IV.A.2.t, message 0x0013) with the node sizes of version 1 B-trees.
Superblocks of versions 0 and 1 contain these values themselves.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.codec_library import lookup3
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import ByteRange, Reads, Widths, address_bytes, open_page
from hsparse.hdf5.format.hdf5_file import DEFAULT_K, Hdf5File
from hsparse.hdf5.format.object_header import MessageType, read_object_header, read_shared_table

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MAX_SUPERBLOCK = 8 + 16 + 4 + 4 * 8 + 40
"""The size in bytes of the largest superblock: version 1 with addresses of 8 bytes."""
FIRST_USER_BLOCK = 512
WIDTHS = (2, 4, 8)
SIZE_2 = 48
"""The size in bytes of a superblock of version 2 or 3 with addresses of 8 bytes."""


def read_superblock(size: int) -> Reads[Hdf5File]:
    """Find and read the superblock of a file of `size` bytes. Raises `Corrupt`, or `Unsupported` if the version or
    a width is unknown, or if the file is one of several files that together form an HDF5 file."""
    base = yield from _find(size)
    (data,) = yield (ByteRange(base, min(MAX_SUPERBLOCK, size - base)),)
    reader = ByteReader(memoryview(data), subject=f"superblock at byte {base}")
    reader.take(len(SIGNATURE), "signature")
    version = reader.number(1, "version")
    if version > 3:
        raise Unsupported(f"The {reader.subject} has version {version}; only 0 to 3 are known.")
    if version < 2:
        return _read_old(reader, size, base, version)
    file, extension = _read_new(reader, size, base, version)
    if extension is None:
        return file
    header = yield from read_object_header(file, extension)
    for message in header.messages:
        if message.kind == MessageType.BTREE_K:
            reader = ByteReader(message.data, subject="superblock extension")
            file = replace(file, chunk_k=decode_chunk_k(reader))
    return replace(file, shared=(yield from read_shared_table(file, header)))


def _find(size: int) -> Reads[int]:
    places = [0]
    while (place := max(FIRST_USER_BLOCK, 2 * places[-1])) + len(SIGNATURE) <= size:
        places.append(place)
    # Most files have no user block, so byte 0 is read first; all other places are read in one step.
    for some in (places[:1], places[1:]) if size >= len(SIGNATURE) else ():
        found = yield tuple(ByteRange(place, len(SIGNATURE)) for place in some)
        for place, data in zip(some, found, strict=True):
            if bytes(data) == SIGNATURE:
                return place
    raise Corrupt("The file is no HDF5 file: it has no superblock at byte 0, 512, 1024 and so on.")


def _widths(reader: ByteReader) -> Widths:
    widths = Widths(*reader.numbers(2, 1, "widths"))
    if not set(widths) <= set(WIDTHS):
        raise Unsupported(
            f"The {reader.subject} has addresses of {widths.address} bytes, lengths of {widths.length}; use 2, 4 or 8."
        )
    return widths


def _read_old(reader: ByteReader, size: int, base: int, version: int) -> Hdf5File:
    reader.take(4, "versions")
    widths = _widths(reader)
    reader.take(1 + 2 + 2 + 4, "group parameters")
    chunk_k = DEFAULT_K
    if version == 1:
        chunk_k = check_chunk_k(reader.number(2, "chunk K"), reader.subject)
        reader.take(2, "chunk K")
    stored_base, _, end, driver = (widths.read_address(reader, "addresses") for _ in range(4))
    if driver is not None:
        raise Unsupported(f"The {reader.subject} belongs to one of several files; join them (h5repack).")
    _check_end(reader, size, base, stored_base, end)
    widths.read_address(reader, "root entry")
    root = widths.read_address(reader, "root entry")
    return Hdf5File(size, base, widths, _present(reader, root), version, chunk_k=chunk_k)


def _read_new(reader: ByteReader, size: int, base: int, version: int) -> tuple[Hdf5File, int | None]:
    """Read a superblock of version 2 or 3; return a pair: the file, and the address of the superblock extension."""
    widths = _widths(reader)
    reader.take(1, "consistency flags")
    stored_base, extension, end, root = (widths.read_address(reader, "addresses") for _ in range(4))
    reader.take(4, "checksum")
    open_page(reader.data[: reader.place], reader.subject)
    _check_end(reader, size, base, stored_base, end)
    return Hdf5File(size, base, widths, _present(reader, root), version), extension


def _check_end(reader: ByteReader, size: int, base: int, stored_base: int | None, end: int | None) -> None:
    """Raise `Corrupt` if the file is shorter than its superblock says. `stored_base` and `end` count from byte 0."""
    expected = base + _present(reader, end) - _present(reader, stored_base)
    if expected > size:
        raise Corrupt(f"The file has {size} bytes, its superblock says {expected}: it was cut short.")


def _present(reader: ByteReader, address: int | None) -> int:
    if address is None:
        raise Corrupt(f"The {reader.subject} has no address of the root group, or no beginning or end.")
    return address


def encode_superblock(root: int, end: int, version: int = 2, base: int = 0) -> bytes:
    """Encode a superblock of 48 bytes, in version 2 (HDF5 1.8 and later read it) or 3 (HDF5 1.10 and later).

    `end` counts from byte 0; `root` is relative to `base`, the size of the user block.
    """
    head = SIGNATURE + struct.pack("<BBBB", version, 8, 8, 0)
    body = head + address_bytes(base) + address_bytes(None) + address_bytes(end) + address_bytes(root)
    return body + struct.pack("<I", lookup3(body))


def decode_chunk_k(message: ByteReader) -> int:
    """Decode a message "B-tree 'K' Values"; return half the maximum number of entries in a v1 B-tree node of chunks.

    Raises `Corrupt`. The values for nodes of groups are ignored, because readers of groups do not need them.
    """
    version = message.number(1, "version")
    if version:
        raise Corrupt(
            f"The {message.subject} has a message of B-tree 'K' values of version {version}; only 0 is known."
        )
    return check_chunk_k(message.number(2, "chunk K"), message.subject)


def check_chunk_k(k: int, subject: str) -> int:
    """Return `k`; raises `Corrupt` if `k` is 0, because B-tree nodes would have no entries."""
    if not k:
        raise Corrupt(f"The {subject} says that nodes of chunk B-trees have no entries.")
    return k
