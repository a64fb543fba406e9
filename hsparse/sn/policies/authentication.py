"""Authentication of requests, and rate limits of users."""

from __future__ import annotations

import math
from functools import lru_cache
from ipaddress import IPv6Network, ip_address

from aiohttp import hdrs, web

from hsparse.bounded_cache import BoundedCache
from hsparse.clock import Clock
from hsparse.errors import Forbidden, RateLimited, Unauthenticated
from hsparse.model.acl import ANONYMOUS_NAME, Principal
from hsparse.sn.policies.policy import Next
from hsparse.sn.request import Request
from hsparse.sn.route import Route

CLIENT_BITS = 64
MAX_CACHED_ADDRESSES = 10_000
"""The maximum number of addresses whose networks are cached."""
MAX_BUCKETS = 10_000
"""The most token buckets in memory. The least recently used one is evicted first: it tends to be full, as if new."""
BURST_SECONDS = 10


class Authentication:
    """Finds the principal of a request, and counts the request against the rate limit of its user.

    A request without a valid credential counts for the network of its remote address.
    """

    def __init__(self, rates: RateLimit | None) -> None:
        self._rates = rates

    def applies(self, route: Route) -> bool:
        return route.authenticated

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        trace, only = request.trace, request.service.authenticator.only
        principal = await self._signed_in(request) if only is None else only
        if principal.name != ANONYMOUS_NAME:
            trace.queue_user = principal.name
        if self._rates is not None:
            self._rates.take(trace.queue_user)
        request.principal, trace.user = principal, principal.name
        return await next(request)

    async def _signed_in(self, request: Request) -> Principal:
        """Return the credential's principal. Until it is known, the request counts for its client's network."""
        request.trace.queue_user = f"{ANONYMOUS_NAME} {network_of(request.http.remote)}"
        request.checks.append(self._require_same)
        try:
            return await request.service.authenticator.principal(request.http.headers.get(hdrs.AUTHORIZATION))
        except Unauthenticated:
            if self._rates is not None:
                self._rates.take(request.trace.queue_user)
            raise

    async def _require_same(self, request: Request) -> None:
        """Raise `Unauthenticated` if the credential is no longer valid, `Forbidden` if its principal has changed."""
        found = await request.service.authenticator.principal(request.http.headers.get(hdrs.AUTHORIZATION))
        if found != request.principal:
            raise Forbidden(
                f"The role or the groups of {found.name} were changed before the body arrived; nothing was applied: "
                "send the request again."
            )


class RateLimit:
    """Limits each user to `rate` requests a second, `burst` at once, on this service node."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = float(burst or max(1, math.ceil(rate * BURST_SECONDS)))
        self._clock = clock
        self._buckets: BoundedCache[str, tuple[float, float]] = BoundedCache.of_entries(MAX_BUCKETS)
        """Maps each user to a pair: the tokens that are left, and the monotonic time at which they were counted."""

    def take(self, who: str) -> None:
        """Take a token of `who` for a request; if no token is left, raise `RateLimited` with the time to wait."""
        now = self._clock.monotonic()
        tokens, then = self._buckets.get(who, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        refused = tokens < 1
        self._buckets.keep(who, (tokens if refused else tokens - 1, now))
        if refused:
            wait = (1 - tokens) / self._rate
            raise RateLimited(
                f"You may send {self._rate:g} requests a second, {self._burst:g} at once (rate_limit, rate_burst); "
                f"try again in {max(1, math.ceil(wait))} seconds.",
                wait,
            )


@lru_cache(MAX_CACHED_ADDRESSES)
def network_of(address: str | None) -> str | None:
    """Return the network of a client's address: an IPv4 address as it is, or the /64 network of an IPv6 address.

    A client has any number of IPv6 addresses in a network with a prefix of 64 bits (RFC 4291, section 2.5.4). An IPv4
    address mapped to IPv6 is returned as IPv4. Text that is no address is returned unchanged.
    """
    if address is None:
        return None
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((int(found), CLIENT_BITS), strict=False))
