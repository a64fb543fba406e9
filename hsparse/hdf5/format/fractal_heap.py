"""Fractal heaps and local heaps.

Fractal heaps hold many links, attributes or shared messages (H5.format.html, III.G). A heap with filtered blocks is
`Unsupported`: HDF5 writes such a heap only for a group that was created with filters.

Local heaps hold the names of a group with a symbol table (III.D).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.codec_library import lookup3
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.btree_v2 import read_btree_v2, split_records
from hsparse.hdf5.format.file_fields import (
    CHECKSUM_SIZE,
    Reads,
    check_signature,
    concurrently,
    decode_name,
    open_page,
    width_of,
)
from hsparse.hdf5.format.hdf5_file import Hdf5File, StructureWalk

MANAGED, HUGE, TINY = range(3)
CHECKSUMS = 2
"""The header flag of a heap whose direct blocks have a checksum."""
HUGE_RECORD = 1
"""The B-tree record type of huge objects whose heap ids do not include their address."""
SHORT_TINY = 16
"""The size in bytes of the longest tiny object whose length fits in 4 bits."""


@dataclass(frozen=True, slots=True)
class FractalHeap:
    """The header of a heap: the lengths of its ids and its table of blocks. Block sizes double from row to row.

    A row has `width` blocks. `start` and `max_direct` are the sizes in bytes of the smallest and the largest direct
    block. `root` is the address of the root block; `rows` is the number of its rows, or 0 if it is a direct block.
    """

    file: Hdf5File
    address: int
    id_length: int
    checksummed: bool
    max_managed: int
    huge_tree: int | None
    width: int
    start: int
    max_direct: int
    heap_bits: int
    root: int | None
    rows: int

    @property
    def offset_width(self) -> int:
        return (self.heap_bits + 7) // 8

    @property
    def length_width(self) -> int:
        return min((self.max_direct.bit_length() + 6) // 8, width_of(self.max_managed))

    @property
    def direct_rows(self) -> int:
        """The number of rows of direct blocks, which contain objects. Blocks in later rows are indirect."""
        return self.max_direct.bit_length() - self.start.bit_length() + 2

    def block_size(self, row: int) -> int:
        """Return the size in bytes of each block in a row. Blocks in the first two rows have the same size."""
        return self.start << max(0, row - 1)

    def rows_of(self, size: int) -> int:
        """Return the number of rows of an indirect block that covers `size` bytes of heap space."""
        return size.bit_length() - (self.start * self.width).bit_length() + 1


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of a heap: its address in the file, and the `offset` and `size` of the heap space that it covers."""

    address: int
    offset: int
    size: int
    rows: int
    """The number of rows of an indirect block; 0 for a direct block."""


def read_fractal_heap(file: Hdf5File, address: int) -> Reads[FractalHeap]:
    """Read the heap header at `address`; raises `Corrupt` if it is damaged, `Unsupported` if the heap has filters."""
    length, width = file.widths.length, file.widths.address
    size = 22 + 12 * length + 3 * width + CHECKSUM_SIZE
    header = yield from file.read(address, size, "fractal heap header")
    check_signature(header, b"FRHP")
    id_length, filters = header.numbers(2, 2, "lengths")
    if filters:
        raise Unsupported(
            f"The {header.subject} has filters; rewrite the file with groups that have none (h5repack)."
        )
    open_page(header.data, header.subject)
    flags, max_managed = header.number(1, "flags"), header.number(4, "largest managed object")
    header.take(length, "next huge id")
    huge_tree = file.widths.read_address(header, "huge objects' B-tree")
    header.take(length + width + 8 * length, "free space and statistics")
    table_width = header.number(2, "table width")
    start, max_direct = header.numbers(2, length, "block sizes")
    heap_bits, _ = header.numbers(2, 2, "heap size")
    root = file.widths.read_address(header, "root block's address")
    rows = header.number(2, "rows of the root block")
    heap = FractalHeap(
        file, address, id_length, bool(flags & CHECKSUMS), max_managed, huge_tree, table_width, start,
        max_direct, heap_bits, root, rows,
    )  # fmt: skip
    _check(heap, header)
    return heap


def _check(heap: FractalHeap, header: ByteReader) -> None:
    sizes = (heap.width, heap.start, heap.max_direct)
    if not all(size and size & (size - 1) == 0 for size in sizes) or heap.start > heap.max_direct:
        raise Corrupt(
            f"The {header.subject} has table width and block sizes {sizes}, which are no powers of two."
        )
    if not 0 < heap.heap_bits <= 64 or heap.rows > heap.heap_bits or not heap.max_managed:
        raise Corrupt(f"The {header.subject} has an invalid size: {heap.heap_bits} bits in {heap.rows} rows.")
    if heap.id_length < 1 + heap.offset_width + heap.length_width:
        raise Corrupt(
            f"The {header.subject} has ids of {heap.id_length} bytes, too few for an offset and a length."
        )


