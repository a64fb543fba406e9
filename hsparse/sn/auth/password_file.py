"""The password file: users and the hashes of their passwords, one line for each user.

    name:argon2-hash:role:group,group

- `name`: 1 to 128 ASCII letters, digits, `.`, `_`, `-`, `@`; not `default` or `anonymous`, which ACLs use
  for others, and not `.` or `..`, which cannot be the name of a home folder;
- `argon2-hash`: argon2id's encoded form, which has no colon; by default with RFC 9106's second recommended
  parameters (64 MiB, 3 passes);
- `role`: `admin` (every right in every domain) or `user`;
- groups: names as above, separated by commas, or nothing.
"""

from __future__ import annotations

import asyncio
import base64
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from hsparse.clock import Clock
from hsparse.compute import LONG, compute
from hsparse.errors import BadRequest, Conflict, Misconfigured, NotFound
from hsparse.model.acl import Principal
from hsparse.sn.auth.line_file import LineFile, LineFormat, is_blank
from hsparse.sn.auth.roles import check_group_name, check_user_name

ENCODED = re.compile(r"\$argon2id\$v=\d+\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+", re.ASCII)
ROLES = {"admin": True, "user": False}


class PasswordHash:
    """Makes and checks hashes in argon2's encoded form, `$argon2id$v=..$m=..,t=..,p=..$salt$hash`.

    At most `at_once` checks run at a time, because each takes the memory that its hash requires; more wait.
    """

    def __init__(self, hasher: PasswordHasher | None = None, at_once: int = 2) -> None:
        self._hasher = PasswordHasher() if hasher is None else hasher
        self._slots = asyncio.Semaphore(at_once)

    def hash(self, password: str) -> str:
        """Return a new salted hash; it takes tens of milliseconds, so never call it on an event loop.

        `BadRequest` for an empty password, and for one that HTTP authentication cannot carry.
        """
        if not password:
            raise BadRequest("The password is empty; give one.")
        if any(unicodedata.category(character) == "Cc" for character in password):
            raise BadRequest("The password has control characters, which HTTP authentication cannot carry.")
        return self._hasher.hash(_prepared(password))

    async def verify(self, encoded: str, password: str) -> bool:
        """Say whether `password` is the one `encoded` was made of; `Misconfigured` for an unusable hash."""
        async with self._slots:
            # argon2 releases the GIL, so that a thread leaves the event loop free.
            return await compute(LONG, self._verify, encoded, password)

    def dummy(self, clock: Clock) -> str:
        """Return a hash of an unknown password, which takes as long to check as any other."""
        hasher = self._hasher
        cost = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
        salt, digest = (
            base64.b64encode(clock.token(size)).decode().rstrip("=")
            for size in (hasher.salt_len, hasher.hash_len)
        )
        return f"$argon2id$v=19${cost}${salt}${digest}"

    def _verify(self, encoded: str, password: str) -> bool:
        try:
            return self._hasher.verify(encoded, _prepared(password))
        except VerifyMismatchError:
            return False
        except (VerificationError, InvalidHashError) as error:
            raise Misconfigured(
                f"A stored password hash cannot be checked ({error}); set that user's password again."
            ) from error


def is_encoded(text: str) -> bool:
    """Say whether `text` has the form of an argon2id hash."""
    return ENCODED.fullmatch(text) is not None


def _prepared(password: str) -> bytes:
    """Return the bytes that are hashed: UTF-8 of normalization form C (RFC 8265, section 4.2)."""
    try:
        return unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        # The cause would carry the password.
        raise BadRequest("The password is not valid Unicode; type it in UTF-8.") from None


@dataclass(frozen=True, slots=True)
class User:
    """A line of the file; `BadRequest` for a name, hash or group that it cannot hold."""

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
        """Parse a line; `BadRequest` names the error, without the hash."""
        fields = line.split(":")
        if len(fields) != 4:
            raise BadRequest(f"a user has 4 fields, name:hash:role:groups, not {len(fields)}.")
        name, encoded, role, groups = fields
        if role not in ROLES:
            raise BadRequest(f"the role of user {name} must be admin or user.")
        return cls(name, encoded, ROLES[role], tuple(groups.split(",")) if groups else ())


def _read_user(line: str) -> tuple[str, User]:
    user = User.of_line(line)
    return user.name, user


PASSWORD_LINES = LineFormat("password file", "make one with 'hsparse user add'", _read_user)


class PasswordFile:
    """A password file, read when first used and again whenever it has changed on disk."""

    def __init__(self, path: Path) -> None:
        self._file = LineFile(path, PASSWORD_LINES)

    @property
    def path(self) -> Path:
        return self._file.path

    def users(self) -> Mapping[str, User]:
        """Return all users of the current file, by name; `Misconfigured` as `LineFile.entries`."""
        return self._file.entries()

    def served(self) -> Mapping[str, User]:
        """Return the same to answer a request with, as `LineFile.served`."""
        return self._file.served()

    def put(self, user: User) -> bool:
        """Add a user, or replace the one of that name (True). Create the file if it does not exist.

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

    def add(self, user: User) -> None:
        """Add a user; `Conflict` if there is one of that name, else as `put`."""

        def change(lines: list[str]) -> None:
            if _places(lines, user.name):
                raise self._existing(user.name)
            lines.append(user.line)

        self._file.edit(change)

    def change(self, name: str, change: Callable[[User], User]) -> None:
        """Replace a user by the changed one; `NotFound` without one, else as `put`."""

        def replace(lines: list[str]) -> None:
            place = self._place(lines, name)
            lines[place] = change(User.of_line(lines[place])).line

        self._file.edit(replace)

    def remove(self, name: str) -> None:
        """Remove a user; `NotFound` without one, else as `put`."""

        def change(lines: list[str]) -> None:
            del lines[self._place(lines, name)]

        self._file.edit(change)

    def require(self, name: str) -> None:
        """Raise `NotFound` if there is no user of that name, `Misconfigured` without a file."""
        if name not in self.users():
            raise self._missing(name)

    def refuse_existing(self, name: str) -> None:
        """Raise `Conflict` if there is a user of that name, before a password is asked for."""
        if self.path.exists() and name in self.users():
            raise self._existing(name)

    def _place(self, lines: list[str], name: str) -> int:
        places = _places(lines, name)
        if not places:
            raise self._missing(name)
        return places[0]

    def _missing(self, name: str) -> NotFound:
        return NotFound(f"There is no user {name!r} in {self.path}; 'hsparse user list' shows all.")

    def _existing(self, name: str) -> Conflict:
        return Conflict(
            f"There is a user {name!r} in {self.path} already: change the password by 'hsparse user password {name}', "
            f"role and groups by 'hsparse user role {name}'."
        )


def _places(lines: list[str], name: str) -> list[int]:
    return [place for place, line in enumerate(lines) if not is_blank(line) and line.split(":")[0] == name]
