"""Second names: domains with the objects of another domain (`linked_domain`), whose rights count too.

The record of a second name has `firstName`: the `path` of the domain that had the objects first, and when that was
`created`. The first name's record has `secondNames`: who gave each of them, by path, until it is deleted. A second name
opens nothing that the first does not. When the first name goes and the objects stay, as at the end of a move, the
second names that the same user gave are names of their own, and the others open nothing any more. They are `released`
before it goes, which says so of a time when it is not there, and forget it afterwards: a crash between opens nothing
too early, and loses nobody the objects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hsparse.errors import MISSING_KINDS, ErrorKind, HsparseError
from hsparse.model.acl import Principal, Right
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.request import Domain
from hsparse.wire.message import Record
from hsparse.wire.record_message import AddSecondName, DeleteObject, ForgetFirstName, ForgetSecondName

FIRST_NAME, SECOND_NAMES = "firstName", "secondNames"


@dataclass(frozen=True, slots=True)
class DomainNames:
    """The names of a domain's objects: `path`, and `others` that the objects of `root` were given."""

    path: str
    others: tuple[str, ...] = ()
    root: str | None = None


class FolderLimits(Protocol):
    """How much may be below folders, if an extension limits that.

    The checks raise `OverQuota` or `Busy` if a new domain or folder, or the objects of `root`, which `first` has, find
    no room above a path. `domains_below` may leave out what is deleted meanwhile.
    """

    async def check_new(self, path: str, principal: Principal) -> None: ...

    async def check_second_name(self, path: str, principal: Principal, first: str, root: str) -> None: ...

    async def limited_folders(self, path: str) -> list[str]: ...

    def domains_below(self, folder: str) -> AsyncIterator[list[Domain]]: ...


async def with_first_names(
    owners: Owners, domains: Sequence[Domain], passed: Sequence[ErrorKind] = MISSING_KINDS
) -> list[Domain]:
    """Return domains with the first names of those that are second names.

    A first name that is not there any more, or fails in a way that is `passed`, is a domain without a record: nobody
    but an admin has a right there. It counts no more if it is not there and has released the second name.
    """
    found = list(domains)
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


def first_name(domain: Domain) -> Domain:
    """Return the domain whose rights count for a new name of the same objects."""
    return domain if domain.first is None or domain.first.root is None else domain.first


def names_of(domain: Domain) -> DomainNames:
    """Return the names that the domain's objects were given; others may have been deleted since."""
    first = first_name(domain)
    names = (first.path, *(first.record.get(SECOND_NAMES) or {}))
    return DomainNames(domain.path, tuple(path for path in names if path != domain.path), domain.root)


def named_after(first: Domain) -> Record:
    """Return what the record of a second name has of the first one."""
    return {FIRST_NAME: {"path": first.path, "created": first.record.get("created")}}


async def note_second_name(owners: Owners, first: Domain, second: Domain, principal: Principal) -> None:
    """Note that the principal has given a second name; take that back if it cannot be noted.

    The name is there already: the note of who has given it is not replaced by that of who tried to. `TooLarge` if the
    first one has `MAX_SECOND_NAMES`.
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
    """Remove the note of a second name that is deleted, but not of one that was given at its path since."""
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
    """Remove the notes of second names that are not there any more, as a deletion that was cut short leaves them."""
    names = (await owners.record(first)).get(SECOND_NAMES) or {}
    outcomes = zip(names, await owners.read(*names), strict=True)
    gone = [path for path, one in outcomes if one.failure is not None and one.failure.kind in MISSING_KINDS]
    if gone:
        await owners.change(*(ForgetSecondName(first, path) for path in gone))


def given_names(first: Domain, principal: Principal) -> list[str]:
    """Return the paths of the second names that the principal gave."""
    given: Iterable[tuple[str, str]] = (first.record.get(SECOND_NAMES) or {}).items()
    return [path for path, by in given if by == principal.name]


async def forget_first_name(owners: Owners, first: Domain, names: Iterable[str], *, release: bool) -> None:
    """Make second names of a domain names of their own; with `release`, as soon as it is gone."""
    created = first.record.get("created")
    changes = (ForgetFirstName(path, first.path, created, release) for path in names)
    for outcome in await owners.change(*changes):
        if outcome.failure is not None and outcome.failure.kind not in MISSING_KINDS:
            raise outcome.failure.error()


async def may_delete_objects(owners: Owners, domain: Domain, principal: Principal) -> bool:
    """Say whether a principal who may delete this name of a domain may delete the objects with it.

    Names from before `firstName` was noted are compared with the one that the root group was created for.
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
