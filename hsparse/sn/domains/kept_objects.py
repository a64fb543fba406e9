"""The objects of a domain whose name is deleted alone (`keep_root`): where a quota counts them, they keep a name.

Two deletions at the same moment can each rely on the name that the other one deletes. So each looks again afterwards,
and puts its name back where the objects are left without one.
"""

from __future__ import annotations

from collections.abc import Iterable

from hsparse.errors import MISSING_KINDS, UNREADABLE_KINDS, Conflict, Forbidden
from hsparse.sn.domains.domain_deletion import DomainDeletions, check_root_stays
from hsparse.sn.quotas.folder_count import names_below
from hsparse.sn.quotas.quotas import Quotas
from hsparse.sn.records.domain_path import normal_path
from hsparse.sn.records.second_names import FIRST_NAME, SECOND_NAMES, with_first_names
from hsparse.sn.request import Domain, Request
from hsparse.wire.record_message import CreateObject


async def require_kept(request: Request, domain: Domain) -> tuple[str, ...]:
    """Return other names by which the objects of `domain` stay in all quotas above it.

    `Forbidden` if there are none: a quota would count the objects no more. They may have another name anywhere, which
    `linked_domain` says or which is the first one, or one below each folder that has a quota. What is no name of the
    objects any more, as they or the first name are gone, may go.
    """
    service, other = request.service, request.arg("linked_domain")
    limited = await service.component(Quotas).limited(domain.path)
    if (
        not limited
        or domain.root is None
        or "deleted" in domain.record
        or await _opens_nothing(request, domain)
    ):
        return ()
    said = set() if other is None else {normal_path(service, other)}
    said |= set() if domain.first is None else {domain.first.path}
    if opening := await _opening(request, domain, said):
        return (opening[0],)
    below = [await _name_below(request, domain, usage.folder) for usage, _ in limited]
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


async def _name_below(request: Request, domain: Domain, folder: str) -> str:
    async for page in names_below(request.service.owners, folder):
        same = [Domain(name.path, name.record) for name in page if name.root == domain.root]
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
