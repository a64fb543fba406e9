"""Hashes of passwords: argon2id, RFC 9106's second recommended parameters (64 MiB, 3 passes) by default."""

from __future__ import annotations

import asyncio
import base64
import re
import unicodedata

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from hsparse.clock import Clock
from hsparse.errors import BadRequest, Misconfigured

ENCODED = re.compile(r"\$argon2id\$v=\d+\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+", re.ASCII)


class PasswordHash:
    """Makes and checks hashes in argon2's encoded form, `$argon2id$v=..$m=..,t=..,p=..$salt$hash`.

    At most `at_once` checks run at a time, because each takes the memory its hash asks for; more wait.
    """

    def __init__(self, hasher: PasswordHasher | None = None, at_once: int = 2) -> None:
        self._hasher = PasswordHasher() if hasher is None else hasher
        self._slots = asyncio.Semaphore(at_once)

    def hash(self, password: str) -> str:
        """Return a new salted hash; it takes tens of milliseconds, so never call it on an event loop.

        `BadRequest` for a password that is empty, or that HTTP authentication could not carry.
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
            return await asyncio.to_thread(self._verify, encoded, password)

    def dummy(self, clock: Clock) -> str:
        """Return a hash of no known password, that takes as long to check as any made here."""
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