def read_heap_objects(heap: FractalHeap, ids: Sequence[memoryview]) -> Reads[list[memoryview]]:
    """Return the objects with the heap ids `ids`, in the order of `ids`; each block is read once. Raises `Corrupt`."""
    found: dict[int, memoryview] = {}
    managed: dict[int, tuple[int, int]] = {}
    huge: dict[int, memoryview] = {}
    total = 0
    for number, id in enumerate(ids):
        kind = id[0] >> 4 & 3
        if id[0] >> 6 or kind > TINY or len(id) < heap.id_length:
            raise Corrupt(f"The fractal heap at address {heap.address} has an invalid id: {bytes(id).hex()}.")
        if kind == TINY:
            found[number] = _tiny(heap, id)
        elif kind == HUGE:
            huge[number] = id
        else:
            reader = ByteReader(id[1:], subject=f"id of the fractal heap at address {heap.address}")
            offset = reader.number(heap.offset_width, "offset")
            managed[number] = offset, reader.number(heap.length_width, "length")
            total += managed[number][1]
    if total > heap.file.size:
        raise Corrupt(f"The fractal heap at address {heap.address} has objects larger than the file.")
    found |= yield from _read_managed(heap, managed)
    found |= yield from _read_huge(heap, huge)
    return [found[number] for number in range(len(ids))]


def _tiny(heap: FractalHeap, id: memoryview) -> memoryview:
    if heap.id_length - 1 <= SHORT_TINY:
        size, begin = (id[0] & 15) + 1, 1
    else:
        size, begin = ((id[0] & 15) << 8 | id[1]) + 1, 2
    if begin + size > heap.id_length:
        raise Corrupt(
            f"The fractal heap at address {heap.address} has a tiny object of {size} bytes, too long for its id."
        )
    return id[begin : begin + size]


def _read_managed(heap: FractalHeap, places: dict[int, tuple[int, int]]) -> Reads[dict[int, memoryview]]:
    """Return a dict that maps each number in `places` to its object; `places` maps it to (offset, length) in the heap.

    In this module, the number of an object is the index of its id in the `ids` of `read_heap_objects`.
    """
    if not places:
        return {}
    if heap.root is None:
        raise Corrupt(f"The fractal heap at address {heap.address} has objects, but no blocks.")
    size = heap.block_size(heap.rows) * heap.width if heap.rows else heap.start
    root = _Block(heap.root, 0, size, heap.rows)
    walk = heap.file.walk(f"fractal heap at address {heap.address}")
    order = sorted(places, key=places.__getitem__)
    return (yield from _read_block(heap, root, [(number, *places[number]) for number in order], walk))


def _read_block(
    heap: FractalHeap, block: _Block, wanted: list[tuple[int, int, int]], walk: StructureWalk
) -> Reads[dict[int, memoryview]]:
    """Return a dict of number to object; `wanted` has each object's (number, offset, length), sorted by offset."""
    if block.rows:
        children = yield from _read_indirect(heap, block, walk)
        by_child = list(_by_child(heap, children, wanted))
        found = yield from concurrently(_read_block(heap, child, some, walk) for child, some in by_child)
        return {number: data for some in found for number, data in some.items()}
    reader = yield from walk.read(block.address, block.size, "fractal heap's direct block")
    head = _check_block(heap, block, reader, b"FHDB")
    if heap.checksummed:
        _check_data(reader, head)
        head += CHECKSUM_SIZE
    result = {}
    for number, offset, length in wanted:
        begin = offset - block.offset
        if begin < head or begin + length > block.size:
            raise Corrupt(f"The {reader.subject} has no object of {length} bytes at {begin}.")
        result[number] = reader.data[begin : begin + length]
    return result


def _by_child(
    heap: FractalHeap, children: Iterable[_Block], wanted: list[tuple[int, int, int]]
) -> Iterable[tuple[_Block, list[tuple[int, int, int]]]]:
    """Yield each child block that contains wanted objects, with these objects; both inputs are sorted by offset."""
    place = 0
    for child in children:
        begin = place
        while place < len(wanted) and wanted[place][1] < child.offset + child.size:
            if wanted[place][1] < child.offset:
                break
            place += 1
        if place > begin:
            yield child, wanted[begin:place]
    if place < len(wanted):
        raise Corrupt(
            f"The fractal heap at address {heap.address} has no block at offset {wanted[place][1]}."
        )


