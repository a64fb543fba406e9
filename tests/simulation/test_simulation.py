"""Whole clusters in one process, on virtual time and a seed, are linearizable, and deliberate defects are found."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsparse.cluster.lease_object import ClockReading
from hsparse.dn.cached_object import CachedObject
from hsparse.dn.membership import keyed_changes
from hsparse.dn.membership.adopted_membership import AdoptedMembership
from hsparse.dn.membership.lease_keeper import LeaseKeeper
from hsparse.dn.membership.member_ownership import MemberOwnership
from hsparse.model import dataset_state
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values import append
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.storage.object_store import Buffer
from hsparse.versions import snapshot_requests
from hsparse.versions.preserving import Preserved
from hsparse.wire.record_message import SetExtent
from tests.simulation.clients import (
    DTYPE,
    MOST_APPENDS,
    MOST_MOVES,
    MOST_READS,
    MOST_WRITES,
    ServiceOperations,
    points,
)
from tests.simulation.linearizability import DELETIONS
from tests.simulation.nemesis import (
    ALL,
    BESIDE,
    CLOCKS,
    PROCESSES,
    SERVERS,
    UPGRADES,
    Fault,
    bad_network,
    cut_off,
    isolate,
    join,
    kill,
    leave,
    part_one,
    partition,
    pause,
    pause_long,
    restart_service_node,
    slow_machine,
    slow_puts,
    slow_store,
    suspend,
)
from tests.simulation.simulated_cluster import SETTINGS
from tests.simulation.simulation import LATE_PUTS, SEEDS, SHOWN, WRITES, KeptSeed, Run, ShownSeed, run_seed
from tests.testing.store_wrapper import StoreWrapper

ROOT = Path(__file__).parents[2]
TAKEN_OVER, LATEST = 7.0, 10.0
"""Seconds until a change is answered whose owner is cut off: a lost message is given up after five, rarely two are."""
NODES: tuple[Fault, ...] = (kill, pause, pause_long, join, leave, slow_store)
"""What nodes do, often for longer than a lease, and a store that may be slow meanwhile."""
FEW = 100
"""One in so many runs may take longer than the first of them."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes log each of thousands of faults."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def failed(run: Callable[[int], Run], seeds: range) -> list[int]:
    """Return the seeds whose runs failed, and print what happened there."""
    found = [run(seed) for seed in seeds]
    for one in found:
        if one.wrong:
            print(one.report())
    return [one.seed for one in found if one.wrong]


