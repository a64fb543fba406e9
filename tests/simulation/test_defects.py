"""Deliberate defects: each is found within some seeds, so that a simulation that finds nothing says something.

Ranges begin shortly before the seeds that find the defect today, so that the tests are quick.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
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
from tests.simulation.clients import MOST_APPENDS, MOST_READS, MOST_WRITES
from tests.simulation.nemesis import (
    ALL,
    bad_network,
    isolate,
    join,
    leave,
    part_one,
    partition,
    pause,
    pause_long,
    restart_service_node,
    slow_machine,
    slow_puts,
    suspend,
)
from tests.simulation.service_operations import DTYPE, ServiceOperations, points
from tests.simulation.simulation import run_seed
from tests.testing.store_wrapper import StoreWrapper


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


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


def test_a_membership_that_is_adopted_before_earlier_changes_have_ended(
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


def test_a_lease_on_a_clock_that_stands_while_the_machine_is_suspended(
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
