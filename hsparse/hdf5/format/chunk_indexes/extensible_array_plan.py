"""The plan of an extensible array: space is allocated for blocks with chunks, and pages with chunks are written.

H5.format.html, VII.D "The Extensible Array Index".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.buffer import Buffer
from hsparse.hdf5.format.chunk_indexes.chunk_records import (
    ChunkRecords,
    EncodedRecords,
    encode_records,
    number_chunks,
    place_elements,
    record_type,
)
from hsparse.hdf5.format.chunk_indexes.extensible_array import (
    DEFAULT_SHAPE,
    HEADER,
    ExtensibleShape,
    extensible_header_size,
)
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_plan import IndexPlan, check_planned
from hsparse.hdf5.format.file_fields import seal_block, seal_page


class _PlannedBlock(NamedTuple):
    """A data block to write: `number` counts in the level, `offset` in the index; `rows` are its sorted records."""

    level: int
    number: int
    offset: int
    rows: slice


@dataclass(frozen=True, slots=True, eq=False)
class ExtensibleArrayPlan(IndexPlan):
    """The plan of an extensible array; `numbers: (n,) uint64` are the chunks' numbers, ascending.

    The index block has the first `own` chunks. `places: (n,)` are the chunks' indices in their blocks. `levels` maps
    each level's number to the offset of its super block in the index.
    """

    numbers: NDArray[np.uint64]
    own: int
    places: NDArray[np.uint64]
    levels: dict[int, int]
    blocks: list[_PlannedBlock]

    def pieces(self, address: int, records: ChunkRecords) -> Iterator[tuple[int, Buffer]]:
        layout = self.layout
        version, client = layout.block_version, layout.client
        owner = address.to_bytes(layout.address_width, "little")
        elements = encode_records(records.take(self.order), record_type(layout, layout.size_width))
        yield 0, seal_block(b"EAHD", version, client, self.header(elements.itemsize, address))
        own = place_elements(DEFAULT_SHAPE.index_elements, self.places[: self.own], elements[: self.own])
        content = self.addresses(address)
        yield extensible_header_size(layout), seal_block(b"EAIB", version, client, owner, own, content)
        for number, offset in self.levels.items():
            content = self.level_content(number, address)
            yield offset, seal_block(b"EASB", version, client, owner, content)
        for block in self.blocks:
            head = owner + _first(block).to_bytes(DEFAULT_SHAPE.offset_width, "little")
            for offset, data in self.block_parts(block, elements):
                sealed = seal_page(data) if offset else seal_block(b"EADB", version, client, head, data)
                yield block.offset + offset, sealed

    @property
    def shape(self) -> ExtensibleShape:
        return _shape(self.layout)

    def undefined_addresses(self, count: int) -> NDArray[Any]:
        """Return `count` undefined addresses."""
        return np.full(count, self.layout.undefined, f"<u{self.layout.address_width}")

    def addresses(self, address: int) -> bytes:
        """Return the encoded addresses of data and super blocks for the index block of an array at `address`."""
        addresses = self.undefined_addresses(DEFAULT_SHAPE.addresses)
        for block in self.blocks:
            if block.level < DEFAULT_SHAPE.direct:
                addresses[DEFAULT_SHAPE.levels()[block.level].first_block + block.number] = (
                    address + block.offset
                )
        for number, offset in self.levels.items():
            addresses[DEFAULT_SHAPE.direct_blocks + number - DEFAULT_SHAPE.direct] = address + offset
        return addresses.tobytes()

    def header(self, size: int, address: int) -> bytes:
        """Return the content of the header of an array at `address` with records of `size` bytes."""
        levels = DEFAULT_SHAPE.levels()
        lengths = [self.shape.block_size(levels[block.level], size) for block in self.blocks]
        room = sum(levels[block.level].elements for block in self.blocks)
        statistics = (
            len(self.levels),
            sum(self.shape.level_size(levels[number]) for number in self.levels),
            len(self.blocks),
            sum(lengths),
            int(self.numbers[-1]) + 1,
            DEFAULT_SHAPE.index_elements + room,
        )
        index_block = address + extensible_header_size(self.layout)
        return self.layout.fields(HEADER).pack(size, *DEFAULT_SHAPE.parameters, *statistics, index_block)

    def level_content(self, number: int, address: int) -> bytes:
        """Return the content of a level's super block, except its prefix and the header's address before it."""
        level = DEFAULT_SHAPE.levels()[number]
        pages = DEFAULT_SHAPE.pages(level)
        bits = np.zeros(8 * DEFAULT_SHAPE.bitmap_size(level), np.uint8)
        addresses = self.undefined_addresses(level.blocks)
        for block in self.blocks:
            if block.level != number:
                continue
            addresses[block.number] = address + block.offset
            if pages:
                bits[
                    block.number * pages + (self.places[block.rows] >> np.uint64(DEFAULT_SHAPE.page_bits))
                ] = 1
        first = level.start.to_bytes(DEFAULT_SHAPE.offset_width, "little")
        return first + np.packbits(bits).tobytes() + addresses.tobytes()

    def block_parts(self, block: _PlannedBlock, elements: EncodedRecords) -> Iterator[tuple[int, Buffer]]:
        """Yield pairs of an offset in a data block and the bytes of its elements there.

        If the block has pages, yield (0, empty bytes) for its prefix, and then the elements of each written page.
        """
        level = DEFAULT_SHAPE.levels()[block.level]
        places, found = self.places[block.rows], elements[block.rows]
        if not DEFAULT_SHAPE.pages(level):
            yield 0, place_elements(level.elements, places, found)
            return
        yield 0, b""
        count = 1 << DEFAULT_SHAPE.page_bits
        pages, starts = np.unique(places >> np.uint64(DEFAULT_SHAPE.page_bits), return_index=True)
        spans = pairwise((*starts.tolist(), len(places)))
        for page, (start, stop) in zip(pages.tolist(), spans, strict=True):
            rest = places[start:stop] & np.uint64(count - 1)
            offset = self.shape.prefix_size + 4 + page * (count * elements.itemsize + 4)
            yield offset, place_elements(count, rest, found[start:stop])


def _shape(layout: IndexLayout) -> ExtensibleShape:
    return replace(DEFAULT_SHAPE, address_width=layout.address_width)


def _first(block: _PlannedBlock) -> int:
    """Return the number of a data block's first element as HDF5 stores this number.

    If the block's address is in the index block, HDF5 also counts the blocks of earlier levels as blocks of this size.
    """
    level = DEFAULT_SHAPE.levels()[block.level]
    before = level.first_block if block.level < DEFAULT_SHAPE.direct else 0
    return level.start + (before + block.number) * level.elements


def plan_extensible_array(layout: IndexLayout, scaled: NDArray[np.uint64]) -> ExtensibleArrayPlan:
    """Plan the extensible array of chunks at `scaled: (n, rank) uint64` coordinates; n is at least 1.

    Raises `BadRequest` if a chunk's number is beyond the maximum of 2^32 elements of an extensible array.
    """
    numbers, levels = number_chunks(layout, scaled), DEFAULT_SHAPE.levels()
    order = np.argsort(numbers)
    numbers = numbers[order]
    if int(numbers[-1]) >> DEFAULT_SHAPE.bits:
        raise BadRequest(
            f"Chunk number {int(numbers[-1])} is beyond the {1 << DEFAULT_SHAPE.bits} chunks of an extensible array."
        )
    own = int(np.searchsorted(numbers, DEFAULT_SHAPE.index_elements))
    level, block, place = DEFAULT_SHAPE.find(numbers[own:] - np.uint64(DEFAULT_SHAPE.index_elements))
    changes = (np.diff(level, prepend=-1) != 0) | (np.diff(block, prepend=np.uint64(0)) != 0)
    firsts = np.flatnonzero(changes)
    record = record_type(layout, layout.size_width).itemsize
    shape = _shape(layout)
    end = extensible_header_size(layout) + shape.index_block_size(record)
    offsets: dict[int, int] = {}
    for number in np.unique(level[firsts]).tolist():
        if number >= DEFAULT_SHAPE.direct:
            offsets[number] = end
            end += shape.level_size(levels[number])
    blocks: list[_PlannedBlock] = []
    for start, stop in pairwise((*firsts.tolist(), len(level))):
        number = int(level[start])
        blocks.append(_PlannedBlock(number, int(block[start]), end, slice(own + start, own + stop)))
        end += shape.block_size(levels[number], record)
    places = np.concatenate((numbers[:own], place))
    return ExtensibleArrayPlan(layout, order, check_planned(end), numbers, own, places, offsets, blocks)
