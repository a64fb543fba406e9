"""Changes of a file's bytes, some of them with the checksums of what was changed put right again."""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hsparse.format.codec_library import lookup3

SIGNATURES = (
    b"\x89HDF\r\n\x1a\n\2",
    b"\x89HDF\r\n\x1a\n\3",
    *(b"OHDR", b"OCHK", b"FRHP", b"FHDB", b"FHIB", b"BTHD", b"BTIN", b"BTLF", b"SMTB"),
    *(b"FAHD", b"FADB", b"EAHD", b"EAIB", b"EASB", b"EADB"),
    b"\1\0\x08",  # the selection of a structured chunk that is not filtered
    b"HGLS",
)
"""How structures begin that have a checksum at their end."""
CHECKSUM = 4
LONGEST = 4096
"""Bytes of the longest of them whose checksum is looked for."""
EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
KINDS = ("bits", "bytes", "number", "address", "swap", "zeros", "cut", "repeat")


@dataclass(frozen=True)
class Seed:
    """A whole file, and what is known of it."""

    name: str
    data: bytes

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """Where structures with a checksum begin, ascending, and where their checksums are."""
        found = []
        for signature in SIGNATURES:
            start = self.data.find(signature)
            while start >= 0:
                for end in range(start + len(signature), min(start + LONGEST, len(self.data) - 3)):
                    (stored,) = struct.unpack_from("<I", self.data, end)
                    if stored and lookup3(self.data[start:end]) == stored:
                        found.append((start, end))
                        break
                start = self.data.find(signature, start + 1)
        return sorted(found)

    @cached_property
    def addresses(self) -> list[int]:
        """Where something stands that may be an address in the file."""
        words = np.lib.stride_tricks.sliding_window_view(np.frombuffer(self.data, np.uint8), 8)
        numbers = np.ascontiguousarray(words).view("<u8")[:, 0]
        return [int(at) for at in np.flatnonzero((numbers >= 48) & (numbers < len(self.data)))]

    def mutated(self, rng: np.random.Generator) -> tuple[str, bytes]:
        """Return what was done, and the changed file."""
        kind = KINDS[int(rng.integers(len(KINDS)))]
        data = bytearray(self.data)
        if kind == "cut":
            return kind, bytes(data[: int(rng.integers(len(data)))])
        for _ in range(int(rng.integers(1, 4))):
            self._change(kind, data, rng)
        if rng.random() < 0.7:
            self._repair(data)
            kind += ", checksums right"
        return kind, bytes(data)

    def _change(self, kind: str, data: bytearray, rng: np.random.Generator) -> None:
        at = self._place(rng)
        if kind == "bits":
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == "bytes":
            count = int(rng.integers(1, 9))
            data[at : at + count] = rng.bytes(len(data[at : at + count]))
        elif kind == "number":
            width = (1, 2, 4, 8)[int(rng.integers(4))]
            some = (*EXTREMES, len(data), len(data) - 1, len(data) + 1)
            value = some[int(rng.integers(len(some)))]
            data[at : at + width] = value.to_bytes(8, "little")[: len(data[at : at + width])]
        elif kind == "address" and self.addresses:
            to, source = (self.addresses[int(one)] for one in rng.integers(len(self.addresses), size=2))
            data[to : to + 8] = self.data[source : source + 8]
        elif kind in ("swap", "repeat"):
            other, count = self._place(rng), int(rng.integers(1, 65))
            count = min(count, len(data) - max(at, other))
            one, two = data[at : at + count], data[other : other + count]
            data[at : at + count] = two
            if kind == "swap":
                data[other : other + count] = one
        else:
            count = int(rng.integers(1, 65))
            data[at : at + count] = bytes(len(data[at : at + count]))

    def _place(self, rng: np.random.Generator) -> int:
        """Return a place, half of them in structures with checksums, where there are any."""
        if self.blocks and rng.random() < 0.5:
            start, end = self.blocks[int(rng.integers(len(self.blocks)))]
            return int(rng.integers(start, end))
        return int(rng.integers(len(self.data)))

    def is_guarded(self, data: bytes) -> bool:
        """Say whether a changed file has changes only in structures whose checksums tell them."""
        if len(data) != len(self.data):
            return False
        changed = self._changed(data)
        blocks = self._blocks_of(changed)
        covered = sum(sum(start <= place < end + CHECKSUM for place in changed) for start, end in blocks)
        wrong = [lookup3(data[start:end]) != struct.unpack_from("<I", data, end)[0] for start, end in blocks]
        return bool(changed) and covered >= len(changed) and all(wrong)

    def _repair(self, data: bytearray) -> None:
        """Put checksums right of structures that were changed."""
        for start, end in self._blocks_of(self._changed(data)):
            struct.pack_into("<I", data, end, lookup3(bytes(data[start:end])))

    def _changed(self, data: bytes | bytearray) -> list[int]:
        differs = np.frombuffer(data, np.uint8) != np.frombuffer(self.data, np.uint8)
        return [int(place) for place in np.flatnonzero(differs)]

    def _blocks_of(self, places: list[int]) -> list[tuple[int, int]]:
        """Return the structures that begin last before places."""
        starts = [start for start, _ in self.blocks]
        numbers = {bisect_right(starts, place) - 1 for place in places}
        return [self.blocks[number] for number in sorted(numbers) if number >= 0]