def test_faults_of_any_kind(pytestconfig: pytest.Config) -> None:
    """What was answered is linearizable, and once the faults have ended everything is answered."""
    found = failed(run_seed, range(pytestconfig.getoption("seeds") // 4))
    assert [seed for seed in found if seed not in LATE_PUTS] == []


@pytest.mark.xfail(strict=True, reason="a put that the store carries out after a deletion, see decision 33")
@pytest.mark.parametrize("seed", LATE_PUTS)
def test_a_put_that_was_given_up_brings_nothing_back(seed: int) -> None:
    assert failed(run_seed, range(seed, seed + 1)) == []


def test_whole_servers_that_share_a_store(pytestconfig: pytest.Config) -> None:
    """Each reads what the others wrote."""
    seeds = range(pytestconfig.getoption("seeds") // 8)
    assert failed(lambda seed: run_seed(seed, SERVERS, servers=2), seeds) == []


def test_servers_that_come_and_go_beside_a_cluster(pytestconfig: pytest.Config) -> None:
    """What one writes the other reads, and the cluster trusts its caches again when it is alone."""
    seeds = range(pytestconfig.getoption("seeds") // 8)
    assert failed(lambda seed: run_seed(seed, BESIDE), seeds) == []


def test_no_request_fails_because_a_data_node_goes(pytestconfig: pytest.Config) -> None:
    """Kills, pauses, joins and leaves of data nodes are seen by no client."""
    seeds = range(pytestconfig.getoption("seeds") // 2)

    def run(seed: int) -> Run:
        return run_seed(seed, PROCESSES, errors_allowed=False, repeats=DELETIONS)

    assert failed(run, seeds) == []


def test_no_write_is_repeated_over_another_one(pytestconfig: pytest.Config) -> None:
    """Where no message is lost: also of many writes of the same elements, each takes effect once."""
    seeds = range(pytestconfig.getoption("seeds") // 50)
    faults = (kill, pause, join, leave)
    assert failed(lambda seed: run_seed(seed, faults, **WRITES, repeats=DELETIONS), seeds) == []


@pytest.mark.parametrize("data_nodes", [2, 3])
def test_a_node_that_is_cut_off_stops_changes_briefly(pytestconfig: pytest.Config, data_nodes: int) -> None:
    """One after the other is cut off while all renew their leases; others take over, and it comes back in time."""
    seeds = range(pytestconfig.getoption("seeds") // 40)

    late: list[int] = []

    def run(seed: int) -> Run:
        run = run_seed(
            seed, (cut_off,), most=8, operations=60, data_nodes=(data_nodes,), errors_allowed=False
        )
        if run.longest > TAKEN_OVER:
            late.append(seed)
        if run.longest > LATEST:
            run.wrong.append(f"a client waited for {run.longest:.1f} s")
        return run

    assert failed(run, seeds) == []
    assert len(late) <= len(seeds) // FEW


def test_clocks_that_drift_jump_and_stand(pytestconfig: pytest.Config) -> None:
    """A lease is no longer than others wait, whatever one of the clocks of a machine does."""
    seeds = range(pytestconfig.getoption("seeds") // 8)
    assert failed(lambda seed: run_seed(seed, CLOCKS), seeds) == []


def test_no_request_fails_while_all_nodes_are_replaced(pytestconfig: pytest.Config) -> None:
    """One by one, as by an upgrade, while some are killed and paused."""
    seeds = range(pytestconfig.getoption("seeds") // 40)
    assert failed(lambda seed: run_seed(seed, UPGRADES, errors_allowed=False), seeds) == []


def test_appends_while_service_nodes_die(pytestconfig: pytest.Config) -> None:
    """Ten clients: nothing is lost, nothing is there twice, and each is behind what was answered before it began."""
    seeds = range(pytestconfig.getoption("seeds") // 32)
    options: dict[str, Any] = {"operations": 40, "most": 6, "mix": MOST_APPENDS, "clients": 10}
    faults = (restart_service_node, restart_service_node, kill, pause, join, leave)
    assert failed(lambda seed: run_seed(seed, faults, **options), seeds) == []


def test_datasets_that_grow_at_both_ends(pytestconfig: pytest.Config) -> None:
    """Faults of any kind, and many appends at both ends while nodes die."""
    seeds = range(pytestconfig.getoption("seeds") // 16)
    assert failed(lambda seed: run_seed(seed, signed=True), seeds) == []
    options: dict[str, Any] = {"operations": 40, "most": 6, "mix": MOST_APPENDS, "clients": 10}
    faults = (restart_service_node, restart_service_node, kill, pause, join, leave)
    assert failed(lambda seed: run_seed(seed, faults, signed=True, **options), seeds) == []


def test_bounds_that_move(pytestconfig: pytest.Config) -> None:
    """Either end shrinks and grows, by appends too, while elements are written, under faults of any kind and kills."""
    seeds = range(pytestconfig.getoption("seeds") // 16)
    options: dict[str, Any] = {"operations": 25, "most": 6, "mix": MOST_MOVES, "signed": True}
    assert failed(lambda seed: run_seed(seed, **options), seeds) == []
    faults = (restart_service_node, restart_service_node, kill, pause, join, leave)
    assert failed(lambda seed: run_seed(seed, faults, **options), seeds) == []


@pytest.mark.parametrize(
    ("faults", "part"), [(ALL, 50), (ALL, 4), (NODES, 4)], ids=["few", "of any kind", "of nodes"]
)
def test_snapshots_and_clones(pytestconfig: pytest.Config, faults: tuple[Fault, ...], part: int) -> None:
    """Each shows what was there when it was taken, always: beside changes, restores, deletions and faults.

    Of every other seed datasets have lower bounds.
    """
    seeds = range(pytestconfig.getoption("seeds") // part)
    most = 4 if faults is ALL else 8

    def run(seed: int) -> Run:
        signed = seed % 2 == 1
        return run_seed(seed, faults, most=most, operations=30, clients=4, versions=True, signed=signed)

    assert failed(run, seeds) == []


@pytest.mark.parametrize("part", range(4))
def test_short_programs_of_versions_and_bounds(pytestconfig: pytest.Config, part: int) -> None:
    """The same of many short programs in which datasets grow and shrink at both ends; these are a fourth of them."""
    options: dict[str, Any] = {"most": 3, "operations": 10, "clients": 3, "versions": True, "signed": True}

    def run(seed: int) -> Run:
        return run_seed(seed, NODES if seed % 8 < 4 else ALL, **options)

    assert failed(run, range(part, 10 * pytestconfig.getoption("seeds"), 4)) == []


@pytest.mark.parametrize("servers", [0, 2])
def test_records_that_are_split(pytestconfig: pytest.Config, servers: int) -> None:
    """Every record is a base and a delta, and many changes store the base again."""
    faults, settings = (SERVERS if servers else ALL), replace(SETTINGS, large_record_size=1)
    seeds = range(pytestconfig.getoption("seeds") // 16)
    assert failed(lambda seed: run_seed(seed, faults, servers=servers, settings=settings), seeds) == []


@pytest.mark.parametrize("kept", SEEDS, ids=str)
def test_a_seed_that_once_failed(kept: KeptSeed) -> None:
    assert run_seed(kept.seed, kept.faults, servers=kept.servers).wrong == []


@pytest.mark.parametrize("kept", SHOWN, ids=str)
def test_a_seed_that_fails_with_its_defect(kept: ShownSeed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_seed(kept.seed, kept.faults, **kept.options).wrong == []
    monkeypatch.setattr(kept.owner, kept.name, kept.defective)
    assert run_seed(kept.seed, kept.faults, **kept.options).wrong != []


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    program = (
        "from tests.simulation.simulation import run_seed\n"
        "for seed in range(3):\n"
        "    run = run_seed(seed)\n"
        "    print(run.seconds, run.steps, run.faults, *run.history.operations, sep='\\n')\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONHASHSEED": number, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    }
    assert len(outputs) == 1
    assert "write" in outputs.pop()


def test_every_fault_happens() -> None:
    told = "\n".join(line for seed in range(30) for line in run_seed(seed, ALL, operations=1).faults)
    for word in ("kill dn", "kill sn", "freeze", "start", "stop", "cut", "clock", "lose", "fail", "slow"):
        assert word in told


def found(seeds: range, faults: Any, **options: Any) -> str:
    """Return what is wrong with the first seed that has something wrong."""
    for seed in seeds:
        if wrong := run_seed(seed, faults, **options).wrong:
            return wrong[0]
    raise AssertionError("not found")


class BlindStore(StoreWrapper):
    """A store whose conditions the data nodes leave out, but for the membership's own objects."""

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        conditional = "/.cluster/" in key
        return await (super().put_if_match(key, data, etag) if conditional else super().put(key, data))

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        conditional = "/.cluster/" in key
        return await (super().put_if_absent(key, data) if conditional else super().put(key, data))


def test_puts_without_a_condition() -> None:
    assert "not linearizable" in found(range(14, 54), (join, leave, pause, partition), wrap=BlindStore)


def test_a_cache_that_is_trusted_without_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseKeeper, "holds", lambda keeper: True)
    assert "not linearizable" in found(range(13, 200), (isolate,), operations=30, most=3)


def test_a_cache_that_is_not_doubted_when_the_membership_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CachedObject, "invalidate", lambda cached, kept: None)
    found(range(12, 112), (join, leave), most=3)


def test_a_read_from_the_cache_beside_a_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node may have read the new value already."""
    monkeypatch.setattr(MemberOwnership, "shared", False)
    wrong = found(range(20, 200), (slow_puts, part_one), operations=25, most=6, mix=MOST_READS)
    assert "not linearizable" in wrong


def test_a_membership_adopted_before_earlier_changes_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def finished(adopted: AdoptedMembership, epoch: int) -> bool:
        return True

    monkeypatch.setattr(AdoptedMembership, "finished", finished)
    wrong = found(range(193, 250), (slow_puts, join, leave), operations=25, most=6, mix=MOST_READS)
    assert "not linearizable" in wrong


def test_a_change_that_is_stored_without_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberOwnership, "may_change", lambda ownership, term: True)
    wrong = found(range(40, 200), (slow_puts, pause_long), operations=40, most=6, mix=MOST_WRITES)
    assert "not linearizable" in wrong


def test_a_lease_on_a_clock_that_stands_in_a_suspended_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClockReading, "most", lambda sent, clock: clock.monotonic() - sent.monotonic)
    monkeypatch.setattr(ClockReading, "jumped", lambda before, later, tolerance: False)
    wrong = found(range(12, 100), (suspend,), operations=30, most=6, mix=MOST_READS)
    assert "not linearizable" in wrong


def test_clocks_that_go_slower_than_others_wait() -> None:
    """Nothing on that machine can tell: leases rely on one of its clocks."""
    wrong = found(range(47, 147), (slow_machine, isolate), operations=30, most=6, mix=MOST_READS)
    assert "not linearizable" in wrong


def test_an_extension_that_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_state, "extents_of_change", lambda record, token: None)
    monkeypatch.setattr(keyed_changes, "REPLY_BYTES", 0)
    assert "do not lead" in found(range(9, 200), (bad_network,), operations=40, most=6)


def test_messages_of_older_epochs_that_are_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdoptedMembership, "require", lambda adopted, epoch: None)
    found(range(54, 154), ALL)


def test_an_append_whose_key_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "appended_before", lambda record, key: None)
    monkeypatch.setattr(dataset_state, "appended_before", lambda record, key: None)
    assert "is at [" in found(range(9), 3 * (restart_service_node,), operations=25, most=6, mix=MOST_APPENDS)


def test_an_append_that_is_sent_again_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    async def grow_first(
        node: ServiceOperations, id: str, count: int, value: int, key: str = "", *, below: bool = False
    ) -> int:
        """Grow first, then write there: what no handler does."""
        dataset = StoredDataset.of((await node.owners.apply(SetExtent(id, (count,), extend_dim=0))).unwrap())
        start = dataset.extent[0] - count
        places = points(dataset, range(start, start + count))
        await ChunkFanout(node.owners, dataset).write(places, np.full(count, value, DTYPE))
        return start

    monkeypatch.setattr(ServiceOperations, "append", grow_first)
    assert "nobody appended" in found(range(120, 270), (bad_network,), operations=40, most=6)


async def _nothing(*arguments: Any, **named: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("owner", "name"), [(Preserved, "keep"), (snapshot_requests, "tell")], ids=["no copy", "nobody told"]
)
def test_a_snapshot_of_which_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """No change preserves what was there, or the nodes are not told that there is a snapshot."""
    monkeypatch.setattr(owner, name, _nothing)
    assert "snapshot" in found(range(10), (join,), operations=30, versions=True)
