"""The group file: who is in which group, one line a group, as HSDS has it.

    group: user user user

It adds to the groups that the password file, an API key or a token's claim names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from hsparse.errors import BadRequest
from hsparse.sn.auth.line_file import Kind, LineFile
from hsparse.sn.auth.user_name import check_group_name, check_user_name

NOBODY: frozenset[str] = frozenset()


def _read(line: str) -> tuple[str, frozenset[str]]:
    group, colon, users = line.partition(":")
    group = group.strip()
    if not colon:
        raise BadRequest("a group is written as group: user user.")
    check_group_name(group)
    for user in users.split():
        check_user_name(user)
    return group, frozenset(users.split())


KIND = Kind("group file", "write one line a group, group: user user", _read, private=False)


class GroupFile:
    """A group file, read when first used and again whenever it has changed on disk."""

    def __init__(self, path: Path) -> None:
        self._file = LineFile(path, KIND)
        self._seen: Mapping[str, frozenset[str]] | None = None
        self._groups: dict[str, frozenset[str]] = {}

    def check(self) -> None:
        """Raise `Misconfigured` when the file cannot be used."""
        self._file.entries()

    def groups_of(self, user: str) -> frozenset[str]:
        """Return the groups that a user is in; `Misconfigured` as `LineFile.served`."""
        members = self._file.served()
        if members is not self._seen:
            groups = defaultdict(set)
            for group, users in members.items():
                for one in users:
                    groups[one].add(group)
            self._groups = {one: frozenset(names) for one, names in groups.items()}
            self._seen = members
        return self._groups.get(user, NOBODY)
