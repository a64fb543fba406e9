"""The password file: users and the hashes of their passwords, one line for each user.

    name:argon2-hash:role:group,group

- `name`: 1 to 128 ASCII letters, digits, `.`, `_`, `-`, `@`; not `default` or `anonymous`, which have a meaning in
  ACLs, and not `.` or `..`, which cannot be the name of a home folder;
- `argon2-hash`: argon2id's encoded form, which has no colon, see `hsparse.sn.auth.password_hash`;
- `role`: `admin` (every right in every domain) or `user`;
- groups: names as above, separated by commas, or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hsparse.errors import BadRequest, Conflict, NotFound
from hsparse.model.acl import Principal
from hsparse.sn.auth.line_file import LineFile, LineFormat, is_blank
from hsparse.sn.auth.roles import check_group_name, check_user_name

ENCODED = re.compile(r"\$argon2id\$v=\d+\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+", re.ASCII)
ROLES = {"admin": True, "user": False}


def is_encoded(text: str) -> bool:
    """Return whether `text` has the form of an argon2id hash."""
    return ENCODED.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class User:
    """A user in the file; the constructor raises `BadRequest` for an invalid name, hash or group."""

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
        """The user's line in the file, without the line end."""
        role = "admin" if self.admin else "user"
        return f"{self.name}:{self.hash}:{role}:{','.join(self.groups)}"

    @property
    def principal(self) -> Principal:
        return Principal(self.name, admin=self.admin, groups=frozenset(self.groups))

    @classmethod
    def of_line(cls, line: str) -> User:
        """Parse a line; if it is invalid, raise `BadRequest` with a message that does not contain the hash."""
        fields = line.split(":")
        if len(fields) != 4:
            raise BadRequest(f"a user has 4 fields, name:hash:role:groups, not {len(fields)}.")
        name, encoded, role, groups = fields
        if role not in ROLES:
            raise BadRequest(f"the role of user {name} must be admin or user.")
        return cls(name, encoded, ROLES[role], tuple(groups.split(",")) if groups else ())


def read_hsds_users(path: Path) -> dict[str, str]:
    """Return a dict that maps each user in a password file of HSDS (lines `name:password`) to the password.

    Raises `BadRequest` for the first invalid line, with a message that does not contain the line.
    """
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"The file {path} cannot be read as text; give HSDS's passwd.txt.") from error
    users: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if is_blank(line):
            continue
        name, colon, rest = line.partition(":")
        password = rest.partition(":")[0]  # as HSDS, which ignores what follows a second colon
        if not colon or not password or ENCODED.match(password):
            raise BadRequest(
                f"Line {number} of {path} is not name:password: correct the line. No user was added."
            )
        try:
            check_user_name(name)
        except BadRequest as error:
            raise BadRequest(f"Line {number} of {path}: {error.message} No user was added.") from error
        if name in users:
            raise BadRequest(f"Line {number} of {path} names {name} a second time; no user was added.")
        users[name] = password
    return users


def _read_user(line: str) -> tuple[str, User]:
    user = User.of_line(line)
    return user.name, user


PASSWORD_LINES = LineFormat("password file", "make one with 'hsparse user add'", _read_user)


class PasswordFile(LineFile[User]):
    """A password file; its entries are the users by name."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, PASSWORD_LINES)

    def put(self, user: User) -> bool:
        """Add `user`, or replace the user of this name; return whether a user was replaced. Create a missing file.

        Raises as `LineFile.edit` does.
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

        self.edit(change)
        return replaced

    def add(self, *users: User) -> None:
        """Add all users. If one of the names exists, raise `Conflict` and add no user; other errors as `put`."""

        def change(lines: list[str]) -> None:
            for user in users:
                if _places(lines, user.name):
                    raise self._existing(user.name)
                lines.append(user.line)

        self.edit(change)

    def change(self, name: str, change: Callable[[User], User]) -> None:
        """Replace the user `name` by `change(user)`; raise `NotFound` if there is no such user, else as `put`."""

        def replace(lines: list[str]) -> None:
            place = self._place(lines, name)
            lines[place] = change(User.of_line(lines[place])).line

        self.edit(replace)

    def remove(self, name: str) -> None:
        """Remove the user `name`; raise `NotFound` if there is no such user; other errors as `put`."""

        def change(lines: list[str]) -> None:
            del lines[self._place(lines, name)]

        self.edit(change)

    def require(self, name: str) -> None:
        """Raise `NotFound` if there is no user of this name, and `Misconfigured` if there is no file."""
        if name not in self.entries():
            raise self._missing(name)

    def refuse_existing(self, name: str) -> None:
        """Raise `Conflict` if there is a user of this name; commands check this before they ask for a password."""
        if self.path.exists() and name in self.entries():
            raise self._existing(name)

    def _place(self, lines: list[str], name: str) -> int:
        places = _places(lines, name)
        if not places:
            raise self._missing(name)
        return places[0]

    def _missing(self, name: str) -> NotFound:
        return NotFound(f"There is no user {name!r} in {self.path}; 'hsparse user list' lists all users.")

    def _existing(self, name: str) -> Conflict:
        return Conflict(
            f"There is a user {name!r} in {self.path} already: 'hsparse user password {name}' changes the password, "
            f"'hsparse user role {name}' the role and groups."
        )


def _places(lines: list[str], name: str) -> list[int]:
    return [place for place, line in enumerate(lines) if not is_blank(line) and line.split(":")[0] == name]
