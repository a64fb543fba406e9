"""Second names: domains that share the objects of another domain (`linked_domain`), whose ACLs apply as well.

The record of a second name has `firstName`: the `path` and `created` time of the domain that had the objects first (the
first name). The first name's record has `secondNames`: a dict from the paths of its second names to the users who gave
them. A second name grants nothing that the first name does not grant.

When the first name is deleted and the objects stay, as at the end of a move, the second names given by the same user
become independent names, and all other second names lose access. Because the node can crash in between, the
`firstName` keys of the independent names are marked as `released` before the deletion, and removed after it. The mark
takes effect once the first name is missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hsparse.errors import MISSING_KINDS, ErrorKind, HsparseError
from hsparse.model.acl import Principal, Right
from hsparse.model.file_backed import PLACE
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.request import Domain
from hsparse.wire.message import Record
from hsparse.wire.record_message import AddSecondName, DeleteObject, ForgetFirstName, ForgetSecondName

FIRST_NAME, SECOND_NAMES = "firstName", "secondNames"
ELSEWHERE = frozenset({FIRST_NAME, PLACE})
"""The keys of a domain's record that say that the ACLs of another record apply to the domain."""


@dataclass(frozen=True, slots=True)
class DomainNames:
    """The names of the objects below `root`: the domain's `path`, and all `others` that were given to them."""

    path: str
    others: tuple[str, ...] = ()
    root: str | None = None


class FolderLimits(Protocol):
    """The limits on the size of folders (quotas), implemented by an extension.

    The checks raise `OverQuota` or `Busy` if a folder above `path` has no room for a new domain or folder, or for the
    objects of `root`, whose existing name is `first`. `domains_below` may omit domains that are deleted meanwhile.
    """

    async def check_new(self, path: str, principal: Principal) -> None: ...

    async def check_second_name(self, path: str, principal: Principal, first: str, root: str) -> None: ...

    async def limited_folders(self, path: str) -> list[str]: ...

    def domains_below(self, folder: str) -> AsyncIterator[list[Domain]]: ...


async def with_first_names(
    owners: Owners, domains: Sequence[Domain], passed: Sequence[ErrorKind] = MISSING_KINDS
) -> list[Domain]:
    """Return the domains completed by what determines rights: first names, and the ACLs of served files' folders.

    If a first name is missing or its read fails with an error kind in `passed`, `first` has an empty record, which
    grants rights to admins only. `first` stays None if the first name is missing and had released the second name.
    """
    found = await _in_places(owners, domains, passed)
    names = {at: domain.record[FIRST_NAME] for at, domain in enumerate(found) if FIRST_NAME in domain.record}
    if not names:
        return found
    outcomes = await owners.read(*(name["path"] for name in names.values()))
    for (at, name), outcome in zip(names.items(), outcomes, strict=True):
        if outcome.failure is not None and outcome.failure.kind not in passed:
            raise outcome.failure.error()
        record = {} if outcome.failure is not None else outcome.unwrap()
        same = record.get("root") == found[at].root and record.get("created") == name["created"]
        is_known = outcome.failure is None or outcome.failure.kind in MISSING_KINDS
        if same or not (is_known and name.get("released")):
            found[at] = replace(found[at], first=Domain(name["path"], record if same else {}))
    return found


async def _in_places(
    owners: Owners, domains: Sequence[Domain], passed: Collection[ErrorKind]
) -> list[Domain]:
    """Return the domains; domains of served files get the ACLs of the folder `PLACE`, or no ACLs if it is missing."""
    places = list(dict.fromkeys(domain.record[PLACE] for domain in domains if PLACE in domain.record))
    acls: dict[str, Record] = {}
    for place, outcome in zip(places, await owners.read(*places) if places else (), strict=True):
        if outcome.failure is not None and outcome.failure.kind not in passed:
            raise outcome.failure.error()
        acls[place] = {} if outcome.failure is not None else outcome.unwrap().get("acls") or {}
    return [
        replace(domain, record=domain.record | {"acls": acls[domain.record[PLACE]]})
        if PLACE in domain.record
        else domain
        for domain in domains
    ]


