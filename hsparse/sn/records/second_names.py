"""Second names: domains with the objects of another domain (`linked_domain`), whose rights count too.

The record of a second name has `firstName`: the `path` of the domain that had the objects first, and when that was
`created`. The first name's record has `secondNames`: who gave each of them, by path. A second name opens nothing that
the first does not. When the first name goes and the objects stay, as at the end of a move, the second names that the
same user gave are names of their own, and the others open nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hsparse.errors import MISSING_KINDS, HsparseError
from hsparse.model.acl import Principal, Right, is_allowed
from hsparse.sn.context import Domain
from hsparse.sn.data_nodes.owners import Owners
from hsparse.wire.message import Record
from hsparse.wire.record_message import AddSecondName, DeleteObject, ForgetFirstName

FIRST_NAME, SECOND_NAMES = "firstName", "secondNames"


async def with_first_names(owners: Owners, domains: Sequence[Domain]) -> list[Domain]:
    """Return domains with the first names of those that are second names.

    A first name that is not there any more is a domain without a record: nobody but an admin has a right there.
    """
    found = list(domains)
    names = {at: domain.record[FIRST_NAME] for at, domain in enumerate(found) if FIRST_NAME in domain.record}
    if not names:
        return found
    outcomes = await owners.read(*(name["path"] for name in names.values()))
    for (at, name), outcome in zip(names.items(), outcomes, strict=True):
        if outcome.failure is not None and outcome.failure.kind not in MISSING_KINDS:
            raise outcome.failure.error()
        record = {} if outcome.failure is not None else outcome.unwrap()
        same = record.get("root") == found[at].root and record.get("created") == name["created"]
        found[at] = replace(found[at], first=Domain(name["path"], record if same else {}))
    return found


def first_name(domain: Domain) -> Domain:
    """Return the domain whose rights count for a new name of the same objects."""
    return domain if domain.first is None or domain.first.root is None else domain.first


def other_names(domain: Domain) -> tuple[str, ...]:
    """Return the paths of the other names that the domain's objects were given; some may have been deleted since."""
    first = first_name(domain)
    names = (first.path, *(first.record.get(SECOND_NAMES) or {}))
    return tuple(path for path in names if path != domain.path)


def named_after(first: Domain) -> Record:
    """Return what the record of a second name has of the first one."""
    return {FIRST_NAME: {"path": first.path, "created": first.record.get("created")}}


async def note_second_name(owners: Owners, first: Domain, second: Domain, principal: Principal) -> None:
    """Note that the principal has given a second name; take that back if it cannot be noted.

    The name is there already: the note of who has given it is not replaced by that of who tried to.
    """
    try:
        await owners.apply(AddSecondName(first.path, second.path, principal.name))
    except HsparseError:
        await owners.change(DeleteObject(second.path, second.identity))
        raise


async def release_second_names(owners: Owners, first: Domain, principal: Principal) -> None:
    """Make the second names that the principal gave names of their own, before the first one goes."""
    given: Iterable[tuple[str, str]] = (first.record.get(SECOND_NAMES) or {}).items()
    created = first.record.get("created")
    mine = [path for path, by in given if by == principal.name]
    for outcome in await owners.change(*(ForgetFirstName(path, first.path, created) for path in mine)):
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
    return is_allowed(first.unwrap().get("acls") or {}, principal, Right.DELETE)
