"""API keys: secrets that let programs act as a user until the key expires or is revoked.

A key is `hsk_`, a public id of 12 hex digits (48 bits), `_`, and a secret of 64 hex digits (256 bits). The key file
stores the SHA-256 of the whole key. Keys need no slow hash as passwords do, because the secret cannot be guessed.

The key file has one line for each key:

    id:sha256:user:role:group,group:created:expires:name
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from hsparse.api import (
    NAME,
    BadRequest,
    Clock,
    Conflict,
    LineFile,
    LineFormat,
    NotFound,
    Parts,
    PasswordFile,
    Principal,
    Settings,
    Unauthenticated,
    check_group_name,
    check_user_name,
    is_blank,
)
from hsparse.api_keys.settings import KeySettings

PREFIX = "hsk_"
TEXT = re.compile(rf"{PREFIX}([0-9a-f]{{12}})_[0-9a-f]{{64}}", re.ASCII)
ID = re.compile(r"[0-9a-f]{12}", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
TIME = "%Y%m%dT%H%M%SZ"
NEVER = "never"
UNKNOWN = "The API key is not in the key file of this server: ask for a new key if the key was revoked."


class Role(StrEnum):
    """The source of a key's rights."""

    ACCOUNT = "account"
    """The rights of its user in the current password file; no rights once the user is removed."""
    USER = "user"
    """The rights of its user, as a member of the key's groups."""
    ADMIN = "admin"
    """All rights."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A line of a key file; times are in seconds since the Unix epoch, and `expires` is None if the key never expires.

    Raises `BadRequest` for values that a key file cannot hold.
    """

    id: str
    digest: str = field(repr=False)
    user: str
    role: Role
    groups: tuple[str, ...]
    created: int
    expires: int | None
    name: str

    def __post_init__(self) -> None:
        if ID.fullmatch(self.id) is None or DIGEST.fullmatch(self.digest) is None:
            raise BadRequest("the id of a key must have 12 hex digits, and the digest 64 hex digits.")
        check_user_name(self.user)
        for group in self.groups:
            check_group_name(group)
        if NAME.fullmatch(self.name) is None or ID.fullmatch(self.name) is not None:
            raise BadRequest(
                f"{self.name!r} cannot be the name of a key: use 1 to 128 letters, digits, '.', '_', '-' or '@', "
                "but not 12 hex digits, which are an id."
            )

    @property
    def line(self) -> str:
        """The key as a line of a key file, without its line end."""
        times = (written_time(self.created), written_time(self.expires))
        return ":".join(
            (self.id, self.digest, self.user, self.role, ",".join(self.groups), *times, self.name)
        )

    @classmethod
    def of_line(cls, line: str) -> ApiKey:
        """Parse a line of a key file; an invalid line raises `BadRequest`, with a message that omits the digest."""
        fields = line.split(":")
        if len(fields) != 8:
            raise BadRequest(
                f"a line must have the 8 fields id:digest:user:role:groups:created:expires:name, but has {len(fields)}."
            )
        id, digest, user, role, groups, created, expires, name = fields
        if role not in list(Role):
            raise BadRequest(f"the role of the key {name} must be account, user or admin.")
        members = tuple(groups.split(",")) if groups else ()
        made = _read_time(created)
        if made is None:
            raise BadRequest(f"the time of creation of the key {name} must be a time, not {NEVER}.")
        return cls(id, digest, user, Role(role), members, made, _read_time(expires), name)

    def matches(self, text: str) -> bool:
        """Return whether `text` is this key, in constant time."""
        return compare_digest(digest_of(text), self.digest)


def new_key(
    clock: Clock, name: str, user: str, role: Role, groups: tuple[str, ...], expires: int | None
) -> tuple[str, ApiKey]:
    """Create a key; return a pair: the text of the key, which is never stored, and the `ApiKey` for the key file."""
    id = clock.token(6).hex()
    text = f"{PREFIX}{id}_{clock.token(32).hex()}"
    return text, ApiKey(id, digest_of(text), user, role, groups, int(clock.now()), expires, name)


def is_api_key(text: str) -> bool:
    """Return whether `text` has the form of a key."""
    return TEXT.fullmatch(text) is not None


def id_of(text: str) -> str:
    """Return the id in a key's text."""
    found = TEXT.fullmatch(text)
    assert found is not None
    return found[1]


def digest_of(text: str) -> str:
    """Return the digest of a key's text for the file: SHA-256, in hex."""
    return sha256(text.encode()).hexdigest()


def written_time(seconds: int | None) -> str:
    """Return a time in UTC in the basic format of ISO 8601, which has no colons, or `never` if the time is None."""
    return NEVER if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime(TIME)


