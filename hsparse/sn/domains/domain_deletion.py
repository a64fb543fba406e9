"""Deletion of a domain. A deletion note is stored first, so that any data node can finish the deletion after a crash.

A domain's record (a name of its objects) can be deleted without the objects (`keep_root`). If the objects count in a
folder's quota, they must then have another name below that folder. Two concurrent deletions can each rely on the name
that the other deletion removes. Each deletion therefore checks again afterwards, and restores its own name if the
objects have no other name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextvars import Context as Variables
from typing import Protocol, Self

from hsparse.clock import Clock
from hsparse.errors import MISSING_KINDS, UNREADABLE_KINDS, Conflict, Forbidden
from hsparse.model.acl import Principal
from hsparse.model.schema import check_changeable
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.domains.listing_check import is_deleted
from hsparse.sn.records.domain_path import normal_path
from hsparse.sn.records.second_names import FIRST_NAME, SECOND_NAMES, FolderLimits, with_first_names
from hsparse.sn.request import Domain, Request
from hsparse.sn.service import Component, Service
from hsparse.wire.chunk_message import FenceDeleted
from hsparse.wire.record_message import (
    BeginDeletion,
    CreateObject,
    DeleteObject,
    DeleteTree,
    Forget,
    WithdrawDeletion,
)

log = logging.getLogger(__name__)

AT_ONCE = 4
"""The maximum number of domains whose objects a node deletes at the same time; other domains wait."""
LAST_SECONDS = 10.0
"""Seconds that a stopping node waits for the end of its deletions."""


class Dependents(Component, Protocol):
    """An extension's component that knows which domains depend on objects of other domains."""

    async def release(self, root: str, principal: Principal) -> None:
        """Make other users' domains independent of the objects of `root`; raise `Conflict` if own domains need them."""
        ...


