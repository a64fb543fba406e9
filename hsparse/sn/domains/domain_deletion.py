"""Deletion of a domain: noted in the store first, so that any data node can finish it after a crash.

The objects of a domain whose name is deleted alone (`keep_root`): where a quota counts them, they keep a name.

Two deletions at the same moment can each rely on the name that the other one deletes. So each looks again afterwards,
and puts its name back where the objects are left without one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextvars import Context as Variables
from typing import Self

from hsparse.clock import Clock
from hsparse.errors import MISSING_KINDS, UNREADABLE_KINDS, Conflict, Forbidden
from hsparse.model.ids import deletion_key, storage_key
from hsparse.model.schema import check_changeable
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.domain_path import normal_path
from hsparse.sn.records.second_names import FIRST_NAME, SECOND_NAMES, FolderLimits, with_first_names
from hsparse.sn.request import Domain, Request
from hsparse.sn.service import Service
from hsparse.wire.record_message import (
    BeginDeletion,
    CreateObject,
    DeleteObject,
    DeleteTree,
    Forget,
    ListKeys,
    WithdrawDeletion,
)

log = logging.getLogger(__name__)

AT_ONCE = 4
"""The most domains whose objects a node has deleted at once; others wait."""
LAST_SECONDS = 10.0
"""How long a node that stops waits for the end of its deletions."""


class DomainDeletions:
    """Deletes domains; their objects are deleted behind the answer."""

    def __init__(self, owners: Owners, clock: Clock) -> None:
        self._owners = owners
        self._clock = clock
        self._running: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(AT_ONCE)

    @classmethod
    def of(cls, service: Service) -> Self:
        """Make the deletions of a service node."""
        return cls(service.owners, service.clock)

    async def remove(self, domain: Domain, *, keep_root: bool = False, wait: float = 0.0) -> None:
        """Delete the record of a domain or folder and, without `keep_root`, the domain's objects.

        When this returns it is decided, durably, that these are deleted; for the end it waits so many seconds. Where a
        lost reply hides who has deleted the record, the objects stay until a sweep has found no other name of them.
        `NotFound` or `Gone` if there is no record any more, or that of another domain: then nothing is deleted. The
        objects of a domain that is marked as deleted are another's.
        """
        owners, path, root = self._owners, domain.path, domain.root
        record = DeleteObject(path, domain.identity)
        if root is None or keep_root or "deleted" in domain.record:
            await owners.apply(record)
            return
        check_changeable(path, domain.record)  # what is refused must leave no note
        token = self._clock.token(8).hex()
        born = await owners.ask_any(BeginDeletion(root, path, token=token))
        [outcome] = await owners.change(record)
        if born and outcome.failure is not None and outcome.failure.kind in MISSING_KINDS:
            await owners.ask_any(WithdrawDeletion(root, token))
        outcome.unwrap()
        if not outcome.changed:
            log.warning(
                "The objects of %s (%s) are left to `hsparse sweep`: a reply was lost, and others may have moved them.",
                root,
                path,
            )
            return
        await self._remove_objects(root, path, born, wait)

    async def remove_objects(self, root: str, path: str) -> None:
        """Delete the objects of a domain that was at `path`, behind the answer."""
        born = await self._owners.ask_any(BeginDeletion(root, path))
        await self._remove_objects(root, path, born, 0.0)

    async def _remove_objects(self, root: str, path: str, born: str, wait: float) -> None:
        owners = self._owners
        if not born:  # without a root group there is nothing, or what a sweep removes
            await owners.ask_all(Forget(root))
            return
        await owners.ask_any(BeginDeletion(root, path, decided=born))
        # With variables of its own: the deletion is no part of the request, whose deadline is not its.
        task = asyncio.get_running_loop().create_task(self._delete_objects(root, born), context=Variables())
        self._running.add(task)
        task.add_done_callback(lambda done: self._ended(root, done))
        if wait:
            await asyncio.wait({task}, timeout=wait)
            if task.done():
                task.result()

    async def close(self) -> None:
        """Wait for the deletions that run, but not for long: a data node resumes what is left."""
        if self._running:
            _, left = await asyncio.wait(self._running, timeout=LAST_SECONDS)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _delete_objects(self, root: str, born: str) -> None:
        async with self._places:
            await self._owners.ask_any(DeleteTree(root, born))
            await self._owners.ask_all(Forget(root))

    def _ended(self, root: str, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("The deletion of %s stopped and will be resumed: %s", root, task.exception())


async def check_root_stays(owners: Owners, domain: Domain, root: str) -> None:
    """Take a new domain back if its root group is being deleted, or was; `Conflict` then.

    To be called once the domain's record is stored: a deletion stores its note first and looks for domains afterwards.
    The note is looked for first: it goes only after the root group.
    """
    is_deleted = (await owners.ask_any(ListKeys(deletion_key(root), limit=1))).keys
    is_there = (await owners.ask_any(ListKeys(storage_key(root), limit=1))).keys
    if is_deleted or not is_there:
        [outcome] = await owners.change(DeleteObject(domain.path, domain.identity))
        if outcome.failure is not None and outcome.failure.kind not in MISSING_KINDS:
            raise outcome.failure.error()
        raise Conflict(f"The objects of {root} are being deleted, or were: {domain.path} cannot have them.")


async def require_kept(request: Request, domain: Domain) -> tuple[str, ...]:
    """Return other names by which the objects of `domain` stay in all quotas above it.

    `Forbidden` if there are none: a quota would count the objects no more. They may have another name anywhere, which
    `linked_domain` says or which is the first one, or one below each folder that has a quota. What is no name of the
    objects any more, as they or the first name are gone, may go.
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
    """Look, once the name of `domain` is deleted, for `names` that it relied on.

    If the objects have no other name, the deleted one is put back, and this is a `Conflict`; if another domain has its
    place, they are deleted.
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
    # A first name releases others before it goes, so perhaps after the record was read.
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
        f"{domain.path} stays: the other name of its objects was deleted at the same moment. Delete it without "
        "keep_root to delete the objects."
    )


async def _name_below(request: Request, domain: Domain, limits: FolderLimits, folder: str) -> str:
    async for page in limits.domains_below(folder):
        same = [name for name in page if name.root == domain.root]
        if opening := await _those_opening(request, domain, same):
            return opening[0]
    raise Forbidden(
        f"{domain.path} is the only name of its objects below {folder}, which has a quota: only an admin "
        "can keep them without it. Name another domain that has them by linked_domain."
    )


async def _opening(request: Request, domain: Domain, paths: Iterable[str]) -> list[str]:
    """Return those of `paths` whose domains open the objects of `domain` when that is deleted."""
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
    """Say whether `other` opens the objects of a domain that the user deletes, once that is done."""
    if other.path == deleted.path or other.root != deleted.root or "deleted" in other.record:
        return False
    if other.first is None or other.first.path != deleted.path:
        return other.first is None or other.first.root is not None
    return other.first.root is not None and (deleted.record.get(SECOND_NAMES) or {}).get(other.path) == user
