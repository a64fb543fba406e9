"""The extensible array: an index of chunks for datasets with one unlimited dimension.

H5.format.html, VII.D "The Extensible Array Index". The first elements are in the index block, later elements in levels,
which the specification names "super blocks". Level u has 2^floor(u/2) data blocks; each has 2^floor((u+1)/2) times the
elements of the smallest data block. The index block has the data block addresses of the first levels. Each later level
has a super block with its data block addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.hdf5.format.chunk_indexes.chunk_records import (
    ChunkRecords,
    EncodedRecords,
    decode_records,
    is_allocated,
    locate_chunks,
    no_records,
    sized_record_type,
    view_elements,
)
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexLayout
from hsparse.hdf5.format.file_fields import BLOCK_PREFIX, ByteRange, Reads, open_block, open_page
from hsparse.hdf5.format.hdf5_file import FileBounds

MAX_BITS = 62
"""The largest `ExtensibleShape.bits` for which 64 bits can number all elements of all levels."""


class ArrayLevel(NamedTuple):
    """A level of `blocks` data blocks of `elements` elements each.

    `start` is the number of the level's first element, `first_block` the number of its first data block. Both numbers
    count from the first level: elements in the index block are not counted.
    """

    blocks: int
    elements: int
    start: int
    first_block: int


@lru_cache(maxsize=64)
def _levels(bits: int, least_elements: int) -> tuple[ArrayLevel, ...]:
    levels: list[ArrayLevel] = []
    start = first_block = 0
    for number in range(2 + bits - least_elements.bit_length()):
        level = ArrayLevel(1 << number // 2, least_elements << (number + 1) // 2, start, first_block)
        levels.append(level)
        start, first_block = start + level.blocks * level.elements, first_block + level.blocks
    return tuple(levels)


@dataclass(frozen=True, slots=True)
class ExtensibleShape:
    """The parameters of an array in the order of its header, with HDF5's defaults. Invalid parameters raise `Corrupt`.

    An array has at most 2^`bits` elements: `index_elements` in the index block, and `least_elements` or more in each
    data block. A level with a super block has at least `least_blocks` data blocks. A page has 2^`page_bits` elements.
    `address_width`, in bytes, is not a parameter of the header.
    """

    bits: int = 32
    index_elements: int = 4
    least_elements: int = 16
    least_blocks: int = 4
    page_bits: int = 10
    address_width: int = 8

    def __post_init__(self) -> None:
        powers = all(size and not size & (size - 1) for size in (self.least_elements, self.least_blocks))
        if not (
            powers and 0 < self.page_bits <= self.bits <= MAX_BITS and self.least_elements >> self.bits == 0
        ):
            raise Corrupt(f"The parameters of an extensible array cannot be {self.parameters}.")
        levels = self.levels()
        if self.direct > len(levels) or any(self.pages(level) for level in levels[: self.direct]):
            raise Corrupt(f"The parameters of an extensible array cannot be {self.parameters}.")

    @property
    def parameters(self) -> tuple[int, int, int, int, int]:
        """The five parameters in the order of the header."""
        return self.bits, self.index_elements, self.least_elements, self.least_blocks, self.page_bits

    @property
    def info(self) -> bytes:
        """The index information of the layout message: the parameters in an order that differs from the header's."""
        return bytes((self.bits, self.index_elements, self.least_blocks, self.least_elements, self.page_bits))

    @property
    def offset_width(self) -> int:
        """The width, in bytes, of the number of a block's first element."""
        return (self.bits + 7) // 8

    @property
    def direct(self) -> int:
        """The number of levels whose data block addresses are in the index block."""
        return 2 * (self.least_blocks.bit_length() - 1)

    @property
    def direct_blocks(self) -> int:
        return 2 * (self.least_blocks - 1)

    @property
    def addresses(self) -> int:
        """The number of addresses in the index block: of data blocks, then of super blocks."""
        return self.direct_blocks + len(self.levels()) - self.direct

    def levels(self) -> tuple[ArrayLevel, ...]:
        return _levels(self.bits, self.least_elements)

    def pages(self, level: ArrayLevel) -> int:
        """Return the number of pages in each data block of a level, or 0 if its data blocks have no pages."""
        return level.elements >> self.page_bits if level.elements > 1 << self.page_bits else 0

    def bitmap_size(self, level: ArrayLevel) -> int:
        """Return the size in bytes of a super block's bitmap, which marks the data block pages that were written."""
        return level.blocks * -(-self.pages(level) // 8)

    def index_block_size(self, record: int) -> int:
        """Return the size of the index block in bytes if records have `record` bytes."""
        addresses = self.address_width * (1 + self.addresses)
        return 6 + self.index_elements * record + addresses + 4

    def level_size(self, level: ArrayLevel) -> int:
        """Return the size in bytes of the super block of a level."""
        return self.prefix_size + self.bitmap_size(level) + self.address_width * level.blocks + 4

    @property
    def prefix_size(self) -> int:
        """The size in bytes of a data block's signature, version, client, header address and first element number."""
        return 6 + self.address_width + self.offset_width

    def block_size(self, level: ArrayLevel, record: int) -> int:
        """Return the size in bytes of each data block of a level if records have `record` bytes."""
        return self.prefix_size + 4 + level.elements * record + 4 * self.pages(level)

    def find(
        self, numbers: NDArray[np.uint64]
    ) -> tuple[NDArray[np.intp], NDArray[np.uint64], NDArray[np.uint64]]:
        """Return three arrays (n,): the elements' levels, data blocks within the level, and indices in the data block.

        `numbers: (n,)` are the elements' numbers, counted from the first element after those in the index block.
        """
        levels = self.levels()
        starts = np.array([level.start for level in levels], np.uint64)
        number = np.searchsorted(starts, numbers, "right") - 1
        lengths = np.array([level.elements for level in levels], np.uint64)[number]
        block, place = np.divmod(numbers - starts[number], lengths)
        return number, block, place


DEFAULT_SHAPE = ExtensibleShape()
"""The parameters of the arrays that libhdf5 writes by default, with addresses of 8 bytes."""


HEADER = "6BLLLLLLO"
"""The fields: record size; the array's parameters; number and bytes of super blocks and of data blocks; the highest
chunk number in the array plus one; number of elements in allocated blocks; address of the index block."""


class _DataBlock(NamedTuple):
    """A data block to read. `first` is its first element's number; `pages` are the numbers of its written pages."""

    level: ArrayLevel
    address: int
    first: int
    pages: list[int]


def read_extensible_array(layout: IndexLayout, address: int, bounds: FileBounds) -> Reads[ChunkRecords]:
    """Read the records of the extensible array with its header at `address`; raises `Corrupt` if it is invalid."""
    what = f"extensible array header at {address}"
    (data,) = yield (bounds.block(address, extensible_header_size(layout), "extensible array header"),)
    header = open_block(data, b"EAHD", layout.client, what)
    size, bits, own, least, blocks, page, *_, last, _, block = layout.fields(HEADER).unpack(header)
    dtype = sized_record_type(layout, size, what)
    shape = ExtensibleShape(bits, own, least, blocks, page, layout.address_width)
    if block == layout.undefined:
        return no_records(layout)
    reader = _ArrayReader(layout, shape, address, dtype, bounds)
    yield from reader.read(block)
    numbers, elements = np.concatenate(reader.numbers), np.concatenate(reader.elements)
    # libhdf5 also ignores elements after the highest number that was set.
    set_before = numbers < np.uint64(last)
    return decode_records(layout, elements[set_before], locate_chunks(layout, numbers[set_before]))


@dataclass(slots=True)
class _ArrayReader:
    """Reads the blocks of an array, and collects the numbers and encoded records of the chunks in them."""

    layout: IndexLayout
    shape: ExtensibleShape
    header: int
    dtype: np.dtype[Any]
    bounds: FileBounds
    numbers: list[NDArray[np.uint64]] = field(default_factory=list)
    elements: list[EncodedRecords] = field(default_factory=list)

    def read(self, address: int) -> Reads[None]:
        shape, levels = self.shape, self.shape.levels()
        own = shape.index_elements * self.dtype.itemsize
        size = shape.index_block_size(self.dtype.itemsize)
        (data,) = yield (self.bounds.block(address, size, "extensible array index block"),)
        content = self.open(data, b"EAIB", f"extensible array index block at {address}")
        self.add(0, content[:own])
        addresses = self.addresses(content[own:])
        blocks = [
            _DataBlock(level, addresses[level.first_block + number], self.first(level, number), [])
            for level in levels[: shape.direct]
            for number in range(level.blocks)
        ]
        later = list(zip(levels[shape.direct :], addresses[shape.direct_blocks :], strict=True))
        blocks.extend(
            (yield from self.read_levels([entry for entry in later if entry[1] != self.layout.undefined]))
        )
        yield from self.read_blocks([block for block in blocks if block.address != self.layout.undefined])

    def read_levels(self, levels: list[tuple[ArrayLevel, int]]) -> Reads[list[_DataBlock]]:
        """Read the super blocks of `levels`, pairs of a level and an address; return their data blocks."""
        what = "extensible array super block"
        ranges = tuple(
            self.bounds.block(address, self.shape.level_size(level), what) for level, address in levels
        )
        found = (yield ranges) if ranges else ()
        blocks: list[_DataBlock] = []
        for (level, address), data in zip(levels, found, strict=True):
            content = self.open(data, b"EASB", f"{what} at {address}")[self.shape.offset_width :]
            bitmap = self.shape.bitmap_size(level)
            pages = self.shape.pages(level)
            bits = np.unpackbits(np.frombuffer(content[:bitmap], np.uint8), count=level.blocks * pages)
            written = bits.reshape(level.blocks, pages)
            addresses = self.addresses(content[bitmap:])
            blocks.extend(
                _DataBlock(level, place, self.first(level, number), np.flatnonzero(written[number]).tolist())
                for number, place in enumerate(addresses)
            )
        return blocks

    def read_blocks(self, blocks: list[_DataBlock]) -> Reads[None]:
        what = "extensible array data block"
        ranges = tuple(place for block in blocks for place in self.ranges(block))
        found = iter((yield ranges) if ranges else ())
        for block in blocks:
            content = self.open(next(found), b"EADB", f"{what} at {block.address}")[self.shape.offset_width :]
            if not self.shape.pages(block.level):
                self.add(block.first, content)
            for page in block.pages:
                data = open_page(next(found), f"page {page} of the {what} at {block.address}")
                self.add(block.first + (page << self.shape.page_bits), data)

    def ranges(self, block: _DataBlock) -> Iterator[ByteRange]:
        """Yield the range of a data block or, if it has pages, the ranges of its prefix and of each written page."""
        shape, what = self.shape, "extensible array data block"
        size = self.dtype.itemsize
        if not shape.pages(block.level):
            yield self.bounds.block(block.address, shape.block_size(block.level, size), what)
            return
        prefix, page_size = shape.prefix_size + 4, (size << shape.page_bits) + 4
        yield self.bounds.block(block.address, prefix, what)
        for page in block.pages:
            yield self.bounds.block(block.address + prefix + page * page_size, page_size, f"{what}'s page")

    def open(self, data: Buffer, signature: bytes, what: str) -> memoryview:
        content = open_block(data, signature, self.layout.client, what)
        width = self.layout.address_width
        owner = int.from_bytes(content[:width], "little")
        if owner != self.header:
            raise Corrupt(f"The {what} belongs to the header at {owner}, not to the one at {self.header}.")
        return content[width:]

    def addresses(self, data: Buffer) -> list[int]:
        addresses: list[int] = np.frombuffer(data, f"<u{self.layout.address_width}").tolist()
        return addresses

    def first(self, level: ArrayLevel, block: int) -> int:
        return self.shape.index_elements + level.start + block * level.elements

    def add(self, first: int, data: Buffer) -> None:
        found = view_elements(data, self.dtype)
        places = np.flatnonzero(is_allocated(self.layout, found))
        self.numbers.append(places.astype(np.uint64) + np.uint64(first))
        self.elements.append(found[places])


def extensible_header_size(layout: IndexLayout) -> int:
    """Return the size in bytes of an array's header. In planned arrays, the index block follows the header."""
    return BLOCK_PREFIX + layout.fields(HEADER).size + 4
