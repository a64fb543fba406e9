"""What a simulated service node does for a client with the snapshots and clones of one domain: the handlers' work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hsparse.errors import Gone, NotFound
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
from tests.simulation.service_operations import ServiceOperations

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
