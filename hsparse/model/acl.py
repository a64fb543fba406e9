"""Access control lists: the rights of a domain, the principals who ask, and who is allowed what.

A domain's ACLs are stored in its record as `{who: {right: bool}}`, where `who` is a user's name, `default`
or `g:` and a group's name. A right that is not named, or whose value is not true, is not given. Beside the rights an
entry may have `domain`, where it was set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hsparse.errors import BadRequest
from hsparse.model.short_text import short_repr

DEFAULT = "default"
GROUP_PREFIX = "g:"
ORIGIN = "domain"
"""The key of an entry that says in which bucket and domain it was set; entries made at creation have none."""


class Right(StrEnum):
    """A right, by its key in an ACL."""

    CREATE = "create"
    READ = "read"
    UPDATE = "update"
    DELETE = "delete"
    READ_ACL = "readACL"
    UPDATE_ACL = "updateACL"


ANONYMOUS_NAME = "anonymous"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated user, or the anonymous one; an admin has every right in every domain."""

    name: str
    admin: bool = False
    groups: frozenset[str] = frozenset()

    @property
    def anonymous(self) -> bool:
        return self.name == ANONYMOUS_NAME


ANONYMOUS = Principal(ANONYMOUS_NAME)


def is_granted(acls: Mapping[str, Any], principal: Principal, right: Right) -> bool:
    """Say whether `acls` of a domain give `right` to `principal`; an admin needs no entry.

    The user's own entry decides, if there is one, granting or not; else
    any entry of one of the user's groups that grants; else `default`. The anonymous principal has only
    what `default` grants.
    """
    if not principal.anonymous:
        if principal.name in acls:
            return _grants(acls[principal.name], right)
        if any(_grants(acls.get(GROUP_PREFIX + group), right) for group in principal.groups):
            return True
    return _grants(acls.get(DEFAULT), right)


def deciding_entries(acls: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
    """Return the entries by which `is_granted` decides, None for those that are missing; an admin needs none."""
    if principal.admin:
        return {}
    names = [DEFAULT]
    if not principal.anonymous:
        groups = (GROUP_PREFIX + group for group in principal.groups)
        names = [principal.name] if principal.name in acls else [principal.name, *groups, DEFAULT]
    return {name: acls.get(name) for name in names}


def full_rights() -> dict[str, bool]:
    """Return a new entry that grants every right."""
    return {right.value: True for right in Right}


def grants_any(entry: Mapping[str, Any]) -> bool:
    """Say whether an entry gives a right."""
    return any(_grants(entry, right) for right in Right)


def check_rights(body: Mapping[str, Any]) -> dict[str, bool]:
    """Return the rights a client sent as an entry of its own; those it left out stay out.

    `BadRequest` for a key that is no right, and for a value that is no boolean.
    """
    names = [right.value for right in Right]
    for key, value in body.items():
        if key not in names:
            raise BadRequest(f"{short_repr(key)} is not a right; the rights are {', '.join(names)}.")
        if not isinstance(value, bool):
            raise BadRequest(f"The right {key} must be true or false, not {short_repr(value)}.")
    return dict(body)


def _grants(entry: Any, right: Right) -> bool:
    # Stored entries may come from another server: anything but a true value of the right key denies.
    return isinstance(entry, Mapping) and entry.get(right.value) is True


def folder_acls(owner: str) -> dict[str, dict[str, bool]]:
    """Return the ACLs of a new folder: all rights for the owner, the right to read for all."""
    return {owner: full_rights(), **readable()}


def readable() -> dict[str, dict[str, bool]]:
    """Return the entry that lets all read."""
    return {DEFAULT: {right.value: right is Right.READ for right in Right}}
