"""Access control lists: the rights in a domain, the principals that request them, and the rule that grants them.

A domain's ACLs are stored in its record as `{name: {right: bool}}`. `name` is a user's name, `default`, or `g:`
followed by a group's name. A right that is missing, or whose value is not true, is denied. An entry may also have the
key `domain`, which says where the entry was set.
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
"""The key whose value is the bucket and domain in which an entry was set; entries made at creation lack it."""


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
    """An authenticated user or the anonymous principal. An admin has every right in every domain."""

    name: str
    admin: bool = False
    groups: frozenset[str] = frozenset()

    @property
    def anonymous(self) -> bool:
        return self.name == ANONYMOUS_NAME


ANONYMOUS = Principal(ANONYMOUS_NAME)


def is_granted(acls: Mapping[str, Any], principal: Principal, right: Right) -> bool:
    """Return whether a domain's `acls` give `right` to `principal`; callers check `principal.admin` themselves.

    The user's own entry decides if it exists. Otherwise the right is granted if an entry of one of the user's groups or
    the entry `default` grants it. The anonymous principal has the rights of `default`; an entry `anonymous` decides
    only whether that principal may read.
    """
    if principal.name in acls and (right is Right.READ or not principal.anonymous):
        return _grants(acls[principal.name], right)
    groups = () if principal.anonymous else principal.groups
    if any(_grants(acls.get(GROUP_PREFIX + group), right) for group in groups):
        return True
    return _grants(acls.get(DEFAULT), right)


def deciding_entries(acls: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
    """Return a dict that maps each name that `is_granted` looks up to its ACL entry or None; `{}` for an admin."""
    if principal.admin:
        return {}
    names = [principal.name, DEFAULT]
    if not principal.anonymous:
        groups = (GROUP_PREFIX + group for group in principal.groups)
        names = [principal.name] if principal.name in acls else [principal.name, *groups, DEFAULT]
    return {name: acls.get(name) for name in names}


def full_rights() -> dict[str, bool]:
    """Return a new entry that grants every right."""
    return {right.value: True for right in Right}


def grants_any(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry grants at least one right."""
    return any(_grants(entry, right) for right in Right)


def check_rights(body: Mapping[str, Any]) -> dict[str, bool]:
    """Return a new ACL entry with the rights that a client sent; rights missing from `body` stay missing.

    Raises `BadRequest` if a key is not a right or a value is not a boolean.
    """
    names = [right.value for right in Right]
    for key, value in body.items():
        if key not in names:
            raise BadRequest(f"{short_repr(key)} is not a right; the rights are {', '.join(names)}.")
        if not isinstance(value, bool):
            raise BadRequest(f"The right {key} must be true or false, not {short_repr(value)}.")
    return dict(body)


def _grants(entry: Any, right: Right) -> bool:
    # Stored entries may come from another server: only the value true under the right's key grants it.
    return isinstance(entry, Mapping) and entry.get(right.value) is True


def folder_acls(owner: str) -> dict[str, dict[str, bool]]:
    """Return the ACLs of a new folder: the owner has all rights, everybody may read."""
    return {owner: full_rights(), **readable()}


def place_acls() -> dict[str, dict[str, bool]]:
    """Return the ACLs of a new folder of served HDF5 files: authenticated users may read, anonymous ones may not."""
    return {**readable(), ANONYMOUS_NAME: {right.value: False for right in Right}}


def readable() -> dict[str, dict[str, bool]]:
    """Return ACLs with one entry, `default`, that grants only the right to read."""
    return {DEFAULT: {right.value: right is Right.READ for right in Right}}
