"""Seeds that found a defect, kept as tests of their own.

A change of the simulation, or of how often nodes talk, gives a seed another run. Each defect has a unit test, too. The
seeds of `SHOWN` are newer than their defects: the test puts the defect back, and the run fails. When a change gives one
another run, which does not fail, look for the next seed whose run does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from hsparse.dn.membership.adopted_membership import AdoptedMembership
from hsparse.dn.membership.keyed_changes import KeyedChanges
from hsparse.dn.redo_log import RedoLog
from hsparse.model.ids import is_delta_key
from hsparse.versions.restoring import Restoring
from tests.simulation.clients import MOST_WRITES
from tests.simulation.linearizability import DELETIONS
from tests.simulation.nemesis import (
    BESIDE,
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
    pause_server,
    rebuild,
    restart_service_node,
    serve,
    slow_puts,
    slow_store,
    stop_server,
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
SERVERS: tuple[Fault, ...] = (
    *(serve, stop_server, pause_server, rebuild, cut, bad_store, slow_store, slow_puts, jump),
)
"""The same where whole servers share a store."""

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
    KeptSeed(417, BESIDE, "a deletion that was given up took away what was written after it was sent again"),
    KeptSeed(932, SERVERS, "of two who rebuilt the membership in step neither came to an end", servers=2),
)

LATE_PUTS = (945,)
"""Seeds of any fault in which a store creates an object nine seconds after it was asked to, when the data node has
given that up, and another one has created and deleted the object meanwhile. Nothing prevents that."""


async def _each_time(changes: Any, key: Any, attempt: int, work: Callable[[], Awaitable[Any]]) -> Any:
    return await work()


@dataclass(frozen=True, slots=True)
class ShownSeed(KeptSeed):
    """A seed whose run fails once the method `name` of `owner` is `defective`; `options` are those of `run_seed`."""

    owner: type = object
    name: str = ""
    defective: Callable[..., Any] = _each_time
    options: dict[str, Any] = field(default_factory=dict)


async def _gone_of_kept(restoring: Any) -> list[str]:
    """Return what a restore deletes where chunks that were made since it began stay."""
    trees = restoring._store.trees
    kept = await trees.sources(restoring._kept)
    gone = await restoring._unshown(kept, await trees.sources(restoring._base))
    return [rest for rest in gone if not is_delta_key(rest)]


WRITES: dict[str, Any] = {"operations": 40, "most": 6, "mix": MOST_WRITES}
SHOWN = (
    ShownSeed(
        5,
        (bad_network,),
        "a message that arrived after it was sent again undid what came after it",
        owner=KeyedChanges,
        name="once",
        options=WRITES,
    ),
    ShownSeed(
        100,
        ALL,
        "a message of an epoch before was carried out beside those of the next owner",
        owner=AdoptedMembership,
        name="require",
        defective=lambda adopted, epoch: None,
    ),
    ShownSeed(
        12,
        (kill, pause, join, leave),
        "a write of a node that was killed undid what the next owner had acknowledged",
        owner=RedoLog,
        name="insert",
        defective=lambda log, change: [],
        options={**WRITES, "repeats": DELETIONS},
    ),
    ShownSeed(
        113,
        ALL,
        "a restore brought back what a shrink beside it had not erased yet",
        owner=Restoring,
        name="_gone",
        defective=_gone_of_kept,
        options={"operations": 30, "clients": 4, "versions": True, "signed": True},
    ),
)
