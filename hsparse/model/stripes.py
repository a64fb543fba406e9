"""Striping: the chunks of a dataset under several prefixes of the store, by file number.

In "Raw Data Storage in HDF5" (1997) each chunk has the number of a file in a list, from 1. Here a file is a prefix of
keys, and the number is a function of the chunk's scaled coordinates: no index has to hold it, and it never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from operator import mul

MAX_STRIPES = 1024
ROOTS = (1.618033988749895, 1.324717957244746, 1.220744084605760)
"""By rank, from 2 on: the root of x^rank = x + 1, the golden ratio and its kin; more dimensions have the last one."""


@dataclass(frozen=True, slots=True)
class Stripes:
    """The stripes of a dataset, `count` of them: at least 2."""

    count: int

    @classmethod
    def of(cls, count: int) -> Stripes | None:
        """Return `count` stripes, None for one: its chunks have no stripe."""
        return cls(count) if count > 1 else None

    def file_number(self, scaled: Sequence[int]) -> int:
        """Return the number of the stripe that has a chunk, 1 to `count`.

        As many chunks in a row as there are stripes, along any dimension, are each in another one (cyclic
        declustering); a box of chunks is spread almost evenly.
        """
        number: int = sum(map(mul, scaled, _steps(self.count, len(scaled)))) % self.count
        return number + 1

    def folder(self, scaled: Sequence[int]) -> str:
        """Return what a chunk's key has between the dataset's prefix and the chunk's name.

        It sorts behind the dataset's record. With it a key has seven components, so that no server of schema v2 takes
        it for a chunk's.
        """
        return f".stripe/{self.file_number(scaled)}/"


@lru_cache(maxsize=1024)
def _steps(count: int, rank: int) -> tuple[int, ...]:
    """Return how far the file number goes with one chunk more along each dimension; along the last one it is 1.

    The others are next to `count` divided by the first, second ... power of the rank's root, and have no divisor in
    common with `count`: what lies close together is spread evenly, as by a sequence of low discrepancy.
    """
    steps = [step for step in range(1, count) if gcd(step, count) == 1]
    root = ROOTS[min(rank, 4) - 2]
    sections = [count / root**dim for dim in range(1, rank)]
    found = (min(steps, key=lambda step: abs(step - section)) for section in sections)
    return tuple(reversed([1, *found]))
