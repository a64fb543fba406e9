"""What the forms of a structured chunk's variable-length heap have in common.

A reference of 16 bytes stands where an element has a variable-length part; the part's bytes, its payload, are
on the heap. Which bytes a reference has, and what is around the payloads, is the form's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.format.buffer import Buffer

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class HeapDraft:
    """A heap that is complete but for its payloads.

    `image: (m,) uint8`; `begins: (k,)`, ascending, are where the payloads belong in it; `references: (k, 16)
    uint8` lead to them.
    """

    image: NDArray[np.uint8]
    begins: Places
    references: NDArray[np.uint8]


class OpenHeap(Protocol):
    """A heap that was read: references are followed into it."""

    def find(self, references: NDArray[np.uint8], itemsize: int) -> tuple[Places, Places]:
        """Return where the payloads of `references: (k, 16)` begin in the heap's section, and their sizes.

        Each is a number of elements of `itemsize` bytes, 0 of a null reference. `Corrupt` when one leads to
        nothing.
        """
        ...


class HeapForm(Protocol):
    """A form of heaps."""

    def draft(self, sizes: Places, counts: Places) -> HeapDraft:
        """Return a heap for payloads of `sizes: (k,)` bytes, `counts: (k,)` elements, in this order."""
        ...

    def open(self, section: Buffer) -> OpenHeap:
        """Read the framing of a heap; `Corrupt` when it does not hold together."""
        ...
