"""Groups and roles: names of users and groups, the group file, and the admins.

The group file has one line for each group, like HSDS's:

    group: user user user

A user's groups are those of this file, and those that the password file, an API key or a token's claim names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hsparse.errors import BadRequest
from hsparse.model.acl import ANONYMOUS_NAME, DEFAULT, GROUP_PREFIX, Principal
from hsparse.sn.auth.line_file import LineFile, LineFormat

NAME = re.compile(r"[A-Za-z0-9._@-]{1,128}", re.ASCII)
RESERVED = frozenset({DEFAULT, ANONYMOUS_NAME, ".", ".."})
"""Names that have a meaning in ACLs, and names that a home folder cannot have."""
NO_GROUPS: frozenset[str] = frozenset()


def is_user_name(name: str) -> bool:
    """Return whether a user can have this name."""
    return NAME.fullmatch(name) is not None and name not in RESERVED


def check_user_name(name: str) -> None:
    """Raise `BadRequest` if a user cannot have this name."""
    if not is_user_name(name):
        raise BadRequest(
            f"{name!r} cannot be a user's name: use 1 to 128 letters, digits, '.', '_', '-', '@', "
            f"and none of {', '.join(sorted(RESERVED))}."
        )


def check_group_name(name: str) -> None:
    """Raise `BadRequest` if a group cannot have this name."""
    if NAME.fullmatch(name) is None:
        raise BadRequest(
            f"{name!r} cannot be a group's name: use 1 to 128 letters, digits, '.', '_', '-', '@'."
        )


def _read_group(line: str) -> tuple[str, frozenset[str]]:
    group, colon, users = line.partition(":")
    group = group.strip()
    if not colon:
        raise BadRequest("a group is written as group: user user.")
    check_group_name(group)
    for user in users.split():
        check_user_name(user)
    return group, frozenset(users.split())


GROUP_LINES = LineFormat("group file", "write one line a group, group: user user", _read_group, private=False)


class GroupFile(LineFile[frozenset[str]]):
    """A group file; its entries map each group to the set of its members."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, GROUP_LINES)
        self._seen: Mapping[str, frozenset[str]] | None = None
        self._groups: dict[str, frozenset[str]] = {}

    def users(self) -> frozenset[str]:
        """Return the names of the users that are in any group; raises as `LineFile.served` does."""
        return NO_GROUPS.union(*self.served().values())

    def groups_of(self, user: str) -> frozenset[str]:
        """Return the names of the groups that a user is in; raises as `LineFile.served` does."""
        members = self.served()
        if members is not self._seen:
            groups = defaultdict(set)
            for group, users in members.items():
                for one in users:
                    groups[one].add(group)
            self._groups = {one: frozenset(names) for one, names in groups.items()}
            self._seen = members
        return self._groups.get(user, NO_GROUPS)


class Roles:
    """The groups from the group file and the admins from the settings: names of users, and of groups as `g:name`."""

    def __init__(self, groups: GroupFile | None = None, admins: tuple[str, ...] = ()) -> None:
        self._groups = groups
        self._admins = frozenset(one for one in admins if not one.startswith(GROUP_PREFIX))
        self._admin_groups = frozenset(
            one.removeprefix(GROUP_PREFIX) for one in admins if one.startswith(GROUP_PREFIX)
        )

    def users(self) -> frozenset[str]:
        """Return the names of users in the group file and in the settings; raises as `GroupFile.users` does."""
        return self._admins if self._groups is None else self._admins | self._groups.users()

    def of(self, principal: Principal) -> Principal:
        """Return the principal with all its groups. It is an admin if the settings list it or one of its groups."""
        groups = principal.groups
        if self._groups is not None:
            groups |= self._groups.groups_of(principal.name)
        admin = principal.admin or principal.name in self._admins or bool(groups & self._admin_groups)
        if admin == principal.admin and groups == principal.groups:
            return principal
        return replace(principal, admin=admin, groups=groups)
