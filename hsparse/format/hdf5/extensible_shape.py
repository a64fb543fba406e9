"""Where an extensible array has the element of a number: in its index block, or which data block of which level.

H5.format.html, VII.D "The Extensible Array Index". After the elements of the index block come levels ("super
blocks"): level u has 2^(u/2) data blocks of 2^((u+1)/2) times the least number of elements, halves rounded down.
The index block itself has the addresses of the first levels' data blocks; each later level has a block of its own
with them, in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt

MOST_BITS = 62
"""With which all elements of all levels can be numbered in 64 bits."""


class Level(NamedTuple):
    """`blocks` data blocks of `elements` each; the first element and the first data block by number.

    Elements are counted from the index block's last on.
    """

    blocks: int
    elements: int
    start: int
    first_block: int


@lru_cache(maxsize=64)
def _levels(bits: int, least_elements: int) -> tuple[Level, ...]:
    levels: list[Level] = []
    start = first_block = 0
    for number in range(2 + bits - least_elements.bit_length()):
        level = Level(1 << number // 2, least_elements << (number + 1) // 2, start, first_block)
        levels.append(level)
        start, first_block = start + level.blocks * level.elements, first_block + level.blocks
    return tuple(levels)


@dataclass(frozen=True, slots=True)
class ExtensibleShape:
    """The parameters of an array, in the order of its header; those of HDF5 by default.

    `bits` of the largest number of elements, elements in the index block, elements of the smallest data block, data
    blocks of the smallest level with a block of its own, bits of the elements of a page; and, not a parameter, the
    bytes of an address. `Corrupt` when they make no array.
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
            powers and 0 < self.page_bits <= self.bits <= MOST_BITS and self.least_elements >> self.bits == 0
        ):
            raise Corrupt(f"The parameters of an extensible array cannot be {self.parameters}.")
        levels = self.levels()
        if self.direct > len(levels) or any(self.pages(level) for level in levels[: self.direct]):
            raise Corrupt(f"The parameters of an extensible array cannot be {self.parameters}.")

    @property
    def parameters(self) -> tuple[int, int, int, int, int]:
        """The parameters in the order of the header."""
        return self.bits, self.index_elements, self.least_elements, self.least_blocks, self.page_bits

    @property
    def info(self) -> bytes:
        """The index information of the layout message, which has another order than the header."""
        return bytes((self.bits, self.index_elements, self.least_blocks, self.least_elements, self.page_bits))

    @property
    def offset_width(self) -> int:
        """The bytes of a block's first element's number."""
        return (self.bits + 7) // 8

    @property
    def direct(self) -> int:
        """How many levels have the addresses of their data blocks in the index block."""
        return 2 * (self.least_blocks.bit_length() - 1)

    @property
    def direct_blocks(self) -> int:
        return 2 * (self.least_blocks - 1)

    @property
    def addresses(self) -> int:
        """How many addresses the index block has: of its data blocks, then of the levels with blocks of their own."""
        return self.direct_blocks + len(self.levels()) - self.direct

    def levels(self) -> tuple[Level, ...]:
        return _levels(self.bits, self.least_elements)

    def pages(self, level: Level) -> int:
        """Return how many pages each data block of a level has, 0 when it is in one piece."""
        return level.elements >> self.page_bits if level.elements > 1 << self.page_bits else 0

    def bitmap_size(self, level: Level) -> int:
        """Return the bytes that say which pages of a level's data blocks were written."""
        return level.blocks * -(-self.pages(level) // 8)

    def index_block_size(self, record: int) -> int:
        """Return the size of the index block in bytes, with records of `record` bytes."""
        addresses = self.address_width * (1 + self.addresses)
        return 6 + self.index_elements * record + addresses + 4

    def level_size(self, level: Level) -> int:
        """Return the size of a level's own block in bytes."""
        return self.prefix_size + self.bitmap_size(level) + self.address_width * level.blocks + 4

    @property
    def prefix_size(self) -> int:
        """The bytes of a block before its elements: signature, version, client, two places; checksums have 4 more."""
        return 6 + self.address_width + self.offset_width

    def block_size(self, level: Level, record: int) -> int:
        """Return the size of a level's data blocks, with records of `record` bytes."""
        return self.prefix_size + 4 + level.elements * record + 4 * self.pages(level)

    def find(
        self, numbers: NDArray[np.uint64]
    ) -> tuple[NDArray[np.intp], NDArray[np.uint64], NDArray[np.uint64]]:
        """Return level, data block in the level and place in the data block of elements, (n,) each.

        They are counted from the index block's last on.
        """
        levels = self.levels()
        starts = np.array([level.start for level in levels], np.uint64)
        number = np.searchsorted(starts, numbers, "right") - 1
        lengths = np.array([level.elements for level in levels], np.uint64)[number]
        block, place = np.divmod(numbers - starts[number], lengths)
        return number, block, place


SHAPE = ExtensibleShape()
"""What HDF5 makes, with addresses of 8 bytes."""
