"""Bearer tokens of an OpenID Connect issuer: signature, claims, and the principal that they name."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from hsparse.clock import Clock
from hsparse.errors import Misconfigured, Unauthenticated
from hsparse.model.acl import Principal
from hsparse.openid.issuer import Issuer, read_header, verified_claims
from hsparse.sn.auth.roles import is_user_name

MAX_GROUP = 256
MAX_GROUPS = 1000


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Requirements on tokens: `leeway` in seconds; claims by name, or by a path of names joined by dots.

    One of `audiences` must be among the token's. `user_claim` is the user's name, `group_claim` a list of
    groups, or a string with spaces between them; None: tokens name no groups.
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
    """Authenticates by tokens of an issuer.

    A verified token is cached by a keyed hash while it is valid and the issuer's keys stay the same.
    """

    way = "Bearer with a token of its OpenID Connect issuer"
    as_password = False
    is_general = True

    def __init__(self, issuer: Issuer, clock: Clock, rules: TokenRules) -> None:
        self._issuer = issuer
        self._clock = clock
        self._rules = rules
        self._secret = clock.token(32)
        # Until when, oldest first.
        self._verified: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._version = issuer.version

    def owns(self, text: str, *, whole: bool) -> bool:
        return False  # what no other scheme owns

    def users(self) -> tuple[str, ...]:
        """Return nobody: the issuer alone knows them."""
        return ()

    async def principal(self, token: str, user: str | None = None) -> Principal:
        """Return the principal; `Unauthenticated` names the error, without the token.

        `Busy` while the issuer's keys are not known.
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
        self._remember(key, principal, min(expires, self._clock.now() + self._rules.remember_time))
        return principal

    def _user(self, claims: dict[str, Any]) -> str:
        name = claimed(claims, self._rules.user_claim)
        if not isinstance(name, str) or not is_user_name(name):
            raise Unauthenticated(
                f"The bearer token's claim {self._rules.user_claim} is not there, or cannot be a user's name here."
            )
        return name

    def _groups(self, claims: dict[str, Any]) -> frozenset[str]:
        """Return the groups that the token names; names that no group can have are left out, as they grant nothing."""
        if self._rules.group_claim is None:
            return frozenset()
        found = claimed(claims, self._rules.group_claim)
        items = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
        return frozenset(
            one for one in items[:MAX_GROUPS] if isinstance(one, str) and 0 < len(one) <= MAX_GROUP
        )

    def _forget_withdrawn(self) -> None:
        """Forget all tokens after a change of the issuer's keys: the key of a token may be withdrawn."""
        if self._version != self._issuer.version:
            self._verified.clear()
            self._version = self._issuer.version

    def _remember(self, key: bytes, principal: Principal, until: float) -> None:
        self._forget_withdrawn()
        self._verified[key] = (principal, until)
        self._verified.move_to_end(key)
        while len(self._verified) > self._rules.remember_count:
            self._verified.popitem(last=False)


def check_claims(
    claims: dict[str, Any], issuer: str, audiences: tuple[str, ...], now: float, leeway: float
) -> float:
    """Return the time at which a token expires, plus `leeway`, both in seconds.

    `Unauthenticated` for one of another issuer, for none of `audiences`, and before or after its time.
    """
    if claims.get("iss") != issuer:
        raise Unauthenticated("The bearer token is of another issuer than the one this server trusts.")
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if not any(one in named for one in audiences):
        raise Unauthenticated(
            "The bearer token is for another audience; ask the issuer for one for this server."
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
    """Return a claim by its name, which may have dots, or by a path such as `realm_access.roles`; else None."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def _time(claims: dict[str, Any], name: str) -> float | None:
    """Return a claim that is a time, None without it; `Unauthenticated` if it is no time."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Unauthenticated(f"The bearer token's {name} is not a time.")
    return float(value)
