"""Password hashes by argon2id, by default with RFC 9106's second recommended parameters (64 MiB, 3 passes)."""

from __future__ import annotations

import asyncio
import base64
import unicodedata

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from hsparse.clock import Clock
from hsparse.compute import LONG_WORK_BYTES, compute
from hsparse.errors import BadRequest, Misconfigured


class PasswordHash:
    """Makes and checks hashes in argon2's encoded form, `$argon2id$v=..$m=..,t=..,p=..$salt$hash`.

    At most `at_once` checks run at a time, because each takes the memory that its hash requires; other checks wait.
    """

    def __init__(self, hasher: PasswordHasher | None = None, at_once: int = 2) -> None:
        self._hasher = PasswordHasher() if hasher is None else hasher
        self._slots = asyncio.Semaphore(at_once)

    def hash(self, password: str) -> str:
        """Return a new salted hash. This takes tens of milliseconds: never call it on an event loop.

        Raises `BadRequest` for an empty password, and for a password that HTTP authentication cannot carry.
        """
        if not password:
            raise BadRequest("The password is empty; give a password.")
        if any(unicodedata.category(character) == "Cc" for character in password):
            raise BadRequest("The password has control characters, which HTTP cannot send: remove them.")
        return self._hasher.hash(_prepared(password))

    async def verify(self, encoded: str, password: str) -> bool:
        """Return whether `encoded` is a hash of `password`; raise `Misconfigured` for an unusable hash."""
        async with self._slots:
            # argon2 releases the GIL, so a thread keeps the event loop free.
            return await compute(LONG_WORK_BYTES, self._verify, encoded, password)

    def dummy(self, clock: Clock) -> str:
        """Return a random hash that belongs to no known password. Its check takes as long as that of a real hash."""
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


def _prepared(password: str) -> bytes:
    """Return the bytes that are hashed: UTF-8 of normalization form C (RFC 8265, section 4.2)."""
    try:
        return unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        # The cause would carry the password.
        raise BadRequest("The password is not valid Unicode; type it in UTF-8.") from None
