"""The machine with a past: snapshots, restores and clones are moves, and each copy is looked at after every move."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from hsparse.clock import SystemClock
from hsparse.model.ids import ID_DOMAIN, moved_id
from hsparse.versions.wrapping import with_versions
from tests.support.dataset_subject import DatasetSubject
from tests.support.driver import Driver
from tests.support.rest_client import Reply
from tests.support.rest_driver import Rest, RestDriver, checked
from tests.support.restartable_node import RestartableNode
from tests.support.stateful import SparseMachine, World

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
