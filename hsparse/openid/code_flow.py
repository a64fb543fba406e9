"""Sign-in at an OpenID Connect issuer: exchange of an authorization code for tokens.

The page at `/` sends people to the issuer and receives the code (RFC 6749, section 4.1). The page keeps the code's
verifier (PKCE, RFC 7636). The page may talk to this server only, so the server exchanges the code. The server is a
public client of the issuer: it has no client secret, and keeps no state between requests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any

from hsparse.api import (
    BadRequest,
    Busy,
    Clock,
    RateLimited,
    TryLimit,
    Unauthenticated,
    queue_user,
)
from hsparse.openid.issuer import (
    JSON_WANTED,
    MAX_TOKEN,
    Issuer,
    IssuerFailed,
    read_answer,
    read_header,
    verified_claims,
)
from hsparse.openid.settings import OpenIdSettings
from hsparse.openid.token_authenticator import TokenAuthenticator, TokenRules, check_claims

MAX_CODE = 8192
MAX_URL = 2048
VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class CodeGrant:
    """The authorization code that a page received, with the verifier, nonce and redirect URI of its request."""

    code: str = field(repr=False)
    verifier: str = field(repr=False)
    nonce: str = field(repr=False)
    redirect_uri: str


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """The tokens that the issuer returns: an access token of any form, and an ID token that names the user."""

    access: str = field(repr=False)
    identity: str = field(repr=False)


def read_grant(body: object) -> CodeGrant:
    """Return the grant in a request body; raise a `BadRequest` that names a wrong member without its value."""
    members = body if isinstance(body, dict) else {}
    code = _text(members, "code", MAX_CODE)
    redirect_uri = _text(members, "redirect_uri", MAX_URL)
    return CodeGrant(code, _random_text(members, "verifier"), _random_text(members, "nonce"), redirect_uri)


def _random_text(members: dict[str, object], name: str) -> str:
    """Return a verifier or a nonce, which have the same format (RFC 7636, section 4.1)."""
    value = _text(members, name, 128)
    if not VERIFIER.fullmatch(value):
        raise BadRequest(f"{name} must have 43 to 128 letters, digits, and -._~ (RFC 7636, section 4.1).")
    return value


def _text(members: dict[str, object], name: str, most: int) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise BadRequest(f"{name} must be a text of 1 to {most} characters.")
    return value


AT_ONCE = 32
"""Maximum number of concurrent exchanges; each waits for the issuer for up to ten seconds."""
FAILURES = 30
FAILURE_SECONDS = 60.0
ADDRESSES = 4096
"""An address may fail `FAILURES` exchanges in `FAILURE_SECONDS`; failures of `ADDRESSES` addresses are counted."""
OAUTH_ERROR = re.compile(r"[a-z_]{1,40}", re.ASCII)


class CodeFlow:
    """Exchanges codes as the client `client_id` of an issuer; the page requests the scopes in `scope`."""

    def __init__(self, issuer: Issuer, clock: Clock, client_id: str, scope: str, leeway: float) -> None:
        self.issuer = issuer
        self.client_id = client_id
        self.scope = scope if "openid" in scope.split() else f"openid {scope}"
        self._clock = clock
        self._leeway = leeway
        self._under_way = 0
        self._tries = TryLimit(FAILURES, FAILURE_SECONDS, ADDRESSES, clock)

    async def description(self) -> dict[str, str]:
        """Return the data a page needs to send a user to the issuer; raise `Busy` while the issuer does not answer."""
        return {
            "issuer": self.issuer.url,
            "authorization_endpoint": await self.issuer.endpoint("authorization_endpoint"),
            "client_id": self.client_id,
            "scope": self.scope,
        }

    async def exchange(self, grant: CodeGrant) -> IssuedTokens:
        """Return the tokens for a code after checking that the ID token belongs to this sign-in.

        Raises `Unauthenticated` for a code that the issuer refuses or a token for another client or nonce, `Busy` if
        the issuer does not answer or too many exchanges run, `RateLimited` after too many failures from an address.
        """
        address = queue_user()
        if self._under_way >= AT_ONCE:
            raise Busy("Too many people are signing in at the issuer: try again in a few seconds.")
        wait = self._tries.wait(address)
        if wait:
            raise RateLimited(f"{FAILURES} sign-ins from this address failed within a minute: wait.", wait)
        self._tries.count(address)
        self._under_way += 1
        try:
            tokens = await self._ask(grant)
            await self._check(tokens.identity, grant.nonce)
        finally:
            self._under_way -= 1
        self._tries.forgive(address)
        return tokens

    async def _ask(self, grant: CodeGrant) -> IssuedTokens:
        where = await self.issuer.endpoint("token_endpoint")
        form = {
            "grant_type": "authorization_code",
            "code": grant.code,
            "redirect_uri": grant.redirect_uri,
            "client_id": self.client_id,
            "code_verifier": grant.verifier,
        }
        try:
            status, found = await read_answer(
                where,
                lambda session: session.post(where, data=form, allow_redirects=False, headers=JSON_WANTED),
            )
        except IssuerFailed as error:
            raise Busy(f"The issuer does not answer a request for a token: {error.message}") from error
        if status in (400, 401):
            raise Unauthenticated(f"The issuer refused to give a token: {_reason(found)}. Sign in again.")
        if status != 200:
            raise Busy(f"The issuer answered {status} instead of a token; try again.")
        return _tokens(found)

    async def _check(self, token: str, nonce: str) -> None:
        header = read_header(token)
        claims = verified_claims(token, header, await self.issuer.keys_for(header))
        check_claims(claims, self.issuer.url, (self.client_id,), self._clock.now(), self._leeway)
        if claims.get("azp", self.client_id) != self.client_id:
            raise Unauthenticated("The issuer's token is for another client (azp).")
        given = claims.get("nonce")
        if not isinstance(given, str) or not compare_digest(given.encode(), nonce.encode()):
            raise Unauthenticated("The issuer's token belongs to another sign-in (nonce): sign in again.")


def _tokens(found: Any) -> IssuedTokens:
    """Return the tokens of a token response (OpenID Connect Core, 3.1.3.3); raise `Unauthenticated` otherwise."""
    members = found if isinstance(found, dict) else {}
    access, identity = members.get("access_token"), members.get("id_token")
    if (
        not isinstance(access, str)
        or not isinstance(identity, str)
        or str(members.get("token_type")).lower() != "bearer"
        or max(len(access), len(identity)) > MAX_TOKEN
    ):
        raise Unauthenticated(
            "The issuer returned no usable access and ID tokens: check the client's setup at the issuer."
        )
    return IssuedTokens(access, identity)


def _reason(found: Any) -> str:
    """Return the error code of an issuer's answer; its free text is left out, as it may contain anything."""
    code = found.get("error") if isinstance(found, dict) else None
    return code if isinstance(code, str) and OAUTH_ERROR.fullmatch(code) else "it names no reason"


def make_sign_in(settings: OpenIdSettings, clock: Clock) -> tuple[CodeFlow | None, TokenAuthenticator]:
    """Return a pair: the code flow, or None if the explorer has no client id, and the authenticator of tokens.

    Raises `Misconfigured` for an issuer that cannot be trusted, and for rules without an audience.
    """
    issuer = Issuer(str(settings.oidc_issuer), clock)
    rules = TokenRules(
        settings.oidc_audience, settings.oidc_user_claim, settings.oidc_group_claim, settings.oidc_leeway
    )
    tokens = TokenAuthenticator(issuer, clock, rules)
    if settings.oidc_client_id is None:
        return None, tokens
    return CodeFlow(issuer, clock, settings.oidc_client_id, settings.oidc_scope, settings.oidc_leeway), tokens
