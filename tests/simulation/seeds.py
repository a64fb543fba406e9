"""Seeds that found a defect, kept as tests of their own: what they run must not change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kept:
    """A seed, the faults that are drawn from, and what was wrong with it."""

    seed: int
    faults: tuple[Any, ...]
    defect: str

    def __str__(self) -> str:
        return f"{self.seed} {self.defect}"


SEEDS: tuple[Kept, ...] = ()