def _read_time(text: str) -> int | None:
    if text == NEVER:
        return None
    try:
        return int(datetime.strptime(text, TIME).replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise BadRequest(f"{text!r} is not a time: write it like 20270131T120000Z, or {NEVER}.") from None


def _read_key(line: str) -> tuple[str, ApiKey]:
    key = ApiKey.of_line(line)
    return key.id, key


KEY_LINES = LineFormat("key file", "make one with 'hsparse key add'", _read_key)


class KeyFile(LineFile[ApiKey]):
    """A key file; its entries map the id of each key to the key."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, KEY_LINES)

    def add(self, key: ApiKey) -> None:
        """Add a key, and create the key file if missing; raise `Conflict` if the file has a key of the same name."""

        def change(lines: list[str]) -> None:
            if any(one.name == key.name for one in _keys_of(lines)):
                raise Conflict(
                    f"There is a key named {key.name} in {self.path} already; revoke it, or choose another name."
                )
            lines.append(key.line)

        self.edit(change)

    def revoke(self, picks: Callable[[ApiKey], bool]) -> list[ApiKey]:
        """Remove the keys for which `picks` is true and return them; raise `NotFound` if there are none."""
        gone: list[ApiKey] = []

        def change(lines: list[str]) -> None:
            gone.extend(key for key in _keys_of(lines) if picks(key))
            if not gone:
                raise NotFound(f"No key in {self.path} matches; 'hsparse key list' shows all keys.")
            lines[:] = [line for line in lines if is_blank(line) or not picks(ApiKey.of_line(line))]

        self.edit(change)
        return gone


def _keys_of(lines: list[str]) -> list[ApiKey]:
    return [ApiKey.of_line(line) for line in lines if not is_blank(line)]


class KeyAuthenticator:
    """Authenticates API keys with the current key file, so that a revoked key is rejected at once.

    Results are not cached, because a check costs only a stat and a SHA-256.
    """

    def __init__(self, file: KeyFile, clock: Clock, accounts: PasswordFile | None = None) -> None:
        self._file = file
        self._clock = clock
        self._accounts = accounts

    def users(self) -> frozenset[str]:
        """Return the users that have keys; raise `Misconfigured` if the key file cannot be used."""
        return frozenset(key.user for key in self._file.served().values())

    def principal(self, text: str, user: str | None = None) -> Principal:
        """Return the principal of the key `text`; with `user`, the key must belong to that user.

        Raises `Unauthenticated` if the key is unknown, revoked or expired, belongs to another user, or belongs to a
        removed user, and `Misconfigured` if the key file or the password file cannot be used.
        """
        key = self._file.served().get(id_of(text))
        if key is None or not key.matches(text) or user not in (None, key.user):
            raise Unauthenticated(UNKNOWN)
        if key.expires is not None and self._clock.now() >= key.expires:
            raise Unauthenticated(
                f"The API key {key.name} expired at {written_time(key.expires)}; ask for a new key."
            )
        return self._principal(key)

    def _principal(self, key: ApiKey) -> Principal:
        if key.role is not Role.ACCOUNT:
            return Principal(key.user, admin=key.role is Role.ADMIN, groups=frozenset(key.groups))
        account = self._accounts.served().get(key.user) if self._accounts is not None else None
        if account is None:
            raise Unauthenticated(
                f"The user {key.user} of the API key {key.name} is not in the password file; ask for a new key."
            )
        return account.principal


class KeyScheme:
    """The authentication scheme of API keys, sent as bearer tokens or as passwords of their users."""

    way = "Bearer with an API key"
    as_password = True
    is_general = False

    def __init__(self, keys: KeyAuthenticator) -> None:
        self._keys = keys

    def owns(self, text: str, *, whole: bool) -> bool:
        return is_api_key(text) if whole else text.startswith(PREFIX)

    def users(self) -> frozenset[str]:
        return self._keys.users()

    async def principal(self, text: str, user: str | None = None) -> Principal:
        if not is_api_key(text):
            raise Unauthenticated("The API key is not complete: send hsk_ and its other 77 characters.")
        return self._keys.principal(text, user)


def parts(settings: Settings, clock: Clock) -> Parts:
    """Return the `Parts` for sign-in by API keys, empty without a key file; `Misconfigured` if a file is unusable."""
    path, passwords = settings.section(KeySettings).key_file, settings.sign_in.password_file
    if path is None:
        return Parts()
    file = KeyFile(path)
    file.entries()
    accounts = None if passwords is None else PasswordFile(passwords)
    return Parts(schemes=(KeyScheme(KeyAuthenticator(file, clock, accounts)),))
