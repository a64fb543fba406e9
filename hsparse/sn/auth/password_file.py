"""The password file: who may sign in, one line a user.

    name:argon2-hash:role:group,group

- `name`: 1 to 128 ASCII letters, digits, `.`, `_`, `-`, `@`; not `default` or `anonymous`, which ACLs use
  for others, and not `.` or `..`, which cannot be the name of a home folder;
- `argon2-hash`: argon2id's encoded form, which has no colon;
- `role`: `admin` (every right in every domain) or `user`;
- groups: names as above, comma-separated, or nothing.

Empty lines, and lines that begin with `#`, are kept and mean nothing. The text is UTF-8.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from hsparse.errors import BadRequest, Conflict, Misconfigured, NotFound
from hsparse.model.acl import DEFAULT
from hsparse.model.principal import ANONYMOUS_NAME, Principal
from hsparse.sn.auth.password_hash import is_encoded

log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9._@-]{1,128}", re.ASCII)
RESERVED = frozenset({DEFAULT, ANONYMOUS_NAME, ".", ".."})
ROLES = {"admin": True, "user": False}

Signature: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class User:
    """A line of the file; `BadRequest` for a name, hash or group that could not be written to it."""

    name: str
    hash: str = field(repr=False)
    admin: bool = False
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not is_user_name(self.name):
            raise BadRequest(
                f"{self.name!r} cannot be a user's name: use 1 to 128 letters, digits, '.', '_', '-', '@', "
                f"and none of {', '.join(sorted(RESERVED))}."
            )
        if not is_encoded(self.hash):
            raise BadRequest(f"The hash of user {self.name} is not argon2id's; set the password again.")
        for group in self.groups:
            if NAME.fullmatch(group) is None:
                raise BadRequest(
                    f"{group!r} cannot be a group's name: use 1 to 128 letters, digits, '.', '_', '-', '@'."
                )

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


def is_user_name(name: str) -> bool:
    """Say whether a user can have this name."""
    return NAME.fullmatch(name) is not None and name not in RESERVED


class PasswordFile:
    """A password file, read when first used and again whenever it has changed on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._signature: Signature | None = None
        self._users: Mapping[str, User] = MappingProxyType({})

    def users(self) -> Mapping[str, User]:
        """Return all users by name, as the file is now; one `stat` when it has not changed.

        `Misconfigured` when there is no file, when it cannot be read, and for the first line that is wrong.
        """
        try:
            if self._signature is None or _signature(self.path.stat()) != self._signature:
                self._load()
        except FileNotFoundError as error:
            raise Misconfigured(
                f"There is no password file {self.path}; make one with 'hsparse user add'."
            ) from error
        except OSError as error:
            raise Misconfigured(
                f"The password file {self.path} cannot be read ({error.strerror}); "
                "make it readable by the user the server runs as."
            ) from error
        return self._users

    def put(self, user: User) -> bool:
        """Add a user, or replace the one of that name; True when there was one. Makes the file if need be.

        `Conflict` while another edit is under way, `Misconfigured` when the file is wrong or not writable.
        """
        replaced = False

        def change(lines: list[str]) -> None:
            nonlocal replaced
            places = [place for place, line in enumerate(lines) if _name(line) == user.name]
            replaced = bool(places)
            if places:
                lines[places[0]] = user.line
            else:
                lines.append(user.line)

        self._edit(change)
        return replaced

    def remove(self, name: str) -> None:
        """Remove a user; `NotFound` when there is none, else as `put`."""

        def change(lines: list[str]) -> None:
            places = [place for place, line in enumerate(lines) if _name(line) == name]
            if not places:
                raise NotFound(f"There is no user {name!r} in {self.path}; 'hsparse user list' shows all.")
            del lines[places[0]]

        self._edit(change)

    def _load(self) -> None:
        with self.path.open("rb") as file:
            # Of the open file, before it is read: a change from now on has another signature.
            status = os.fstat(file.fileno())
            data = file.read()
        self._users = MappingProxyType(self._parse(data))
        self._signature = _signature(status)
        if status.st_mode & 0o077:
            log.warning("The password file %s is open to others than its owner; chmod 600 it.", self.path)

    def _parse(self, data: bytes) -> dict[str, User]:
        users: dict[str, User] = {}
        for number, raw in enumerate(data.split(b"\n"), start=1):
            where = f"Line {number} of the password file {self.path}"
            try:
                line = raw.removesuffix(b"\r").decode()
            except UnicodeDecodeError:
                raise Misconfigured(f"{where} is not UTF-8; save the file as UTF-8.") from None
            if _name(line) is None:
                continue
            try:
                user = User.of_line(line)
            except BadRequest as error:
                raise Misconfigured(f"{where}: {error.message}") from error
            if user.name in users:
                raise Misconfigured(f"{where} names {user.name} a second time; remove one of the lines.")
            users[user.name] = user
        return users

    def _edit(self, change: Callable[[list[str]], None]) -> None:
        """Replace the file by one with `change` applied to its lines; it is whole at every moment.

        The new file is also the lock: whoever created it is the only one who edits.
        """
        path = self.path.resolve()
        fresh = path.with_name(path.name + ".new")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise Conflict(
                f"Another edit of {path} is under way; if there is none, remove {fresh} and try again."
            ) from error
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            with os.fdopen(descriptor, "wb") as file:
                lines = self._lines_of(path, file.fileno())
                change(lines)
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except BaseException as error:
            fresh.unlink()
            if isinstance(error, OSError):
                raise _unwritable(path, error) from error
            raise
        try:
            _sync_folder(path.parent)
        except OSError as error:
            raise _unwritable(path, error) from error

    def _lines_of(self, path: Path, successor: int) -> list[str]:
        """Return the file's lines, checked; give the open file `successor` the same owner."""
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                data = file.read()
        except FileNotFoundError:
            return []
        self._parse(data)
        # An edit by root must not lock out the user the server runs as.
        mine = os.fstat(successor)
        if (status.st_uid, status.st_gid) != (mine.st_uid, mine.st_gid):
            os.fchown(successor, status.st_uid, status.st_gid)
        return (
            [line.removesuffix("\r") for line in data.decode().removesuffix("\n").split("\n")] if data else []
        )


def _name(line: str) -> str | None:
    """Return the name a line begins with; None when the line is empty or a comment."""
    return None if not line.strip() or line.startswith("#") else line.partition(":")[0]


def _signature(status: os.stat_result) -> Signature:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _unwritable(path: Path, error: OSError) -> Misconfigured:
    return Misconfigured(
        f"The password file {path} cannot be written ({error.strerror}); run as its owner, "
        "in a folder that owner may write to."
    )


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
