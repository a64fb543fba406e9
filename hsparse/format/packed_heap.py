"""The variable-length heap of a structured chunk as the RFC has it: payloads one after the other.

RFC "File Format Changes for Enabling Sparse Storage in HDF5", section 2.1: the first four bytes tell how many
bytes of the heap are unused, and a reference is a pair of offset and length, in bytes. Where the RFC leaves it
open: offsets count from the section's first byte, pairs are of the width that the layout gives offsets (4 bytes in
July 2023, 8 in October 2025), and the rest of a reference's 16 bytes is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.heap_form import HeapDraft, Places
from hsparse.model.element import REFERENCE

UNUSED = 4
"""Bytes of the number of unused bytes, with which the heap begins."""


@dataclass(frozen=True, slots=True)
class PackedHeap:
    """The form, with offsets and lengths of `width` bytes, 4 or 8."""

    width: int

    def draft(self, sizes: Places, counts: Places) -> HeapDraft:
        """Return the heap's framing, without unused bytes; `TooLarge` beyond what offsets can tell."""
        count = len(sizes)
        pairs = np.zeros((count, REFERENCE // self.width), f"<u{self.width}")
        if not count:
            return HeapDraft(np.zeros(0, np.uint8), np.zeros(0, np.int64), _as_bytes(pairs))
        ends = UNUSED + np.cumsum(sizes)
        if int(ends[-1]) >= 1 << 8 * self.width:
            raise TooLarge(f"A chunk's heap would have {ends[-1]} bytes; its offsets have {self.width}.")
        pairs[:, 0], pairs[:, 1] = ends - sizes, sizes
        pairs[sizes == 0, 0] = 0
        return HeapDraft(np.zeros(int(ends[-1]), np.uint8), ends - sizes, _as_bytes(pairs))

    def open(self, section: Buffer) -> OpenPackedHeap:
        """Read the number of unused bytes; `Corrupt` when there are not so many."""
        size = memoryview(section).nbytes
        unused = int.from_bytes(memoryview(section)[:UNUSED], "little")
        if size and unused > size - UNUSED:
            raise Corrupt(
                f"it has {size} bytes, of which {unused} and a count of {UNUSED} are said to be unused"
            )
        return OpenPackedHeap(size, self.width)


@dataclass(frozen=True, slots=True)
class OpenPackedHeap:
    """A heap of `size` bytes."""

    size: int
    width: int

    def find(self, references: NDArray[np.uint8], itemsize: int) -> tuple[Places, Places]:
        """See `OpenHeap`."""
        pairs = np.ascontiguousarray(references).view(f"<u{self.width}")
        begins, sizes = pairs[:, 0].astype(np.uint64), pairs[:, 1].astype(np.uint64)
        if pairs[:, 2:].any():
            raise Corrupt("a reference is not valid: what must be zero is not")
        some = sizes > 0
        end = np.uint64(self.size)
        if (
            ((begins < UNUSED) & some).any()
            or (sizes > end).any()
            or (begins[some] > end - sizes[some]).any()
        ):
            raise Corrupt(f"a reference leads out of a heap of {self.size} bytes")
        if (sizes % np.uint64(itemsize)).any():
            raise Corrupt(f"a reference leads to no number of elements of {itemsize} bytes")
        begins[~some] = 0
        return begins.astype(np.int64), sizes.astype(np.int64)


def _as_bytes(pairs: NDArray[np.unsignedinteger]) -> NDArray[np.uint8]:
    return pairs.view(np.uint8).reshape(len(pairs), REFERENCE)
