"""Data in other datasets or files: the mappings of a virtual dataset, and external data files.

Virtual mappings: H5.format.html, IV.A.2.i, "Virtual Storage Layout", and III.E, "Global Heap Block for Virtual
Datasets". In the names of sources, as in libhdf5 (`H5D_virtual_parse_source_name`), `%b` is the number of a block and
`%%` is `%`.

External data files hold the data of a contiguous dataset. The dataset has a message (IV.A.2.h, message 0x0007), and the
names of these files are in a local heap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.dataspace_message import ByteReader
from hsparse.format.selections.serialized_selection import UNLIMITED, Regular, Serialized, decode_serialized
from hsparse.hdf5.format.file_fields import Reads, decode_name, open_page
from hsparse.hdf5.format.fractal_heap import read_local_heap
from hsparse.hdf5.format.global_heap import read_global_heap
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.layout_message import VirtualLayoutMessage

THIS_FILE = "."
"""The file name that means the file of the virtual dataset itself."""
SHARED_NAMES = 1
"""The version of the mappings in which names can be shared; libhdf5 2.0 writes this version with `libver="latest"`."""
FILE_SHARED, DATASET_SHARED, SAME_FILE = 1, 2, 4
"""Flags of a mapping in version `SHARED_NAMES`."""
MAX_NAME = 64 * 1024
SPECIFIER = re.compile(r"%([%b])")


@dataclass(frozen=True, slots=True)
class VirtualMapping:
    """The selection `virtual` of a virtual dataset reads the selection `source` of the dataset `dataset` in `file`.

    The elements of both selections correspond in row-major order. `file` and `dataset` are patterns of `block_name`.
    """

    file: str
    dataset: str
    source: Serialized
    virtual: Serialized

    @property
    def by_blocks(self) -> bool:
        """Whether each block of the virtual selection has its own source, whose name contains the block's number."""
        return any("%b" in name.replace("%%", "") for name in (self.file, self.dataset))


def block_name(pattern: str, block: int) -> str:
    """Return the file or dataset name of a block's source: replace `%b` by the block's number and `%%` by `%`."""
    return SPECIFIER.sub(lambda found: "%" if found[1] == "%" else str(block), pattern)


def unlimited_dim(selection: Serialized) -> int | None:
    """Return the dimension in which a selection is unlimited, or None if it is limited."""
    if not isinstance(selection, Regular):
        return None
    return next((dim for dim, one in enumerate(selection.spans) if UNLIMITED in (one.count, one.block)), None)


def parse_virtual_mappings(file: Hdf5File, layout: VirtualLayoutMessage) -> Reads[tuple[VirtualMapping, ...]]:
    """Read the mappings in stored order; raises `Corrupt`, or `Unsupported` if their version is unknown."""
    if layout.address is None:
        return ()
    walk = file.walk(f"mapping of a virtual dataset at address {layout.address}")
    heap = yield from read_global_heap(walk, layout.address)
    what = f"mapping of a virtual dataset at address {layout.address}"
    data = heap[layout.index]
    if len(data) < 1 + file.widths.length + 4:
        raise Corrupt(f"The {what} has {len(data)} bytes, too few for its header.")
    if data[0] not in (0, SHARED_NAMES):
        raise Unsupported(
            f"The {what} has version {data[0]}, which is not known: write the file with older bounds (libver)."
        )
    reader = ByteReader(open_page(data, what), subject=what)
    reader.take(1, "version")
    count = reader.number(file.widths.length, "number of mappings")
    # A mapping has at least 2 bytes of names or flags, and two selections of at least 16 bytes each.
    if count * (2 + 2 * 16) > len(data):
        raise Corrupt(f"The {what} has {len(data)} bytes, too few for {count} mappings.")
    found: list[VirtualMapping] = []
    for _ in range(count):
        if data[0] == SHARED_NAMES:
            names = _shared_names(reader, found, file.widths.length)
        else:
            names = _name(reader), _name(reader)
        found.append(_read_mapping(reader, *names))
    return tuple(found)


def _shared_names(reader: ByteReader, before: list[VirtualMapping], width: int) -> tuple[str, str]:
    """Read the file and dataset of a mapping in version 1: each is a name, or the number of a mapping with the name."""
    flags = reader.number(1, "flags")
    if flags & ~(FILE_SHARED | DATASET_SHARED | SAME_FILE):
        raise Corrupt(f"The {reader.subject} has the unknown flags {flags}.")

    def earlier() -> VirtualMapping:
        number = reader.number(width, "number of a mapping")
        if number >= len(before):
            raise Corrupt(
                f"The {reader.subject} takes a name from mapping {number}, which is not an earlier mapping."
            )
        return before[number]

    file = THIS_FILE if flags & SAME_FILE else earlier().file if flags & FILE_SHARED else _name(reader)
    return file, earlier().dataset if flags & DATASET_SHARED else _name(reader)


def _read_mapping(reader: ByteReader, file: str, dataset: str) -> VirtualMapping:
    found = VirtualMapping(file, dataset, decode_serialized(reader, None), decode_serialized(reader, None))
    ends = unlimited_dim(found.virtual), unlimited_dim(found.source)
    if ends[1] is not None if found.by_blocks else (ends[0] is None) != (ends[1] is None):
        raise Corrupt(f"The {reader.subject} maps an unlimited selection to a limited one, or the reverse.")
    if found.by_blocks and ends[0] is None:
        raise Corrupt(f"The {reader.subject} names sources by block (%b), but its selection is limited.")
    return found


def _name(reader: ByteReader) -> str:
    end = bytes(reader.data[reader.place : reader.place + MAX_NAME]).find(b"\0")
    if end < 0:
        raise Corrupt(f"The {reader.subject} ends inside a name, or has one of more than {MAX_NAME} bytes.")
    return decode_name(reader.take(end + 1, "name")[:-1])


@dataclass(frozen=True, slots=True)
class ExternalFile:
    """The bytes of an external file that hold data: `size` bytes (None: all) of the file `name` from `offset` on."""

    name: str
    offset: int
    size: int | None


def parse_external_files(file: Hdf5File, message: ByteReader) -> Reads[tuple[ExternalFile, ...]]:
    """Read an external data files message and its file names, in the order of the data; raises `Corrupt`."""
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