def first_name(domain: Domain) -> Domain:
    """Return the first name of the domain's objects: `domain` itself unless it has an existing first name."""
    return domain if domain.first is None or domain.first.root is None else domain.first


def names_of(domain: Domain) -> DomainNames:
    """Return all names of the domain's objects; some of `others` may have been deleted since they were given."""
    first = first_name(domain)
    names = (first.path, *(first.record.get(SECOND_NAMES) or {}))
    return DomainNames(domain.path, tuple(path for path in names if path != domain.path), domain.root)


def named_after(first: Domain) -> Record:
    """Return the `firstName` key for the record of a second name."""
    return {FIRST_NAME: {"path": first.path, "created": first.record.get("created")}}


async def note_second_name(owners: Owners, first: Domain, second: Domain, principal: Principal) -> None:
    """Note in the first name's record that `principal` gave the second name; on failure, delete the second name.

    Callers create the second name first, so that a failed creation keeps an existing note. May raise `TooLarge`.
    """
    note = AddSecondName(first.path, second.path, principal.name)
    try:
        outcome = (await owners.change(note))[0]
        if outcome.failure is not None and outcome.failure.kind == ErrorKind.TOO_LARGE:
            await _forget_deleted(owners, first.path)
            outcome = (await owners.change(note))[0]
        outcome.unwrap()
    except HsparseError:
        await owners.change(DeleteObject(second.path, second.identity))
        raise


async def forget_second_name(owners: Owners, domain: Domain) -> None:
    """Remove the note of a deleted second name, unless a new second name was given at its path since."""
    if domain.first is None or domain.first.root is None:
        return
    outcome = (await owners.change(ForgetSecondName(domain.first.path, domain.path)))[0]
    if outcome.failure is not None and outcome.failure.kind not in MISSING_KINDS:
        raise outcome.failure.error()
    [given] = await owners.read(domain.path)
    record = {} if given.failure is not None else given.unwrap()
    if (record.get(FIRST_NAME) or {}).get("path") == domain.first.path:
        await owners.change(AddSecondName(domain.first.path, domain.path, str(record.get("owner"))))


async def _forget_deleted(owners: Owners, first: str) -> None:
    """Remove the notes of second names that no longer exist, which interrupted deletions leave."""
    names = (await owners.record(first)).get(SECOND_NAMES) or {}
    outcomes = zip(names, await owners.read(*names), strict=True)
    gone = [path for path, one in outcomes if one.failure is not None and one.failure.kind in MISSING_KINDS]
    if gone:
        await owners.change(*(ForgetSecondName(first, path) for path in gone))


def given_names(first: Domain, principal: Principal) -> list[str]:
    """Return the paths of the second names of `first` that the principal gave."""
    given: Iterable[tuple[str, str]] = (first.record.get(SECOND_NAMES) or {}).items()
    return [path for path, by in given if by == principal.name]


async def forget_first_name(owners: Owners, first: Domain, names: Iterable[str], *, release: bool) -> None:
    """Make the second names `names` of `first` independent; with `release`, only mark these names as `released`."""
    created = first.record.get("created")
    changes = (ForgetFirstName(path, first.path, created, release) for path in names)
    for outcome in await owners.change(*changes):
        if outcome.failure is not None and outcome.failure.kind not in MISSING_KINDS:
            raise outcome.failure.error()


async def may_delete_objects(owners: Owners, domain: Domain, principal: Principal) -> bool:
    """Return whether a principal who may delete this name of a domain may also delete the objects.

    Second names of old versions have no `firstName`. Their first name is the path that the root group was created for.
    """
    if domain.root is None or domain.first is not None:
        return domain.first is None or (
            domain.first.root is not None and domain.first.allows(principal, Right.DELETE)
        )
    [root] = await owners.read(domain.root)
    made_for = None if root.failure is not None else root.unwrap().get("domain")
    if not isinstance(made_for, str) or made_for == domain.path or not made_for.startswith("/"):
        return True
    [first] = await owners.read(made_for)
    if first.failure is not None or first.unwrap().get("root") != domain.root:
        return True
    return Domain(made_for, first.unwrap()).allows(principal, Right.DELETE)
