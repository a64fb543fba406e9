"""The external data files message: the files that hold the data of a contiguous dataset.

H5.format.html, IV.A.2.h (message 0x0007). The names of the files are in a local heap.
"""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import Reads
from hsparse.hdf5.format.fractal_heap import read_local_heap
from hsparse.hdf5.format.hdf5_file import Hdf5File


@dataclass(frozen=True, slots=True)
class ExternalFile:
    """`size` bytes from `offset` of the file `name`; None is as many as there are."""

    name: str
    offset: int
    size: int | None


def parse_external_files(file: Hdf5File, message: ByteReader) -> Reads[tuple[ExternalFile, ...]]:
    """Read the message and its names, pieces in the order of the data; raises `Corrupt`."""
    version = message.number(1, "external files' header")
    message.take(3, "external files' header")
    _, used = message.numbers(2, 2, "external files' header")
    address = file.widths.read_address(message, "address of the local heap")
    if version != 1 or address is None:
        raise Corrupt(
            f"The {message.subject} has an external files message of version {version}, heap {address}."
        )
    slots = [message.numbers(3, file.widths.length, "external file's slot") for _ in range(used)]
    heap = yield from read_local_heap(file, address)
    unlimited = 2 ** (8 * file.widths.length) - 1
    return tuple(
        ExternalFile(heap.text(name), offset, None if size == unlimited else size)
        for name, offset, size in slots
    )
