"""A simulated cluster with clients and faults, from a seed; the seeds that run at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hsparse.dn.data_settings import DataSettings
from hsparse.dn.membership.adopted_membership import AdoptedMembership
from hsparse.dn.membership.keyed_changes import KeyedChanges
from hsparse.dn.membership.ownership import SoleOwnership
from hsparse.dn.redo_log import RedoLog
from hsparse.dn.sweep import Sweep
from hsparse.errors import HsparseError
from hsparse.model.ids import is_delta_key, new_id, new_root_id
from hsparse.storage.object_store import ObjectStore
from hsparse.versions.restoring import Restoring
from hsparse.versions.wrapping import with_versions
from tests.simulation.clients import (
    ELEMENTS,
    LOWER,
    MIXED,
    MOST_WRITES,
    Clients,
    Mix,
    Names,
    dataset_record,
    group_record,
)
from tests.simulation.linearizability import (
    ANY_CHANGE,
    DELETIONS,
    Action,
    History,
    wrong_appends,
    wrong_extensions,
    wrong_registers,
)
from tests.simulation.nemesis import (
    ALL,
    BESIDE,
    Fault,
    Nemesis,
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
from tests.simulation.simulated_cluster import SETTINGS, SimulatedCluster
from tests.simulation.version_clients import PATH, ROWS, VersionClients
from tests.simulation.virtual_loop import Stuck, VirtualClock, VirtualLoop

FAR = 1e6
"""Seconds by which no clock is ahead of another."""
CLIENTS, OPERATIONS, PAUSE = 3, 15, 0.6
"""Clients, the operations of each, and seconds from one to the next."""


class Shared(SoleOwnership):
    """The ownership of an operator's process beside the nodes."""

    always = False


@dataclass(slots=True)
class Run:
    """What came of a run: the faults that there were, the errors that clients got, and what is wrong."""

    seed: int
    repeats: Collection[Action] = ANY_CHANGE
    wrong: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    history: History = field(default_factory=History)
    seconds: float = 0.0
    steps: int = 0
    longest: float = 0.0
    """The most seconds that a client has waited for an answer."""

    def report(self) -> str:
        """Return what to print of a run that failed."""
        return "\n".join(
            [
                f"seed {self.seed}",
                "faults:",
                *self.faults,
                "errors of clients:",
                *self.errors,
                "wrong:",
                *self.wrong,
            ]
        )


def run_seed(
    seed: int,
    faults: Sequence[Fault] = ALL,
    *,
    most: int = 4,
    operations: int = OPERATIONS,
    errors_allowed: bool = True,
    wrap: Callable[[ObjectStore], ObjectStore] = lambda store: store,
    servers: int = 0,
    mix: Mix = MIXED,
    settings: DataSettings = SETTINGS,
    repeats: Collection[Action] = ANY_CHANGE,
    data_nodes: Sequence[int] = (1, 2, 2, 3, 3),
    clients: int = 0,
    signed: bool = False,
    versions: bool = False,
) -> Run:
    """Run a cluster of some data nodes and 2 service nodes, or so many whole servers, with up to `most` faults.

    With another `mix` there are twice as many clients, or so many, which pause less. Changes of the kinds in `repeats`
    may take effect more than once. `signed` datasets have lower bounds, and grow and shrink at both ends.
    With `versions` clients take snapshots and make clones, too.
    """
    run, loop = Run(seed, repeats), VirtualLoop()
    started = loop.time()
    run.history.clock = loop.time
    cluster = SimulatedCluster(loop, seed, wrap=wrap, settings=settings, versions=versions)
    chosen = random.Random(f"faults {seed}")

    async def main() -> None:
        for _ in range(servers):
            cluster.start_server()
        if not servers:
            for _ in range(chosen.choice(data_nodes)):
                cluster.start_data_node()
            for _ in range(2):
                cluster.start_service_node()
        await cluster.recover()
        generator = random.Random(f"clients {seed}")
        begins = partial(begin_versions if versions else begin, signed=signed)
        working = await begins(cluster, run.history, generator)
        nemesis = Nemesis(cluster, chosen, run.faults)
        count, pause = (CLIENTS, PAUSE) if mix is MIXED else (2 * CLIENTS, PAUSE / 3)
        if not versions:
            working.mix = mix
        work = asyncio.ensure_future(working.run(clients or count, operations, pause))
        await nemesis.run(chosen.choices(faults, k=chosen.randint(1, most)), 1.5)
        await work
        await nemesis.wait()
        await cluster.recover()
        await finish(working, cluster, run)
        if not errors_allowed:
            run.wrong += [f"an error for a client: {text}" for text in run.errors]

    try:
        loop.run(main(), seconds=600)
    except Stuck as stuck:
        run.wrong += [str(stuck), cluster.describe()]
    run.seconds, run.steps, run.longest = loop.time() - started, loop.steps, cluster.longest
    return run


async def begin(
    cluster: SimulatedCluster, history: History, generator: random.Random, *, signed: bool
) -> Clients:
    """Create the datasets, and return clients for them."""
    clock = VirtualClock(cluster.loop, generator)
    root = new_root_id(clock)
    ids = [new_id("datasets", root, clock) for _ in range(3)]
    groups = tuple(new_id("groups", root, clock) for _ in range(2))
    sparse = generator.random() < 0.5
    for id, extent, lower in zip(ids, (ELEMENTS, 0, 0), (LOWER, 0, -1), strict=True):
        record = dataset_record(id, root, extent, sparse=sparse, lower=lower if signed else None)
        await cluster.request(lambda node, id=id, record=record: node.create(id, record))
    clients = Clients(Names(*ids, groups), cluster.request, history, generator, sparse, signed)
    if signed:
        await clients.move_to("begin", clients.places[0], clients.places[-1] + 1)
    return clients


