"""The password file: who may sign in, one line a user.

    name:argon2-hash:role:group,group

- `name`: 1 to 128 ASCII letters, digits, `.`, `_`, `-`, `@`; not `default` or `anonymous`, which ACLs use
  for others, and not `.` or `..`, which cannot be the name of a home folder;
- `argon2-hash`: argon2id's encoded form, which has no colon;
- `role`: `admin` (every right in every domain) or `user`;
- groups: names as above, comma-separated, or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hsparse.errors import BadRequest, NotFound
from hsparse.model.principal import Principal
from hsparse.sn.auth.line_file import Kind, LineFile, is_blank
from hsparse.sn.auth.password_hash import is_encoded
from hsparse.sn.auth.user_name import check_group_name, check_user_name

ROLES = {"admin": True, "user": False}


@dataclass(frozen=True, slots=True)
class User:
    """A line of the file; `BadRequest` for a name, hash or group that could not be written to it."""

    name: str
    hash: str = field(repr=False)
    admin: bool = False
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_user_name(self.name)
        if not is_encoded(self.hash):
            raise BadRequest(f"The hash of user {self.name} is not argon2id's; set the password again.")
        for group in self.groups:
            check_group_name(group)

    @property
    def line(self) -> str:
        """The user as a line, without its end."""
        role = "admin" if self.admin else "user"
        return f"{self.name}:{self.hash}:{role}:{','.join(self.groups)}"

    @property
    def principal(self) -> Principal:
        return Principal(self.name, admin=self.admin, groups=frozenset(self.groups))

    @classmethod
    def of_line(cls, line: str) -> User:
        """Read a line; `BadRequest` says what is wrong with it, without its hash."""
        fields = line.split(":")
        if len(fields) != 4:
            raise BadRequest(f"a user has 4 fields, name:hash:role:groups, not {len(fields)}.")
        name, encoded, role, groups = fields
        if role not in ROLES:
            raise BadRequest(f"the role of user {name} must be admin or user.")
        return cls(name, encoded, ROLES[role], tuple(groups.split(",")) if groups else ())


def _read(line: str) -> tuple[str, User]:
    user = User.of_line(line)
    return user.name, user


KIND = Kind("password file", "make one with 'hsparse user add'", _read)


class PasswordFile:
    """A password file, read when first used and again whenever it has changed on disk."""

    def __init__(self, path: Path) -> None:
        self._file = LineFile(path, KIND)

    @property
    def path(self) -> Path:
        return self._file.path

    def users(self) -> Mapping[str, User]:
        """Return all users by name, as the file is now; `Misconfigured` as `LineFile.entries`."""
        return self._file.entries()

    def served(self) -> Mapping[str, User]:
        """Return the same to answer a request with, as `LineFile.served`."""
        return self._file.served()

    def put(self, user: User) -> bool:
        """Add a user, or replace the one of that name; True when there was one. Makes the file if need be.

        `Conflict` and `Misconfigured` as `LineFile.edit`.
        """
        replaced = False

        def change(lines: list[str]) -> None:
            nonlocal replaced
            places = _places(lines, user.name)
            replaced = bool(places)
            if places:
                lines[places[0]] = user.line
            else:
                lines.append(user.line)

        self._file.edit(change)
        return replaced

    def remove(self, name: str) -> None:
        """Remove a user; `NotFound` when there is none, else as `put`."""

        def change(lines: list[str]) -> None:
            places = _places(lines, name)
            if not places:
                raise NotFound(f"There is no user {name!r} in {self.path}; 'hsparse user list' shows all.")
            del lines[places[0]]

        self._file.edit(change)


def _places(lines: list[str], name: str) -> list[int]:
    return [place for place, line in enumerate(lines) if not is_blank(line) and line.split(":")[0] == name]
