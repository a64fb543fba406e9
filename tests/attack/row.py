"""A row of the table of attacks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.attack.witness import Witnessed
from tests.campaign.load import SERVICE_UNAVAILABLE

MIB = 1 << 20
REFUSED = frozenset({SERVICE_UNAVAILABLE, 507})
"""Statuses above 500 that are no defect: busy, and a disk that is full."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of an attack: answers by status, and what the witness saw; `before` is the server's memory then."""

    name: str
    tally: Counter[int]
    seen: Witnessed
    before: int

    @property
    def defects(self) -> int:
        return sum(count for status, count in self.tally.items() if status >= 500 and status not in REFUSED)

    def __str__(self) -> str:
        answers = ", ".join(f"{count} x {status or 'none'}" for status, count in sorted(self.tally.items()))
        worst = max(self.seen.seconds, default=float("inf"))
        return (
            f"| {self.name.replace('_', ' ')} | {answers} | {self.defects} | {1000 * self.seen.p99:.0f} ms | "
            f"{1000 * worst:.0f} ms | {self.seen.unanswered} | {(self.seen.memory - self.before) // MIB} MiB |"
        )