class DomainDeletions:
    """Deletes domains; their objects are deleted in the background, after the answer."""

    def __init__(self, owners: Owners, clock: Clock) -> None:
        self._owners = owners
        self._clock = clock
        self._running: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(AT_ONCE)

    @classmethod
    def of(cls, service: Service) -> Self:
        """Make the component of a service."""
        return cls(service.owners, service.clock)

    async def remove(self, domain: Domain, *, keep_root: bool = False, wait: float = 0.0) -> None:
        """Delete the record of a domain or folder and, unless `keep_root` is true, the domain's objects.

        On return the deletion is durably decided; the call waits at most `wait` seconds for its end. If a lost reply
        hides who deleted the record, the objects stay until a sweep (`hsparse sweep`) finds that they have no other
        name. If the record is marked as `deleted`, the objects belong to another domain and stay. Raises `NotFound` or
        `Gone`, without deleting anything, if the record is missing or is that of a later domain at the path.
        """
        owners, path, root = self._owners, domain.path, domain.root
        record = DeleteObject(path, domain.identity)
        if root is None or keep_root or "deleted" in domain.record:
            await owners.apply(record)
            return
        check_changeable(path, domain.record)  # before the note: a refused deletion must leave none
        token = self._clock.token(8).hex()
        born = await owners.ask_any(BeginDeletion(root, path, token=token))
        [outcome] = await owners.change(record)
        if born and outcome.failure is not None and outcome.failure.kind in MISSING_KINDS:
            await owners.ask_any(WithdrawDeletion(root, token))
        outcome.unwrap()
        if not outcome.changed:
            log.warning(
                "The objects of %s (%s) were not deleted: a reply was lost. Run `hsparse sweep` to delete them.",
                root,
                path,
            )
            return
        await self._remove_objects(root, path, born, wait)

    async def remove_objects(self, root: str, path: str) -> None:
        """Delete the objects of a domain that was at `path`, in the background."""
        born = await self._owners.ask_any(BeginDeletion(root, path))
        await self._remove_objects(root, path, born, 0.0)

    async def _remove_objects(self, root: str, path: str, born: str, wait: float) -> None:
        owners = self._owners
        if not born:  # there is no root group; a sweep removes leftovers
            await owners.ask_all(Forget(root))
            return
        await owners.ask_any(BeginDeletion(root, path, decided=born))
        # A context of its own keeps the deletion from inheriting the request's deadline.
        task = asyncio.get_running_loop().create_task(self._delete_objects(root, born), context=Variables())
        self._running.add(task)
        task.add_done_callback(lambda done: self._ended(root, done))
        if wait:
            await asyncio.wait({task}, timeout=wait)
            if task.done():
                task.result()

    async def close(self) -> None:
        """Wait at most `LAST_SECONDS` for running deletions, then cancel them; data nodes finish them later."""
        if self._running:
            _, left = await asyncio.wait(self._running, timeout=LAST_SECONDS)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _delete_objects(self, root: str, born: str) -> None:
        async with self._places:
            await self._owners.ask_all(FenceDeleted(root))
            await self._owners.ask_any(DeleteTree(root, born))
            await self._owners.ask_all(Forget(root))

    def _ended(self, root: str, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("The deletion of %s stopped and will be resumed: %s", root, task.exception())


async def check_root_stays(owners: Owners, domain: Domain, root: str) -> None:
    """Delete a new domain's record and raise `Conflict` if its root group is being deleted or was deleted.

    Call this after the domain's record is stored, because a deletion stores its note before it looks for domains.
    """
    if await is_deleted(owners, root):
        [outcome] = await owners.change(DeleteObject(domain.path, domain.identity))
        if outcome.failure is not None and outcome.failure.kind not in MISSING_KINDS:
            raise outcome.failure.error()
        raise Conflict(f"The objects of {root} are deleted or being deleted: {domain.path} was not created.")


async def require_kept(request: Request, domain: Domain) -> tuple[str, ...]:
    """Return the paths of other names of the objects of `domain`; its record can be deleted because these names exist.

    The first name or the request's `linked_domain` is enough. Otherwise each folder with a quota above `domain` needs
    another name below it; if a folder has none, `Forbidden` is raised, because its quota would no longer count the
    objects. Returns () if no quota applies, or if the domain's objects or its first name no longer exist.
    """
    service, other = request.service, request.arg("linked_domain")
    limits = service.provided(FolderLimits)
    limited = [] if limits is None else await limits.limited_folders(domain.path)
    if (
        limits is None
        or not limited
        or domain.root is None
        or "deleted" in domain.record
        or await _opens_nothing(request, domain)
    ):
        return ()
    said = set() if other is None else {normal_path(service, other)}
    said |= set() if domain.first is None else {domain.first.path}
    if opening := await _opening(request, domain, said):
        return (opening[0],)
    below = [await _name_below(request, domain, limits, folder) for folder in limited]
    return tuple(dict.fromkeys(below))


async def check_still_kept(request: Request, domain: Domain, names: tuple[str, ...]) -> None:
    """Check, after the name of `domain` was deleted, that the `names` that the deletion relied on still exist.

    If the objects have no other name, the deleted name is restored and `Conflict` is raised. If another domain has
    taken the path meanwhile, the objects are deleted.
    """
    if len(await _opening(request, domain, names)) == len(names):
        return
    try:
        await require_kept(request, domain)
    except Forbidden:
        await _put_back(request, domain)


async def _opens_nothing(request: Request, domain: Domain) -> bool:
    if domain.first is None or domain.first.root is not None:
        return False
    # A first name releases its second names before it is deleted, possibly after this record was read.
    [again] = await request.service.owners.read(domain.path)
    if again.failure is not None:
        return True
    name = again.unwrap().get(FIRST_NAME)
    return name is not None and not name.get("released")


async def _put_back(request: Request, domain: Domain) -> None:
    owners, root = request.service.owners, str(domain.root)
    outcome = (await owners.change(CreateObject(domain.path, domain.record)))[0]
    if outcome.failure is not None:
        await request.service.component(DomainDeletions).remove_objects(root, domain.path)
        return
    await check_root_stays(owners, domain, root)
    raise Conflict(
        f"{domain.path} was not deleted, because the other name of its objects was deleted at the same time. Delete it "
        "without keep_root to delete the objects."
    )


async def _name_below(request: Request, domain: Domain, limits: FolderLimits, folder: str) -> str:
    async for page in limits.domains_below(folder):
        same = [name for name in page if name.root == domain.root]
        if opening := await _those_opening(request, domain, same):
            return opening[0]
    raise Forbidden(
        f"{domain.path} is the only name of its objects below {folder}, which has a quota: only an admin can delete "
        "it and keep the objects. Name another domain that has them by linked_domain."
    )


async def _opening(request: Request, domain: Domain, paths: Iterable[str]) -> list[str]:
    """Return the `paths` whose domains give access to the objects of `domain` after `domain` is deleted."""
    others = [path for path in paths if path != domain.path]
    if not others:
        return []
    found = zip(others, await request.service.owners.read(*others), strict=True)
    there = [Domain(path, one.unwrap()) for path, one in found if one.failure is None]
    return await _those_opening(request, domain, there)


async def _those_opening(request: Request, domain: Domain, others: list[Domain]) -> list[str]:
    passed = (*MISSING_KINDS, *UNREADABLE_KINDS)
    found = await with_first_names(request.service.owners, others, passed)
    return [other.path for other in found if _opens(other, domain, request.principal.name)]


def _opens(other: Domain, deleted: Domain, user: str) -> bool:
    """Return whether `other` gives access to the objects of `deleted` after `user` has deleted that domain."""
    if other.path == deleted.path or other.root != deleted.root or "deleted" in other.record:
        return False
    if other.first is None or other.first.path != deleted.path:
        return other.first is None or other.first.root is not None
    return other.first.root is not None and (deleted.record.get(SECOND_NAMES) or {}).get(other.path) == user