def _read_indirect(heap: FractalHeap, block: _Block, walk: StructureWalk) -> Reads[list[_Block]]:
    """Read an indirect block; return its allocated children, sorted by offset."""
    head = 5 + heap.file.widths.address + heap.offset_width
    size = head + block.rows * heap.width * heap.file.widths.address + CHECKSUM_SIZE
    reader = yield from walk.read(block.address, size, "fractal heap's indirect block")
    open_page(reader.data, reader.subject)
    _check_block(heap, block, reader, b"FHIB")
    children = []
    offset = block.offset
    for row in range(block.rows):
        size = heap.block_size(row)
        rows = 0 if row < heap.direct_rows else heap.rows_of(size)
        if rows < 0 or (row >= heap.direct_rows and not rows):
            raise Corrupt(
                f"The {reader.subject} has a row {row} whose blocks are too small for indirect blocks."
            )
        for _ in range(heap.width):
            address = heap.file.widths.read_address(reader, "child's address")
            if address is not None:
                children.append(_Block(address, offset, size, rows))
            offset += size
    return children


def _check_block(heap: FractalHeap, block: _Block, reader: ByteReader, signature: bytes) -> int:
    """Read and check the prefix of a block; return the size in bytes of the prefix."""
    check_signature(reader, signature)
    owner = heap.file.widths.read_address(reader, "heap's address")
    offset = reader.number(heap.offset_width, "block's offset")
    if owner != heap.address or offset != block.offset:
        raise Corrupt(
            f"The {reader.subject} is for offset {offset} of heap {owner}, not {block.offset} of heap {heap.address}."
        )
    return reader.place


def _check_data(reader: ByteReader, place: int) -> None:
    """Verify a direct block's checksum at `place`. The checksum is computed with zeros instead of its own bytes."""
    blank = bytearray(reader.data)
    blank[place : place + CHECKSUM_SIZE] = bytes(CHECKSUM_SIZE)
    if lookup3(blank) != reader.number(CHECKSUM_SIZE, "checksum"):
        raise Corrupt(f"The {reader.subject} is damaged: its checksum is wrong.")


def _read_huge(heap: FractalHeap, ids: dict[int, memoryview]) -> Reads[dict[int, memoryview]]:
    """Return a dict that maps each number in `ids` to its huge object; `ids` maps each number to a heap id.

    Huge objects are outside the heap's blocks: an id contains the object's address, or its key in a B-tree.
    """
    if not ids:
        return {}
    widths = heap.file.widths
    direct = widths.address + widths.length <= heap.id_length - 1
    places = {}
    if direct:
        for number, id in ids.items():
            places[number] = _place(heap, id[1:])
    else:
        if heap.huge_tree is None:
            raise Corrupt(
                f"The fractal heap at address {heap.address} has huge objects, but no B-tree of them."
            )
        records = yield from read_btree_v2(heap.file.bounds, widths, heap.huge_tree, HUGE_RECORD)
        width = min(8, heap.id_length - 1)
        begin = widths.address + widths.length
        by_key = {int.from_bytes(record[begin:], "little"): record for record in split_records(records)}
        for number, id in ids.items():
            record = by_key.get(int.from_bytes(id[1 : 1 + width], "little"))
            if record is None:
                raise Corrupt(
                    f"The fractal heap at address {heap.address} has no huge object {bytes(id).hex()}."
                )
            places[number] = _place(heap, record)
    walk = heap.file.walk(f"fractal heap at address {heap.address}")
    readers = yield from concurrently(walk.read(*place, "huge object") for place in places.values())
    return {number: reader.data for number, reader in zip(places, readers, strict=True)}


def _place(heap: FractalHeap, data: memoryview) -> tuple[int, int]:
    reader = ByteReader(data, subject=f"huge object of the fractal heap at address {heap.address}")
    address = heap.file.widths.read_address(reader, "address")
    size = heap.file.widths.read_length(reader, "length")
    if address is None:
        raise Corrupt(f"The {reader.subject} has no address.")
    return address, size


@dataclass(slots=True)
class LocalHeap:
    """The bytes of a local heap. `left` is the total size of names that may still be read, at first the heap's size."""

    data: bytes
    address: int
    left: int

    def text(self, offset: int) -> str:
        """Return the name at `offset`; raises `Corrupt` if no name is there, or if names overlap too much."""
        end = self.data.find(b"\0", offset)
        self.left -= end + 1 - offset
        if end < 0 or self.left < 0:
            raise Corrupt(f"The local heap at address {self.address} has no name at offset {offset}.")
        return decode_name(self.data[offset:end])


def read_local_heap(file: Hdf5File, address: int) -> Reads[LocalHeap]:
    """Read the local heap at `address`; raises `Corrupt`."""
    size = 8 + 2 * file.widths.length + file.widths.address
    reader = yield from file.read(address, size, "local heap")
    check_signature(reader, b"HEAP")
    reader.take(3, "header")
    length = file.widths.read_length(reader, "size")
    file.widths.read_length(reader, "free list")
    segment = file.widths.read_address(reader, "address of the names")
    if segment is None:
        raise Corrupt(f"The {reader.subject} has no names.")
    names = yield from file.read(segment, length, "local heap's data segment")
    return LocalHeap(bytes(names.data), address, length)