async def begin_versions(
    cluster: SimulatedCluster, history: History, generator: random.Random, *, signed: bool
) -> VersionClients:
    """Create the domain and its datasets, and return clients for them; every other time they restore."""
    plain = await begin(cluster, history, generator, signed=signed)
    names = plain.names
    root = (await cluster.request(lambda node: node.record(names.written)))["root"]
    resized = new_id("datasets", root, VirtualClock(cluster.loop, generator))
    rows = dataset_record(resized, root, ROWS, sparse=plain.sparse)
    domain = {"owner": "ann", "acls": {}, "created": 1, "lastModified": 1, "root": root}
    await cluster.request(lambda node: node.create(root, group_record(root, 1) | {"root": root}))
    await cluster.request(lambda node: node.create(resized, rows))
    await cluster.request(lambda node: node.create(PATH, domain))
    restores = generator.random() < 0.5
    return VersionClients(
        *(names, cluster.request, history, generator, plain.sparse, signed),
        mix=Mix(of_others=(4, 6, 0, 0, 0) if restores else MIXED.of_others, moves=20),
        root=root,
        resized=resized,
        restores=restores,
    )


async def finish(clients: Clients, cluster: SimulatedCluster, run: Run) -> None:
    """Read everything, and note what is wrong."""
    run.errors += clients.errors
    clients.errors.clear()
    if clients.signed:  # what was outside is not uncovered
        await clients.move_to("end", clients.places[0], clients.places[-1] + 1)
        await clients.read_bounds("end")
    await clients.read("end", clients.places)
    for id in clients.names.groups:
        await clients.read_group("end", id)
    await clients.read_attribute("end")
    await clients.extent("end")
    if isinstance(clients, VersionClients):
        await clients.look_at_all()
    for history, growth, value in clients.unanswered:
        history.appended(growth, None, value, clients.places)
    try:
        values = await cluster.request(lambda node: node.read_all(clients.names.appended))
        lower, _ = await cluster.request(lambda node: node.bounds(clients.names.appended))
        first, end = await cluster.request(lambda node: node.bounds(clients.names.extended))
    except HsparseError as error:
        run.wrong.append(f"after all faults: {error!r}")
        return
    if isinstance(clients, VersionClients) and not run.errors:
        await clients.delete_clones()
        await left_of_versions(cluster)
        await clients.delete_snapshots()
        run.wrong += [f"{key} is left of what was deleted" for key in await left_of_versions(cluster)]
    run.wrong += getattr(clients, "wrong", [])
    run.wrong += [f"no client may get: {text}" for text in clients.defects]
    run.wrong += [f"after all faults: {text}" for text in clients.errors]
    run.wrong += [f"a defect: {error!r}" for error in cluster.network.defects]
    run.wrong += wrong_registers(run.history, repeats=run.repeats)
    run.wrong += wrong_extensions(end - first, run.history.extensions)
    found = [value or None for value in values]
    for below, part in ((False, found[-lower:]), (True, found[:-lower][::-1])):
        appends = [one for one in run.history.appends if one.below == below]
        extents = [one for one in run.history.extents if one.below == below]
        run.wrong += wrong_appends(part, appends, extents)


async def left_of_versions(cluster: SimulatedCluster) -> list[str]:
    """Return the keys of what is kept of the past, and of clones, after a sweep of what nodes that died have left."""
    clock = VirtualClock(cluster.loop, random.Random())
    store, _ = with_versions(cluster.store, Shared(), clock)
    await Sweep(store, clock, min_age=-FAR).run()
    kept = ("/.history/", "/.versions.json", "db/.bases/", "db/c10e")
    pages = [page async for page in cluster.store.list("db/")]
    return [entry.key for page in pages for entry in page.entries if any(one in entry.key for one in kept)]


@dataclass(frozen=True, slots=True)
class KeptSeed:
    """A seed, the faults that are drawn from, and the defect that it found."""

    seed: int
    faults: tuple[Fault, ...]
    defect: str
    servers: int = 0

    def __str__(self) -> str:
        return f"{self.seed}: {self.defect}"


EVERY_FAULT: tuple[Fault, ...] = (
    *(kill, pause, join, leave, jump, partition, isolate, cut),
    *(restart_service_node, bad_network, bad_store, slow_store),
)
"""The faults that there were when these were found."""
SERVERS: tuple[Fault, ...] = (
    *(serve, stop_server, pause_server, rebuild, cut, bad_store, slow_store, slow_puts, jump),
)
"""The same where whole servers share a store."""

SEEDS = (
    KeptSeed(
        39, EVERY_FAULT, "a node that was stopped longer than its lease deleted what others had created"
    ),
    KeptSeed(116, EVERY_FAULT, "a message that arrived after it was sent again undid what came after it"),
    KeptSeed(2234, EVERY_FAULT, "a membership was never settled as another member could not read it once"),
    KeptSeed(3682, EVERY_FAULT, "a put without a lease undid what the next owner had acknowledged"),
    KeptSeed(21512, EVERY_FAULT, "the same, after the store was out of reach for half a second"),
    KeptSeed(
        22783, EVERY_FAULT, "a node did not join again, as it met a member that died while it left alone"
    ),
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
        EVERY_FAULT,
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
        EVERY_FAULT,
        "a restore brought back what a shrink beside it had not erased yet",
        owner=Restoring,
        name="_gone",
        defective=_gone_of_kept,
        options={"operations": 30, "clients": 4, "versions": True, "signed": True},
    ),
)
