"""State machines of datasets and of versions, against models."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.model.datatype import parse_type
from hsparse.model.ids import ID_DOMAIN, moved_id
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.service_settings import ServiceSettings
from hsparse.storage.object_store import ObjectStore
from hsparse.versions.wrapping import with_versions
from tests.support.dataset_subject import (
    KINDS,
    Change,
    DatasetSubject,
    Erase,
    boxes,
    changes,
    moves,
    places,
    value_changes,
    writes,
)
from tests.support.driver import DatasetSpec, DirectDriver, Driver
from tests.support.rest_client import Reply, RestClient
from tests.support.rest_driver import Rest, RestDriver, checked
from tests.support.restartable_node import Doubtful, RestartableNode
from tests.testing.faulty_store import CHANGES, CrashPoint
from tests.testing.sparse_model import SparseModel

T = TypeVar("T")


class World:
    """What outlives a machine: an event loop and a store. With `rest` the machine goes through HTTP.

    Datasets have their chunks in `places`, if there are any, and are of the kinds in `names`.
    """

    def __init__(
        self,
        open_store: Callable[[], Awaitable[ObjectStore]],
        *,
        rest: bool,
        places: Sequence[str] = (),
        names: Sequence[str] = tuple(sorted(KINDS)),
    ) -> None:
        self.names = names
        self._places = places
        self._runner = asyncio.Runner()
        self._rest = rest
        self.store: ObjectStore = self.run(_awaited(open_store))
        self.kinds: dict[str, DatasetSpec] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def open_driver(self, *nodes: DataService) -> Driver:
        """Return a driver of these nodes, each of which owns some objects; in another order each owns others."""
        if not self._rest:
            by_id = {f"dn-{place}": node for place, node in enumerate(nodes)}
            return DirectDriver(Owners(FixedNodes(by_id)))
        (node,) = nodes
        buckets = tuple(place.partition("/")[0] for place in self._places)
        settings = ServiceSettings(page_size=256, min_chunk_size=1, other_buckets=buckets)
        rest = RestClient(node, SystemClock(), Principal("admin", admin=True), settings=settings)
        return await RestDriver(await rest.open(), "/machine").know(self.kinds).open()

    async def create(self, driver: Driver, kind: DatasetSpec) -> DatasetSubject:
        """Create a dataset; `kinds` has all that there are."""
        if self._places:
            kind = replace(kind, stripes=list(self._places))
        id = await driver.create(kind)
        self.kinds[id] = kind
        dtype = parse_type(kind.type).dtype
        return DatasetSubject(
            id, kind, SparseModel(kind.extent, dtype, kind.fill, sparse=kind.sparse, lower=kind.lower)
        )

    def close(self) -> None:
        self.run(self.store.close())
        self._runner.close()


async def _awaited(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


class SparseMachine(RuleBasedStateMachine):
    """One data node, its restarts and crashes, and up to three datasets."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.subjects: list[DatasetSubject] = []
        self.life: RestartableNode

    @property
    def driver(self) -> Driver:
        return self.door_of(self.subject) if self.subjects else self.life.driver

    @property
    def subject(self) -> DatasetSubject:
        """The dataset that was last worked on, which the invariants look at."""
        return self.subjects[-1]

    def door_of(self, subject: DatasetSubject) -> Driver:
        """Return the driver of what has a dataset."""
        return self.life.driver

    @initialize(data=st.data(), cache_size=st.sampled_from([1, 4096, 2**27]))
    def start(self, data: st.DataObject, cache_size: int) -> None:
        kinds = st.sampled_from(self.world.names)
        names = data.draw(st.lists(kinds, min_size=1, max_size=min(3, len(self.world.names)), unique=True))
        self.cache_size = cache_size

        async def start() -> None:
            await self._begin()
            self.subjects = [await self.world.create(self.driver, KINDS[name]) for name in names]

        self.world.run(start())

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        """A change that is acknowledged."""
        self._turn(data)
        change = data.draw(changes(self.subject))
        self.world.run(change.run(self.driver, self.subject.id))
        change.apply(self.subject.model)

    @rule(data=st.data())
    def changes_at_once(self, data: st.DataObject) -> None:
        """Writes and erasures that do not wait for each other."""
        self._turn(data)
        subject = self.subject
        drawn = data.draw(st.lists(value_changes(subject), min_size=2, max_size=6))

        async def change() -> None:
            await asyncio.gather(*(change.run(self.driver, subject.id) for change in drawn))
            await subject.settle_at_once(drawn, self.driver)

        self.world.run(change())

    @rule(data=st.data(), skip=st.integers(0, 5), applied=st.booleans(), gets=st.booleans())
    def fault(self, data: st.DataObject, skip: int, applied: bool, gets: bool) -> None:
        """A change during which the store fails once; the node goes on."""
        self._interrupt(data, CrashPoint(skip, applied, False, ("get", "get_range") if gets else CHANGES))

    @rule(data=st.data(), skip=st.integers(0, 5), applied=st.booleans())
    def crash(self, data: st.DataObject, skip: int, applied: bool) -> None:
        """A change during which the process dies; another one starts."""
        self._interrupt(data, CrashPoint(skip, applied, True))

    @rule()
    def restart(self) -> None:
        """Every cache is dropped."""

        async def restart() -> None:
            await self.life.stop()
            await self._begin()

        self.world.run(restart())

    @rule(data=st.data())
    def select_defined(self, data: st.DataObject) -> None:
        """Which elements of a box are defined, how many, and their values."""
        self._turn(data)
        place, subject = data.draw(boxes(self.subject.model.bounds)), self.subject
        if not subject.kind.sparse:
            return
        expected = subject.model.defined(place.coords)
        assert self.world.run(self.driver.count(subject.id, place)) == len(expected)
        assert sorted(self.world.run(self.driver.defined(subject.id, place))) == expected
        values = {coord: subject.model.elements[coord] for coord in expected}
        assert self.world.run(self.driver.read_sparse(subject.id, place)) == values

    @rule(data=st.data())
    def read_place(self, data: st.DataObject) -> None:
        """Values of a place, the fill value where undefined."""
        self._turn(data)
        place, subject = data.draw(places(self.subject.model.bounds)), self.subject
        expected = subject.model.packed(place.coords)
        assert self.world.run(self.driver.read_dense(subject.id, place)) == expected

    @invariant()
    def bounds_equal(self) -> None:
        assert self.world.run(self.driver.bounds(self.subject.id)) == self.subject.model.bounds

    @invariant()
    def count_equal(self) -> None:
        if self.subject.kind.sparse:
            assert self.world.run(self.driver.count(self.subject.id)) == len(self.subject.model.elements)

    @invariant()
    def defined_equal(self) -> None:
        if self.subject.kind.sparse:
            found = self.world.run(self.driver.defined(self.subject.id))
            assert sorted(found) == self.subject.model.defined()

    @invariant()
    def values_equal(self) -> None:
        if self.subject.kind.sparse:
            assert self.world.run(self.driver.read_sparse(self.subject.id)) == self.subject.model.elements

    @invariant()
    def dense_equal(self) -> None:
        assert self.world.run(self.driver.read_dense(self.subject.id)) == self.subject.model.packed()

    def teardown(self) -> None:
        """Look at every dataset once more with cold caches, unless something failed before."""
        if not hasattr(self, "life"):
            return
        if sys.exc_info()[0] is None:
            self.restart()
            for subject in self.subjects:
                seen = self.world.run(subject.look(self.door_of(subject)))
                assert seen == subject.model.elements, f"{subject.id} has changed by a restart"
        self.world.run(self.life.stop())

    async def _begin(self) -> None:
        life = RestartableNode(self.world.store, self.world.open_driver, cache_size=self.cache_size)
        self.life = await life.start()

    def _turn(self, data: st.DataObject) -> None:
        """Take a dataset in hand."""
        place = data.draw(st.integers(0, len(self.subjects) - 1))
        self.subjects.append(self.subjects.pop(place))

    def _interrupt(self, data: st.DataObject, crash_point: CrashPoint) -> None:
        self._turn(data)
        change = data.draw(changes(self.subject))
        self.world.run(self._attempt(change, crash_point))

    async def _attempt(self, change: Change, crash_point: CrashPoint) -> None:
        acknowledged = await self.life.attempt(change.run(self.driver, self.subject.id), crash_point)
        if self.life.store.died.is_set():
            await self.life.kill()
            await self._begin()
        if acknowledged:
            change.apply(self.subject.model)
        else:
            await self.subject.settle(change, self.driver)


