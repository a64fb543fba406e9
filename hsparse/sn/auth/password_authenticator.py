"""Authentication by user name and password, checked against a password file."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

from hsparse.bounded_cache import BoundedCache
from hsparse.clock import Clock
from hsparse.concurrency.request_trace import queue_user
from hsparse.concurrency.single_flight import SingleFlight
from hsparse.errors import Busy, RateLimited, Unauthenticated
from hsparse.model.acl import Principal
from hsparse.sn.auth.line_file import TryLimit
from hsparse.sn.auth.password_file import PasswordFile
from hsparse.sn.auth.password_hash import PasswordHash
from hsparse.sn.auth.roles import is_user_name

K = TypeVar("K")

WRONG = "The user name or the password is wrong."


@dataclass(frozen=True, slots=True)
class PasswordLimits:
    """The limits of a `PasswordAuthenticator`; times are in seconds.

    At most `remember_count` verified credentials are cached, each for `remember_time`. Within `failure_time` of the
    first failure, a user may fail `failures` times from one address, and all users together `address_failures` times;
    at most `failure_count` names and addresses are counted. At most `waiting` credentials are verified or wait at a
    time, `waiting_each` of them from one address. Another `waiting_known` may wait if their users signed in from the
    same address within `known_time`; at most `remember_count` pairs of user and address are stored for that.
    """

    remember_time: float = 300.0
    remember_count: int = 4096
    failures: int = 10
    address_failures: int = 100
    failure_time: float = 60.0
    failure_count: int = 4096
    waiting: int = 64
    waiting_each: int = 32
    waiting_known: int = 16
    known_time: float = 86400.0


class PasswordAuthenticator:
    """Signs in the users of a password file.

    A verified credential is cached by a keyed hash of the name, the password and the user's line in the file, so a
    changed line is verified again and a removed user is refused at once. Other credentials cost one check of an argon2
    hash; concurrent requests with the same credential share it (single flight).

    Failures are counted for each pair of a name, known or not, and an address (`queue_user` before the sign-in). Beyond
    the limit only cached credentials pass; all others are `RateLimited` until `failure_time` after the first failure.
    By default an attacker gets ten tries a minute, and cannot lock out users who are signed in or at another address.
    Tries of invented names count for their address before they cost a check, so one address can occupy neither all
    checks nor all waiting places. Many addresses can, except the places for users who signed in from their address.
    """

    def __init__(
        self,
        file: PasswordFile,
        clock: Clock,
        hashes: PasswordHash | None = None,
        limits: PasswordLimits | None = None,
    ) -> None:
        self._file = file
        self._clock = clock
        self._hashes = PasswordHash() if hashes is None else hashes
        self._limits = PasswordLimits() if limits is None else limits
        self._secret = clock.token(32)
        self._dummy = self._hashes.dummy(clock)
        most = self._limits.remember_count
        self._verified: BoundedCache[bytes, float] = BoundedCache.of_entries(most)
        """Maps the digest (`_key`) of each verified credential to the time at which it expires."""
        self._known: BoundedCache[str, float] = BoundedCache.of_entries(most)
        """Maps `<address> <name>` of each successful sign-in to the time until which the user is known there."""
        self._flights: SingleFlight[bytes, bool] = SingleFlight()
        self._waiting: Counter[str] = Counter()
        limits = self._limits
        self._tries = TryLimit(limits.failures, limits.failure_time, limits.failure_count, clock)
        self._address_tries = TryLimit(
            limits.address_failures, limits.failure_time, limits.failure_count, clock
        )

    def users(self) -> dict[str, Principal]:
        """Return a dict that maps each name in the file to the user's principal; raises as `LineFile.served` does."""
        return {name: user.principal for name, user in self._file.served().items()}

    async def sign_in(self, name: str, password: str) -> Principal:
        """Return the principal of a user name and password; raise `Unauthenticated` if they are wrong.

        Raises `Busy` if too many sign-ins wait, `RateLimited` after too many failures, `Misconfigured` for a bad file.
        """
        if not is_user_name(name):
            raise Unauthenticated(WRONG)
        user = self._file.served().get(name)
        key = self._key(name, password, user.line if user else "")
        if user is not None and self._remembers(key):
            return user.principal
        # An unknown user is checked like a known one, so that the duration does not reveal which users exist.
        encoded = user.hash if user else self._dummy
        verified = await self._verify_once(key, name, encoded, password)
        if user is None or not verified:
            raise Unauthenticated(WRONG)
        return user.principal

    def _key(self, *fields: str) -> bytes:
        digest = blake2b(key=self._secret, digest_size=32)
        for text in fields:
            data = text.encode()
            digest.update(len(data).to_bytes(8, "big") + data)
        return digest.digest()

    def _remembers(self, key: bytes) -> bool:
        # Keys cannot be chosen without the secret, so the duration of this lookup reveals nothing.
        expires = self._verified.get(key)
        return expires is not None and self._clock.monotonic() < expires

    async def _verify_once(self, key: bytes, name: str, encoded: str, password: str) -> bool:
        """Verify a credential; concurrent requests with the same credential share one verification."""
        address = queue_user()
        if key not in self._flights:
            if not self._has_room(name, address):
                raise Busy("Too many sign-ins are being verified; try again in a few seconds.")
            self._count_try(name, address)
            self._waiting[address] += 1
        return await self._flights.run(key, lambda: self._verify(key, name, address, encoded, password))

    def _has_room(self, name: str, address: str) -> bool:
        limits = self._limits
        if self._known.get(f"{address} {name}", 0.0) > self._clock.monotonic():
            return len(self._flights) < limits.waiting + limits.waiting_known
        return len(self._flights) < limits.waiting and self._waiting[address] < limits.waiting_each

    async def _verify(self, key: bytes, name: str, address: str, encoded: str, password: str) -> bool:
        try:
            is_right = await self._hashes.verify(encoded, password)
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]
        if not is_right:
            return False
        self._tries.forget(f"{address} {name}")
        self._address_tries.forgive(address)
        now = self._clock.monotonic()
        self._verified.keep(key, now + self._limits.remember_time)
        self._known.keep(f"{address} {name}", now + self._limits.known_time)
        return True

    def _count_try(self, name: str, address: str) -> None:
        """Count a try as a failure until it succeeds; this bounds concurrent tries. Raise `RateLimited` beyond it."""
        limits = self._limits
        for tries, who, most, whose in (
            (self._tries, f"{address} {name}", limits.failures, "as this user"),
            (self._address_tries, address, limits.address_failures, "from this address"),
        ):
            wait = tries.wait(who)
            if wait:
                raise RateLimited(
                    f"The limit of {most} failed sign-ins {whose} within {limits.failure_time:g} seconds is reached; "
                    f"try again in {math.ceil(wait)} seconds.",
                    wait,
                )
        self._tries.count(f"{address} {name}")
        self._address_tries.count(address)
