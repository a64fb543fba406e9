"""Users and passwords, checked against a password file."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

from hsparse.clock import Clock
from hsparse.concurrency.request_trace import queue_user
from hsparse.errors import Busy, RateLimited, Unauthenticated
from hsparse.model.acl import Principal
from hsparse.sn.auth.line_file import TryLimit
from hsparse.sn.auth.password_file import PasswordFile, PasswordHash
from hsparse.sn.auth.roles import is_user_name

K = TypeVar("K")

WRONG = "The user name or the password is wrong."


@dataclass(frozen=True, slots=True)
class PasswordLimits:
    """Bounds of the authenticator, times in seconds.

    A verified credential is cached for `remember_time`, at most `remember_count` of them. From an address a user may
    fail `failures` times within `failure_time` of the first failure, and all users `address_failures` times, counted
    for at most `failure_count` names and addresses. At most `waiting` credentials are being verified or wait for it,
    `waiting_each` from one address; `waiting_known` more of names that were verified from the same address within
    `known_time`, of which `remember_count` are known.
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

    A verified credential is cached by a keyed hash of the name, the password and the user's line, so that a changed
    line is verified again and a removed user is refused at once. Other credentials cost one check of an argon2 hash,
    a single flight for concurrent requests with the same credential.

    Failures are counted for each name, known or not, and address (`queue_user`, while nobody is signed in). Beyond the
    limit only cached credentials pass, and all others are `RateLimited` until `failure_time` after the first failure.
    So an attacker gets ten tries a minute, and locks nobody out who is signed in or at another address. Names that are
    made up are counted for their address, before they cost a check: one address can take neither all checks nor all
    places to wait for one. Many addresses can take all but those of who has signed in from where they are.
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
        self._verified: OrderedDict[bytes, float] = OrderedDict()  # key -> when it expires, oldest first
        self._known: OrderedDict[str, float] = OrderedDict()  # address and name -> until when, oldest first
        self._flights: dict[bytes, asyncio.Task[bool]] = {}
        self._waiting: Counter[str] = Counter()
        limits = self._limits
        self._tries = TryLimit(limits.failures, limits.failure_time, limits.failure_count, clock)
        self._address_tries = TryLimit(
            limits.address_failures, limits.failure_time, limits.failure_count, clock
        )

    def users(self) -> dict[str, Principal]:
        """Return the users of the file by name; `Misconfigured` as `LineFile.served`."""
        return {name: user.principal for name, user in self._file.served().items()}

    async def sign_in(self, name: str, password: str) -> Principal:
        """Return the principal.

        `Unauthenticated` for a wrong credential, `Busy` if too many wait for verification, `RateLimited`
        after too many failures, `Misconfigured` if the file cannot be used.
        """
        if not is_user_name(name):
            raise Unauthenticated(WRONG)
        user = self._file.served().get(name)
        key = self._key(name, password, user.line if user else "")
        if user is not None and self._remembers(key):
            return user.principal
        # An unknown user is checked like a known one, so that the time reveals nothing.
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
        # Without the secret nobody can choose a key, so the time of this lookup reveals nothing.
        expires = self._verified.get(key)
        return expires is not None and self._clock.monotonic() < expires

    async def _verify_once(self, key: bytes, name: str, encoded: str, password: str) -> bool:
        """Verify a credential, joining a verification of the same one that is under way."""
        flight = self._flights.get(key)
        if flight is None:
            address = queue_user()
            if not self._has_room(name, address):
                raise Busy("Too many sign-ins are being verified; try again in a few seconds.")
            self._count_try(name, address)
            flight = asyncio.create_task(self._verify(key, name, address, encoded, password))
            self._flights[key] = flight
            self._waiting[address] += 1
            flight.add_done_callback(lambda done: self._land(key, address, done))
        try:
            # A cancelled request must not fail the others that wait for the same check.
            return await asyncio.shield(flight)
        finally:
            del flight  # an error has this frame, and would have itself

    def _has_room(self, name: str, address: str) -> bool:
        limits = self._limits
        if self._known.get(f"{address} {name}", 0.0) > self._clock.monotonic():
            return len(self._flights) < limits.waiting + limits.waiting_known
        return len(self._flights) < limits.waiting and self._waiting[address] < limits.waiting_each

    async def _verify(self, key: bytes, name: str, address: str, encoded: str, password: str) -> bool:
        if not await self._hashes.verify(encoded, password):
            return False
        self._tries.forget(f"{address} {name}")
        self._address_tries.forgive(address)
        self._remember(self._verified, key, self._limits.remember_time)
        self._remember(self._known, f"{address} {name}", self._limits.known_time)
        return True

    def _remember(self, times: OrderedDict[K, float], key: K, seconds: float) -> None:
        times[key] = self._clock.monotonic() + seconds
        times.move_to_end(key)
        while len(times) > self._limits.remember_count:
            times.popitem(last=False)

    def _land(self, key: bytes, address: str, flight: asyncio.Task[bool]) -> None:
        del self._flights[key]
        self._waiting[address] -= 1
        if not self._waiting[address]:
            del self._waiting[address]
        if not flight.cancelled():
            flight.exception()  # marks the exception as retrieved, if all requests were cancelled

    def _count_try(self, name: str, address: str) -> None:
        """Count a try as a failure until it succeeds: this bounds concurrent tries."""
        limits = self._limits
        for tries, who, most, whose in (
            (self._tries, f"{address} {name}", limits.failures, "as this user"),
            (self._address_tries, address, limits.address_failures, "from this address"),
        ):
            wait = tries.wait(who)
            if wait:
                raise RateLimited(
                    f"{most} failed sign-ins {whose} within {limits.failure_time:g} seconds, the limit; "
                    f"try again in {math.ceil(wait)} seconds.",
                    wait,
                )
        self._tries.count(f"{address} {name}")
        self._address_tries.count(address)
