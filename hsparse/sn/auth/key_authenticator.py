"""API keys, checked against a key file."""

from __future__ import annotations

from hsparse.clock import Clock
from hsparse.errors import Unauthenticated
from hsparse.model.principal import Principal
from hsparse.sn.auth.api_key import ApiKey, Role, id_of, written_time
from hsparse.sn.auth.key_file import KeyFile
from hsparse.sn.auth.password_file import PasswordFile

UNKNOWN = "The API key is not known to this server; it may have been revoked."


class KeyAuthenticator:
    """Signs in the keys of a key file, as the file is at each request: a revoked key is refused at once.

    A check costs a stat and a SHA-256, so that nothing is remembered of it.
    """

    def __init__(self, file: KeyFile, clock: Clock, accounts: PasswordFile | None = None) -> None:
        self._file = file
        self._clock = clock
        self._accounts = accounts

    def principal(self, text: str, user: str | None = None) -> Principal:
        """Return whom the key `text` acts as, which must be `user` if one is named.

        `Unauthenticated` for a key that is unknown, revoked, expired or another user's, and for one whose user
        was removed; `Misconfigured` when a file cannot be used.
        """
        key = self._file.served().get(id_of(text))
        if key is None or not key.matches(text) or user not in (None, key.user):
            raise Unauthenticated(UNKNOWN)
        if key.expires is not None and self._clock.now() >= key.expires:
            raise Unauthenticated(
                f"The API key {key.name} expired at {written_time(key.expires)}; ask for a new one."
            )
        return self._principal(key)

    def _principal(self, key: ApiKey) -> Principal:
        if key.role is not Role.ACCOUNT:
            return Principal(key.user, admin=key.role is Role.ADMIN, groups=frozenset(key.groups))
        account = self._accounts.served().get(key.user) if self._accounts is not None else None
        if account is None:
            raise Unauthenticated(
                f"The user {key.user} of the API key {key.name} is not in the password file."
            )
        return account.principal
