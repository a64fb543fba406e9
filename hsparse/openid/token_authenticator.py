"""Authentication by bearer tokens of an OpenID Connect issuer: checks signature and claims, returns the principal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from hsparse.api import BoundedCache, Clock, Misconfigured, Principal, Unauthenticated, is_user_name
from hsparse.openid.issuer import Issuer, read_header, verified_claims

MAX_GROUP = 256
MAX_GROUPS = 1000


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Requirements on tokens.

    One of `audiences` must be an audience of the token. `user_claim` has the user's name. `group_claim` has a list of
    groups, or a string of names separated by spaces; if `group_claim` is None, tokens name no groups. Both claims are
    names, or paths of names joined by dots. `leeway` is the tolerated difference between the clocks and
    `remember_time` the longest time for which a verified token is cached, both in seconds.
    """

    audiences: tuple[str, ...]
    user_claim: str = "sub"
    group_claim: str | None = None
    leeway: float = 60.0
    remember_time: float = 300.0
    remember_count: int = 1024

    def __post_init__(self) -> None:
        if not self.audiences:
            raise Misconfigured(
                "--oidc-issuer needs --oidc-audience: without it a token for any other service would sign in."
            )


class TokenAuthenticator:
    """Authenticates requests by tokens of an issuer.

    A verified token is cached by a keyed hash, for up to `remember_time` while the issuer's keys stay the same.
    """

    way = "Bearer with a token of its OpenID Connect issuer"
    as_password = False
    is_general = True

    def __init__(self, issuer: Issuer, clock: Clock, rules: TokenRules) -> None:
        self._issuer = issuer
        self._clock = clock
        self._rules = rules
        self._secret = clock.token(32)
        self._verified: BoundedCache[bytes, tuple[Principal, float]] = BoundedCache.of_entries(
            rules.remember_count
        )
        """Maps the hash of each verified token to a pair: principal and expiry."""
        self._version = issuer.version

    def owns(self, text: str, *, whole: bool) -> bool:
        return False  # is_general: gets the tokens that no other scheme owns

    def users(self) -> tuple[str, ...]:
        """Return an empty tuple, because only the issuer knows its users."""
        return ()

    async def principal(self, token: str, user: str | None = None) -> Principal:
        """Return the principal of a token; raise `Unauthenticated` if the token is not valid.

        The error's message does not contain the token. Raises `Busy` while the issuer's keys are not known.
        """
        self._forget_withdrawn()
        key = blake2b(token.encode("utf-8", "replace"), key=self._secret, digest_size=32).digest()
        principal, until = self._verified.get(key, (None, 0.0))
        if principal is not None and self._clock.now() < until:
            return principal
        header = read_header(token)
        claims = verified_claims(token, header, await self._issuer.keys_for(header))
        rules = self._rules
        expires = check_claims(claims, self._issuer.url, rules.audiences, self._clock.now(), rules.leeway)
        principal = Principal(self._user(claims), groups=self._groups(claims))
        self._forget_withdrawn()
        self._verified.keep(key, (principal, min(expires, self._clock.now() + self._rules.remember_time)))
        return principal

    def _user(self, claims: dict[str, Any]) -> str:
        name = claimed(claims, self._rules.user_claim)
        if not isinstance(name, str) or not is_user_name(name):
            raise Unauthenticated(
                f"The bearer token's claim {self._rules.user_claim} is missing, or is not a valid user name."
            )
        return name

    def _groups(self, claims: dict[str, Any]) -> frozenset[str]:
        """Return the groups that a token names; invalid group names are skipped, as they grant nothing."""
        if self._rules.group_claim is None:
            return frozenset()
        found = claimed(claims, self._rules.group_claim)
        items = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
        return frozenset(
            one for one in items[:MAX_GROUPS] if isinstance(one, str) and 0 < len(one) <= MAX_GROUP
        )

    def _forget_withdrawn(self) -> None:
        """Forget all tokens when the issuer's keys have changed, since the key of a token may be withdrawn."""
        if self._version != self._issuer.version:
            self._verified.clear()
            self._version = self._issuer.version


def check_claims(
    claims: dict[str, Any], issuer: str, audiences: tuple[str, ...], now: float, leeway: float
) -> float:
    """Return the time at which a token expires plus `leeway`, in seconds since the Unix epoch.

    Raises `Unauthenticated` for another issuer, for an audience not in `audiences`, and outside its period of validity.
    """
    if claims.get("iss") != issuer:
        raise Unauthenticated("The bearer token comes from another issuer than the one this server trusts.")
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if not any(one in named for one in audiences):
        raise Unauthenticated(
            "The bearer token is for another audience; get a token for this server from the issuer."
        )
    expires = _time(claims, "exp")
    if expires is None:
        raise Unauthenticated("The bearer token has no time of expiry (exp), and is not accepted.")
    if now >= expires + leeway:
        raise Unauthenticated("The bearer token has expired; get a new one.")
    for name in ("nbf", "iat"):
        begins = _time(claims, name)
        if begins is not None and now < begins - leeway:
            raise Unauthenticated(f"The bearer token is not valid yet ({name}); compare the clocks.")
    return expires + leeway


def claimed(claims: dict[str, Any], name: str) -> Any:
    """Return the claim of this name (dots allowed) or at a path like `realm_access.roles`, or None if there is none."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def _time(claims: dict[str, Any], name: str) -> float | None:
    """Return a time claim in seconds, or None if it is missing; raise `Unauthenticated` if it is not a number."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Unauthenticated(f"The bearer token's {name} is not a time.")
    return float(value)
