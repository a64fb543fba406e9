"""The history of concurrent writes: who wrote what and when it was acknowledged, and so what a store may hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.testing.sparse_model import Coord


@dataclass(slots=True, eq=False)
class Entry:
    """A write of `value` (None: an erasure), from `begun` to `ended`; without an end it may still take effect."""

    value: int | None
    begun: int
    ended: int | None = None
    acknowledged: bool = False


class WriteHistory:
    """All writes of all elements, on one logical clock. No two writes have the same value."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1)
        self._entries: dict[Coord, list[Entry]] = {}
        self.acknowledged = 0

    def begin(self, coords: Iterable[Coord], value: int | None) -> Entry:
        """Note that a write of these elements is about to be sent."""
        entry = Entry(value, next(self._ticks))
        for coord in dict.fromkeys(coords):
            self._entries.setdefault(coord, []).append(entry)
        return entry

    def acknowledge(self, entry: Entry) -> None:
        """Note that it was acknowledged."""
        entry.acknowledged = True
        entry.ended = next(self._ticks)
        self.acknowledged += 1

    def give_up(self, entry: Entry) -> None:
        """Note that it was not acknowledged and that its writer is gone: it took effect by now, or never will."""
        entry.ended = next(self._ticks)

    def wrong(self, found: Mapping[Coord, int]) -> list[str]:
        """Return a sentence for each element that is not as it may be, given those that are defined.

        An element may have the value of any write of it, acknowledged or not, that did not end before an
        acknowledged one of it began: writes at once may take effect in either order, others only in theirs.
        """
        sentences = [
            f"{coord} is {found[coord]}, never written" for coord in found if coord not in self._entries
        ]
        for coord, entries in self._entries.items():
            value = found.get(coord)
            newest = max((entry.begun for entry in entries if entry.acknowledged), default=0)
            current = [entry for entry in entries if entry.ended is None or entry.ended > newest]
            allowed = {entry.value for entry in current} | ({None} if not newest else set())
            if value not in allowed:
                wanted = sorted(allowed, key=lambda item: -1 if item is None else item)
                sentences.append(f"{coord} is {value}, not one of {wanted}")
        return sentences
