"""Seeds that found a defect, kept as tests of their own.

A change of the simulation, or of how often nodes talk, gives a seed another run. Each defect has a unit test, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.nemesis import (
    SERVERS,
    Fault,
    bad_network,
    bad_store,
    cut,
    isolate,
    join,
    jump,
    kill,
    leave,
    partition,
    pause,
    restart_service_node,
    slow_store,
)


@dataclass(frozen=True, slots=True)
class KeptSeed:
    """A seed, the faults that are drawn from, and the defect that it found."""

    seed: int
    faults: tuple[Fault, ...]
    defect: str
    servers: int = 0

    def __str__(self) -> str:
        return f"{self.seed}: {self.defect}"


ALL: tuple[Fault, ...] = (
    *(kill, pause, join, leave, jump, partition, isolate, cut),
    *(restart_service_node, bad_network, bad_store, slow_store),
)
"""The faults that there were when these were found."""

SEEDS = (
    KeptSeed(39, ALL, "a node that was stopped longer than its lease deleted what others had created"),
    KeptSeed(116, ALL, "a message that arrived after it was sent again undid what came after it"),
    KeptSeed(2234, ALL, "a membership was never settled as another member could not read it once"),
    KeptSeed(3682, ALL, "a put without a lease undid what the next owner had acknowledged"),
    KeptSeed(21512, ALL, "the same, after the store was out of reach for half a second"),
    KeptSeed(22783, ALL, "a node did not join again, as it met a member that died while it left alone"),
    KeptSeed(
        1032, SERVERS, "an append was acknowledged that a server of another time had dropped", servers=2
    ),
)
