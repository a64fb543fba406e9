"""Clients of snapshots and clones in a simulated cluster, and their operations."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from hsparse.errors import BadRequest, Conflict, Gone, HsparseError, NotFound
from hsparse.model.acl import Principal
from hsparse.model.dataset_state import is_trimmed
from hsparse.model.ids import moved_id, root_id
from hsparse.sn.domains.domain_deletion import DomainDeletions
from hsparse.sn.records.dataset import change_extent, finish_trim
from hsparse.sn.request import Domain, Request
from hsparse.versions.clone_handlers import create_clone, post_materialize
from hsparse.versions.handlers import delete_snapshot, post_restore
from hsparse.versions.snapshot_path import snapshot_path
from hsparse.versions.snapshot_requests import ask, take_snapshot
from hsparse.versions.version_keys import CLONE_MARK
from hsparse.wire.message import Record
from hsparse.wire.record_message import SetExtent
from tests.simulation.clients import Clients, Ended, Mix, ServiceOperations
from tests.simulation.linearizability import Action, Operation, Value

ROWS = 6
"""Elements of the dataset that is shrunk and extended again."""
MOST_TAKEN, MOST_CLONES = 4, 2
PARTS = ("elements", "attribute", "groups", "rows", "appended")
"""What is looked at by one request each."""
OF_CLONES = Mix(of_elements=(6, 2, 2), of_others=(0, 4, 0, 0, 0), moves=6)
Shown = dict[Hashable, Value]


@dataclass(slots=True, eq=False)
class Taken:
    """A snapshot that was asked for; its `message` tells it from others, as its number may be used again."""

    message: str
    invoked: int
    returned: int | None = None
    number: int = 0
    root: str = ""
    shown: Shown = field(default_factory=dict)
    cloned: bool = False
    """Whether a clone was ever asked for, which may need it."""
    ending: bool = False
    """Whether its deletion has begun: it may be there no more."""
    gone: bool = False

    def __str__(self) -> str:
        return f"snapshot {self.number} ({self.message}, {self.invoked}-{self.returned or '...'})"


@dataclass(slots=True, eq=False)
class MadeClone:
    """A clone that is there."""

    path: str
    root: str
    taken: Taken
    clients: Clients
    """Who work on it as others do on the domain."""
    shares: bool = True
    """Whether it was not asked to copy what it shares."""
    ending: bool = False


@dataclass(slots=True)
class VersionClients(Clients):
    """Clients of the domain of `root`, whose dataset `resized` has `ROWS` elements."""

    root: str = ""
    resized: str = ""
    restores: bool = False
    """Whether they restore, which undoes appends: then there are none."""
    taken: list[Taken] = field(default_factory=list)
    clones: list[MadeClone] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    async def step(self, client: str) -> None:
        """Do an operation; every other one has to do with versions."""
        chosen = self.generator.choices(
            [
                *(super(VersionClients, self).step, self.write_rows, self.cut, self.read_rows),
                *(self.take, self.look_at_one, self.let_go, self.survey),
                *(self.restore, self.clone, self.change_clone, self.read_clone, self.drop_clone),
                self.own_all,
            ],
            [14, 3, 1, 1, 4, 6, 2, 1, 2 if self.restores else 0, 2, 4, 3, 1, 1],
        )
        await chosen[0](client)

    # --- a dataset that shrinks -----------------------------------------------------------------------

    async def write_rows(self, client: str) -> None:
        value = next(self.values)
        places = sorted(self.generator.sample(range(ROWS), self.generator.choice((1, 2, 3))))
        noted = self._invoke({("row", i): value for i in places}, client)
        # Beside a cut they may be outside.
        await self._apply(noted, lambda node: node.write(self.resized, places, value), BadRequest)

    async def cut(self, client: str) -> None:
        """Cut the last elements off and extend it again: they are erased."""
        extent = self.generator.randrange(ROWS)
        noted = self._invoke({("row", i): None for i in range(extent, ROWS)}, client)

        async def cut(node: VersionedOperations) -> None:
            await node.resize(self.resized, extent)
            await node.resize(self.resized, ROWS)

        await self._apply(noted, cut, Conflict)  # beside another one

    async def read_rows(self, client: str) -> None:
        await self._read("", self.root, "rows", client)

    # --- snapshots ------------------------------------------------------------------------------------

    async def take(self, client: str) -> None:
        if sum(not one.ending for one in self.taken) >= MOST_TAKEN:
            return
        taken = Taken(f"{client} {next(self.values)}", next(self.history.ticks))
        self.taken.append(taken)
        try:
            found = await self._request(lambda node: node.take(taken.message))
        except HsparseError as error:
            self._failed(error, Conflict, *_missing(taken))
        else:
            taken.returned = next(self.history.ticks)
            taken.number, taken.root = found["snapshot"], found["root"]

    async def survey(self, client: str) -> None:
        """List the snapshots: all are there that were taken and not deleted, and none that was."""
        expected = [one for one in self.taken if one.root and not one.ending]
        gone = [one for one in self.taken if one.gone]
        try:
            listed = await self._request(lambda node: node.snapshots())
        except HsparseError as error:
            self._failed(error)
            return
        found = {one["message"]: one for one in listed}
        self.wrong += [
            f"{one} is not listed" for one in expected if one.message not in found and not one.ending
        ]
        self.wrong += [f"{one} is listed" for one in gone if one.message in found]
        for one in self.taken:
            if not one.root and one.message in found:
                one.returned = next(self.history.ticks)
                one.number, one.root = found[one.message]["snapshot"], found[one.message]["root"]

    async def look_at_one(self, client: str) -> None:
        there = [one for one in self.taken if one.root and not one.gone]
        if there:
            await self.look(self.generator.choice(there), self.generator.choice(PARTS))

    async def look(self, taken: Taken, part: str) -> bool:
        """Read a part of a snapshot, and say whether that was answered."""

        async def look(node: VersionedOperations) -> Shown | None:
            root = await node.root_at(taken.number)
            return await self._part(node, part, root) if root == taken.root else None

        try:
            found = await self._request(look)
        except HsparseError as error:
            self._failed(error, *_missing(taken))
            return False
        if found is None:
            if not taken.ending:
                self.wrong.append(f"{taken} is another one")
            return False
        for register, value in found.items():
            if taken.ending and value is None and register[0] == "group":  # type: ignore[index]
                continue  # or the group is there no more
            if taken.shown.setdefault(register, value) != value:
                self.wrong.append(f"{register} of {taken} is {value}, which was {taken.shown[register]}")
        return True

    async def let_go(self, client: str) -> None:
        there = [one for one in self.taken if one.root and not one.ending]
        if not there:
            return
        taken = self.generator.choice(there)
        needing = [one for one in self.clones if one.taken is taken and one.shares]
        taken.ending = True
        try:
            await self._request(lambda node: node.remove(taken.number))
        except Conflict as error:
            taken.ending = False
            if not taken.cloned:
                self._failed(error)
        except (NotFound, Gone):  # it was sent again
            taken.gone = True
        except HsparseError as error:
            self._failed(error)
        else:
            taken.gone = True
            self.wrong += [
                f"{taken} is deleted, which {one.path} needs"
                for one in needing
                if one.shares and not one.ending
            ]

    async def restore(self, client: str) -> None:
        taken = await self._shown_one()
        if taken is None:
            return
        noted = self._invoke(self._registers(taken), client)
        await self._apply(noted, lambda node: node.restore(taken.number), of=taken)

    # --- clones ---------------------------------------------------------------------------------------

    async def clone(self, client: str) -> None:
        if len(self.clones) >= MOST_CLONES or (taken := await self._shown_one()) is None:
            return
        path = f"/home/clone{next(self.values)}"
        taken.cloned = True
        noted = self._invoke({(path, at): value for at, value in self._registers(taken).items()}, client)
        try:
            root = await self._request(lambda node: node.clone(taken.number, path))
        except HsparseError as error:
            self._failed(error, *_missing(taken))
            return
        for operation in noted:
            self.history.respond(operation)
        self.clones.append(self._made(path, root, taken))

    def _made(self, path: str, root: str, taken: Taken) -> MadeClone:
        async def request(work: Any) -> Any:
            try:
                answer = await self.request(work)
            except (NotFound, Gone) as error:
                raise (Ended(error.message) if clone.ending else error) from None
            if clone.ending:  # what it shares is shown again before all of it is gone
                raise Ended(f"{path} is being deleted.")
            return answer

        clients = Clients(
            replace(self.names, written=moved_id(self.names.written, self.root, root)),
            request,
            self.history.of(path),
            self.generator,
            self.sparse,
            self.signed,
            OF_CLONES,
            *(self.values, self.unanswered, self.errors, self.defects),
        )
        clone = MadeClone(path, root, taken, clients)
        return clone

    async def change_clone(self, client: str) -> None:
        if (clone := self._one_clone()) is not None:
            await clone.clients.step(client)

    async def read_clone(self, client: str) -> None:
        if (clone := self._one_clone()) is not None:
            await self._read(clone.path, clone.root, self.generator.choice(PARTS[:-1]), client, clone)

    async def own_all(self, client: str) -> None:
        """Have a clone copy what it shares: it shows the same, and needs its snapshot no more."""
        if (clone := self._one_clone()) is not None:
            clone.shares = False
            await self._apply([], lambda node: node.own_all(clone.path), of=clone)

    async def drop_clone(self, client: str) -> None:
        if (clone := self._one_clone()) is None:
            return
        clone.ending = True
        self.clones.remove(clone)
        try:
            await self._request(lambda node: node.drop(clone.path))
        except HsparseError as error:
            self._failed(error, NotFound, Gone)

    # --- the end --------------------------------------------------------------------------------------

    async def look_at_all(self) -> None:
        """Look at every snapshot and clone once more, and take what snapshots have shown for reads."""
        await self.survey("end")
        await self._read("", self.root, "rows", "end")
        for taken in self.taken:
            if taken.root and not taken.ending:
                for part in PARTS:
                    await self.look(taken, part)
            for register, value in taken.shown.items():
                if register != "appended":
                    self.history.operations.append(
                        Operation(
                            register,
                            Action.READ,
                            value,
                            taken.invoked,
                            f"snapshot {taken.number}",
                            taken.returned,
                        )
                    )
            if "appended" in taken.shown:
                self.wrong += self._wrong_appends(taken)
        for clone in self.clones:
            if self.signed:  # what was outside is not uncovered
                await clone.clients.move_to("end", self.places[0], self.places[-1] + 1)
            for part in PARTS[:-1]:
                await self._read(clone.path, clone.root, part, "end", clone)

    async def delete_clones(self) -> None:
        for clone in self.clones:
            await self._request(partial(VersionedOperations.drop, path=clone.path))

    async def delete_snapshots(self) -> None:
        for one in await self._request(lambda node: node.snapshots()):
            try:
                await self._request(partial(VersionedOperations.remove, number=one["snapshot"]))
            except HsparseError as error:
                self.wrong.append(f"snapshot {one['snapshot']} stays: {error}")

    def _wrong_appends(self, taken: Taken) -> list[str]:
        """Return what is wrong with the appended elements of a snapshot: what was under way may be there in part."""
        values: Any = taken.shown["appended"]
        there, known = dict(values), {one.value: one for one in self.history.appends}
        assert taken.returned is not None
        sentences = []
        for place, value in values:
            append = known.get(value)
            if append is None or append.invoked > taken.returned:
                sentences.append(f"element {place} of {taken} is {value}, which nobody appended before it")
        for append in known.values():
            if append.returned is None or append.start is None or append.returned > taken.invoked:
                continue
            start = -append.start - append.count if append.below else append.start
            found = [there.get(start + i) for i in range(append.count)]
            if found != [append.value] * append.count:
                sentences.append(f"the append of {append.value} at {start} is {found} in {taken}")
        return sentences

    # --- what these have in common --------------------------------------------------------------------

    async def _part(self, node: VersionedOperations, part: str, root: str) -> Shown:
        """Return the values of some registers in the tree of a root group."""

        def moved(id: str) -> str:
            return moved_id(id, self.root, root)

        match part:
            case "elements":
                low, values = await node.read_bounded(moved(self.names.written))
                found = dict(enumerate(values, low))
                shown: Shown = {("element", i): found.get(i) or None for i in self.places}
                return shown | ({"bounds": (low, low + len(values))} if self.signed else {})
            case "attribute":
                record = await node.record(moved(self.names.written))
                return {"attribute": record["attributes"].get("a", {}).get("value")}
            case "groups":
                created = await node.created(self.names.groups, self.root, root)
                return {("group", id): value for id, value in zip(self.names.groups, created, strict=True)}
            case "rows":
                rows = [value or None for value in await node.read_all(moved(self.resized))]
                return {("row", i): rows[i] if i < len(rows) else None for i in range(ROWS)}
        low, values = await node.read_bounded(moved(self.names.appended))
        return {"appended": tuple((low + i, value) for i, value in enumerate(values) if value)}

    async def _read(
        self, path: str, root: str, part: str, client: str, clone: MadeClone | None = None
    ) -> None:
        """Read a part of the domain, or of a clone at `path`."""
        invoked = next(self.history.ticks)
        began = self.history.clock()
        try:
            found = await self._request(lambda node: self._part(node, part, root))
        except HsparseError as error:
            self._failed(error, *_missing(clone))
            return
        if clone is not None and clone.ending:
            return
        for at, value in found.items():
            register = (path, at) if path else at
            operation = Operation(register, Action.READ, value, invoked, client, next(self.history.ticks))
            operation.seconds = (began, self.history.clock())
            self.history.operations.append(operation)

    async def _shown_one(self) -> Taken | None:
        """Return a snapshot of which everything was looked at, None if there is none."""
        there = [one for one in self.taken if one.root and not one.ending]
        if not there:
            return None
        taken = self.generator.choice(there)
        for part in PARTS[:-1]:
            if not await self.look(taken, part):
                return None
        return None if taken.ending else taken

    def _registers(self, taken: Taken) -> Shown:
        return {at: value for at, value in taken.shown.items() if at != "appended"}

    def _one_clone(self) -> MadeClone | None:
        return self.generator.choice(self.clones) if self.clones else None

    def _invoke(self, values: Shown, client: str) -> list[Operation]:
        return [self.history.invoke(at, Action.WRITE, value, client) for at, value in values.items()]

    async def _apply(
        self,
        noted: list[Operation],
        work: Any,
        *expected: type[HsparseError],
        of: Taken | MadeClone | None = None,
    ) -> None:
        try:
            await self._request(work)
        except HsparseError as error:
            self._failed(error, *expected, *_missing(of))
        else:
            for operation in noted:
                self.history.respond(operation)

    async def _request(self, work: Any) -> Any:
        return await self.request(work)

    def _failed(self, error: HsparseError, *expected: type[HsparseError]) -> None:
        """Note an error, which no client may get unless it is one of those expected."""
        if not isinstance(error, expected):
            self._unknown(error)


def _missing(of: Taken | MadeClone | None) -> tuple[type[HsparseError], ...]:
    """Return the errors that tell that something is not there, if it is being deleted by now."""
    return (NotFound, Gone) if of is not None and of.ending else ()


PATH = "/home/past"
"""The domain that has snapshots."""


async def _make_room(nbytes: int) -> None:
    """Without quotas there is room."""


class VersionedOperations(ServiceOperations):
    """The operations of a service node, with those on the snapshots and clones of the domain at `PATH`."""

    async def take(self, message: str) -> Record:
        """Take a snapshot, and return it."""
        request = await self._asked()
        return await take_snapshot(request, request.domain.root_group, message)

    async def snapshots(self) -> list[Record]:
        """Return the snapshots there are."""
        request = await self._asked()
        found: list[Record] = (await ask(request, "list", request.domain.root_group))["snapshots"]
        return found

    async def remove(self, number: int) -> None:
        """Delete a snapshot."""
        await delete_snapshot(await self._asked(number))

    async def restore(self, number: int) -> None:
        """Bring the domain back to what it was at a snapshot."""
        await post_restore(await self._asked(number))

    async def root_at(self, number: int) -> str:
        """Return the root group's id in the tree of a snapshot, as who opens it is told."""
        return str((await self.owners.record(snapshot_path(PATH, number)))["root"])

    async def clone(self, number: int, target: str) -> str:
        """Make a clone of a snapshot, and return its root group's id."""
        request = await self._asked()
        clone, now = root_id(CLONE_MARK + self._clock.token(6)), self._clock.now()
        record: Record = {"owner": "ann", "acls": {}, "created": now, "lastModified": now, "root": clone}
        await create_clone(request, PATH, request.domain.root_group, number, target, record)
        return clone

    async def drop(self, path: str) -> None:
        """Delete a clone, and wait a while for the end of its objects."""
        domain = Domain(path, await self.owners.record(path))
        await DomainDeletions(self.owners, self._clock).remove(domain, wait=5.0)

    async def own_all(self, path: str) -> None:
        """Have a clone copy what it shares."""
        domain = Domain(path, await self.owners.record(path))
        asked = SimpleNamespace(service=self._service, domain=domain, make_room=_make_room)
        await post_materialize(cast(Request, asked))

    async def resize(self, id: str, extent: int) -> None:
        """Set the extent, and erase what a shrink leaves outside, also one of before that was not finished."""
        record = await self.owners.record(id)
        if is_trimmed(record):
            await finish_trim(self.owners, record)
        await change_extent(self.owners, SetExtent(id, (extent,)))

    async def created(self, ids: tuple[str, ...], root: str, to: str) -> list[Any]:
        """Return when groups of the tree of `root` were created in that of `to`, None of one that is not there."""
        found = []
        for id in ids:
            try:
                found.append((await self.record(moved_id(id, root, to)))["created"])
            except (NotFound, Gone):
                found.append(None)
        return found

    @property
    def _service(self) -> SimpleNamespace:
        service = SimpleNamespace(owners=self.owners, clock=self._clock)
        service.component = lambda kind: kind.of(service)
        return service

    async def _asked(self, number: int = 0) -> Request:
        domain = Domain(PATH, await self.owners.record(PATH))
        asked = SimpleNamespace(
            service=self._service,
            principal=Principal("ann", admin=True),
            domain=domain,
            make_room=_make_room,
            params={"number": str(number)},
        )
        return cast(Request, asked)