class TwoOwnersMachine(RuleBasedStateMachine):
    """Two data nodes, each of which owns what the other one owns; each change goes through either."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.lives: list[RestartableNode] = []
        self.subject: DatasetSubject

    @initialize(data=st.data(), cache_size=st.sampled_from([1, 2**27]))
    def start(self, data: st.DataObject, cache_size: int) -> None:
        name = data.draw(st.sampled_from(self.world.names))

        async def start() -> None:
            store, drive = self.world.store, self.world.open_driver
            self.lives = [
                RestartableNode(store, drive, cache_size=cache_size, ownership=Doubtful()) for _ in range(2)
            ]
            for life, other in zip(self.lives, reversed(self.lives), strict=True):
                await life.start(other)
            self.subject = await self.world.create(self.lives[0].driver, KINDS[name])

        self.world.run(start())

    @rule(data=st.data(), node=st.integers(0, 1))
    def move(self, data: st.DataObject, node: int) -> None:
        """The bounds move, by appends too."""
        self._change(data.draw(moves(self.subject)), node)

    @rule(data=st.data(), node=st.integers(0, 1))
    def write(self, data: st.DataObject, node: int) -> None:
        self._change(data.draw(writes(self.subject)), node)

    @rule(data=st.data(), node=st.integers(0, 1))
    def erase(self, data: st.DataObject, node: int) -> None:
        if self.subject.kind.sparse:
            self._change(Erase(data.draw(places(self.subject.model.bounds))), node)

    @invariant()
    def nothing_lost(self) -> None:
        """A third node, whose caches are empty, sees every change."""

        async def look() -> None:
            life = await RestartableNode(self.world.store, self.world.open_driver).start()
            try:
                assert await life.driver.bounds(self.subject.id) == self.subject.model.bounds
                assert await self.subject.look(life.driver) == self.subject.model.elements
            finally:
                await life.stop()

        self.world.run(look())

    def teardown(self) -> None:
        for life in self.lives:
            self.world.run(life.stop())

    def _change(self, change: Change, node: int) -> None:
        self.world.run(change.run(self.lives[node].driver, self.subject.id))
        change.apply(self.subject.model)


HEAD = "/machine"
MOST = 3
"""Snapshots, and clones, that there are at a time."""


class InDomain:
    """A client whose requests are about one domain, or a snapshot of one."""

    def __init__(self, rest: Rest, domain: str) -> None:
        self.rest = rest
        self.domain: str | None = domain

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        return await self.rest(method, path, body, domain=self.domain, **options)

    async def close(self) -> None:
        """Leave the client to who has it."""


class VersionsMachine(SparseMachine):
    """A domain, its clones and theirs, and their snapshots, beside restarts and crashes."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.copies: dict[str, list[DatasetSubject]] = {}
        """What each snapshot has, by its path."""
        self.sources: dict[str, str] = {}
        """The snapshot that each clone is of."""
        self.domains: dict[str, str] = {}
        """The path of a clone, or of a snapshot, by the half of its ids."""
        self.made = 0

    def door_of(self, subject: DatasetSubject) -> Driver:
        domain = self.domains.get(subject.id[ID_DOMAIN], HEAD)
        return RestDriver(InDomain(self.rest, domain), domain).know(self.world.kinds)

    @property
    def rest(self) -> Rest:
        assert isinstance(self.life.driver, RestDriver)
        return self.life.driver.rest

    @rule(data=st.data())
    def snapshot(self, data: st.DataObject) -> None:
        self._turn(data)
        if len(self.copies) < MOST:
            head = self.domains.get(self.subject.id[ID_DOMAIN], HEAD)
            path = f"{head}@{self._done('POST', '/snapshots', {}, domain=head)['snapshot']}"
            self.copies[path] = self._copied(self._of(head), path)

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        if self.copies:
            path = data.draw(st.sampled_from(sorted(self.copies)))
            head, _, number = path.partition("@")
            self._done("POST", f"/snapshots/{number}/restore", {}, domain=head)
            for subject, copy in zip(self._of(head), self.copies[path], strict=True):
                subject.model = copy.model.copy()

    @rule(data=st.data())
    def clone(self, data: st.DataObject) -> None:
        if self.copies and len(self.sources) < MOST:
            path = data.draw(st.sampled_from(sorted(self.copies)))
            head, _, number = path.partition("@")
            self.made += 1
            target = f"{HEAD}-clone-{self.made}"
            self._done("POST", "/clones", {"target": target, "snapshot": int(number)}, domain=head)
            self.sources[target] = path
            self.subjects[:0] = self._copied(self.copies[path], target)

    @rule(data=st.data())
    def delete_snapshot(self, data: st.DataObject) -> None:
        if free := sorted(self.copies.keys() - set(self.sources.values())):
            self._delete_snapshot(data.draw(st.sampled_from(free)))

    @rule(data=st.data())
    def delete_clone(self, data: st.DataObject) -> None:
        if free := self._unneeded():
            self._delete_clone(data.draw(st.sampled_from(free)))

    @invariant()
    def all_are_what_they_were(self) -> None:
        """Each snapshot is the model of its time, and each clone its own."""
        for subject in [*self.subjects, *(one for some in self.copies.values() for one in some)]:
            door = self.door_of(subject)
            assert self.world.run(door.bounds(subject.id)) == subject.model.bounds
            assert self.world.run(subject.look(door)) == subject.model.elements

    def teardown(self) -> None:
        if hasattr(self, "life"):
            while free := self._unneeded():
                self._delete_clone(free[0])
            for path in list(self.copies):
                self._delete_snapshot(path)
        super().teardown()

    async def _begin(self) -> None:
        wrap = partial(with_versions, clock=SystemClock())
        life = RestartableNode(
            self.world.store, self.world.open_driver, cache_size=self.cache_size, wrap=wrap
        )
        self.life = await life.start()

    def _done(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        return checked(self.world.run(self.rest(method, path, body, **options)))

    def _unneeded(self) -> list[str]:
        """Return the clones of which there is no clone."""
        return sorted(self.sources.keys() - {path.partition("@")[0] for path in self.sources.values()})

    def _of(self, domain: str) -> list[DatasetSubject]:
        """Return the datasets of a domain in the order in which they were made, not that of ids made up anew."""
        found = {one.id: one for one in self.subjects if self.domains.get(one.id[ID_DOMAIN], HEAD) == domain}
        return [found[id] for id in self.world.kinds if id in found]

    def _copied(self, subjects: list[DatasetSubject], path: str) -> list[DatasetSubject]:
        """Return what a snapshot, or a clone, has of datasets."""
        root = self._done("GET", "/", domain=path)["root"]
        self.domains[root[ID_DOMAIN]] = path
        found = [DatasetSubject(moved_id(one.id, "", root), one.kind, one.model.copy()) for one in subjects]
        self.world.kinds |= {one.id: one.kind for one in found}
        return found

    def _delete_snapshot(self, path: str) -> None:
        head, _, number = path.partition("@")
        self._done("DELETE", f"/snapshots/{number}", domain=head)
        del self.copies[path]

    def _delete_clone(self, domain: str) -> None:
        self._done("DELETE", "/", domain=domain, wait=10)
        gone = {one.id for one in self._of(domain)}
        self.subjects = [one for one in self.subjects if one.id not in gone]
        self.copies = {path: some for path, some in self.copies.items() if path.partition("@")[0] != domain}
        del self.sources[domain]
