"""An OpenID Connect issuer: its signing keys and addresses, found by discovery, and fetched again when needed.

JSON Web Tokens (RFC 7519) that an issuer signed, and the public keys that verify them.

Only asymmetric signatures are accepted: with a shared secret, or `none`, anyone with the public key could sign. A key
in the token itself (`jwk`, `jku`, `x5c`, `x5u`) is ignored.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import orjson
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout
from joserfc import jws
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key

from hsparse.clock import Clock
from hsparse.errors import Busy, HsparseError, Misconfigured, Unauthenticated

KEY_TYPES = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "Ed25519": "OKP",
}
"""The accepted algorithms, by the type of their key."""
TYPES = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})
MAX_TOKEN = 16 * 1024
MAX_HEADER = 8 * 1024
MAX_KEYS = 100
MIN_RSA_BITS = 2048
MALFORMED = "The bearer token is not a signed JSON Web Token; get one from the issuer."
WRONG_SIGNATURE = "The bearer token's signature is not one of the issuer's."


class SignatureRegistry(jws.JWSRegistry):
    """Limits of a token's parts, in bytes; unknown headers are allowed."""

    max_header_length = MAX_HEADER
    max_payload_length = MAX_TOKEN


@dataclass(frozen=True, slots=True)
class TokenHeader:
    """The header of a token, which describes its signature."""

    algorithm: str
    key_id: str | None


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key of the issuer; `algorithm` is None if the issuer does not name one."""

    id: str | None
    algorithm: str | None
    key: RSAKey | ECKey | OKPKey

    def fits(self, header: TokenHeader) -> bool:
        """Say whether the key may have made a signature of this kind."""
        return (
            self.key.key_type == KEY_TYPES[header.algorithm]
            and self.algorithm in (None, header.algorithm)
            and header.key_id in (None, self.id)
        )


def read_keys(document: Any) -> tuple[SigningKey, ...]:
    """Return the keys for signatures in a JWK set (RFC 7517); unknown ones are left out."""
    items = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(items, list):
        return ()
    return tuple(key for item in items[:MAX_KEYS] if (key := _read_key(item)) is not None)


def read_header(token: str) -> TokenHeader:
    """Return a token's header; `Unauthenticated` for text that is no signed token, and for other algorithms."""
    if len(token) > MAX_TOKEN:
        raise Unauthenticated(f"The bearer token has more than {MAX_TOKEN} characters, the limit.")
    if not token.isascii():
        raise Unauthenticated(MALFORMED)
    head, dot, _ = token.partition(".")
    try:
        header = orjson.loads(base64.b64decode(head + "=" * (-len(head) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        # The cause would carry the token.
        raise Unauthenticated(MALFORMED) from None
    if not dot or not isinstance(header, dict):
        raise Unauthenticated(MALFORMED)
    algorithm, kind, key_id = header.get("alg"), header.get("typ", ""), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in KEY_TYPES:
        raise Unauthenticated(
            f"The bearer token's signature is of a kind that is not accepted; use {', '.join(KEY_TYPES)}."
        )
    if (
        not isinstance(kind, str)
        or kind.lower() not in TYPES
        or not (key_id is None or isinstance(key_id, str))
    ):
        raise Unauthenticated("The bearer token is not one for access: its typ or kid is wrong.")
    if "crit" in header or "b64" in header:
        raise Unauthenticated("The bearer token asks for extensions that are not known here (crit, b64).")
    return TokenHeader(algorithm, key_id)


def verified_claims(token: str, header: TokenHeader, keys: tuple[SigningKey, ...]) -> dict[str, Any]:
    """Return a token's claims once one of `keys` proves its signature; `Unauthenticated` if none does."""
    registry = SignatureRegistry(algorithms=[header.algorithm], strict_check_header=False)
    for key in keys:
        try:
            found = jws.deserialize_compact(token.encode(), key.key, registry=registry)
        except (JoseError, ValueError, TypeError):
            continue  # try the next key
        try:
            claims = orjson.loads(found.payload)
        except ValueError:
            raise Unauthenticated(MALFORMED) from None
        if not isinstance(claims, dict):
            raise Unauthenticated(MALFORMED)
        return claims
    raise Unauthenticated(WRONG_SIGNATURE)


def _read_key(item: Any) -> SigningKey | None:
    if not isinstance(item, dict) or item.get("use", "sig") != "sig" or item.get("kty") == "oct":
        return None
    operations = item.get("key_ops", ["verify"])
    id, algorithm = item.get("kid"), item.get("alg")
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    if not isinstance(id, str | None) or not isinstance(algorithm, str | None):
        return None
    try:
        public = {name: item[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in item}
        key = import_key(public)
    except (JoseError, ValueError, TypeError, KeyError, SecurityWarning):
        return None
    if not isinstance(key, RSAKey | ECKey | OKPKey):
        return None
    if isinstance(key, RSAKey) and key.public_key.key_size < MIN_RSA_BITS:
        return None
    return SigningKey(id, algorithm, key)


log = logging.getLogger(__name__)

DISCOVERY = "/.well-known/openid-configuration"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MAX_DOCUMENT = 1024 * 1024
FETCH_SECONDS = 10.0
READ_STATUSES = frozenset({200, 400, 401})
"""Statuses whose bodies say something: an error of OAuth is a 400 or a 401 (RFC 6749, section 5.2)."""
JSON_WANTED = {"Accept": "application/json"}
UNREACHABLE = "The issuer of tokens cannot be asked for its keys now; try again in a few seconds."

Fetch: TypeAlias = Callable[[str], Awaitable[Any]]
Send: TypeAlias = Callable[[ClientSession], AbstractAsyncContextManager[ClientResponse]]


class IssuerFailed(HsparseError):
    """The issuer did not answer, or its answer is no discovery document or key set."""


@dataclass(frozen=True, slots=True)
class IssuerLimits:
    """Times in seconds.

    Keys are fetched again at the age of `fresh_time`. If that fails, they are used up to the age of `stale_time`. They
    are fetched at most once in `pause`.
    """

    fresh_time: float = 3600.0
    stale_time: float = 24 * 3600.0
    pause: float = 15.0


class Issuer:
    """The issuer at `url`; `keys_for` gives the keys that may have signed a token.

    A token with an unknown key causes a fetch, because issuers rotate keys: one for all waiting requests, and at most
    one in a pause. So invented key ids cannot cause more.
    """

    def __init__(
        self, url: str, clock: Clock, fetch: Fetch | None = None, limits: IssuerLimits | None = None
    ) -> None:
        check_issuer_url(url)
        self.url = url
        self.version = 0
        """The number of key sets so far: a cached conclusion from one must not outlive it."""
        self._clock = clock
        self._fetch = fetch or fetch_json
        self._limits = limits or IssuerLimits()
        self._keys: tuple[SigningKey, ...] = ()
        self._document: dict[str, Any] = {}
        self._fetched: float | None = None
        self._tried: float | None = None
        self._flight: asyncio.Task[None] | None = None

    async def keys_for(self, header: TokenHeader) -> tuple[SigningKey, ...]:
        """Return the keys that may have made this signature, none if the issuer has no such key.

        `Busy` while the issuer cannot be reached and its keys are not known.
        """
        await self._wait_known()
        found = tuple(key for key in self._keys if key.fits(header))
        if not found and (self._flight is not None or self._may_try()):
            await self._refresh()
            found = tuple(key for key in self._keys if key.fits(header))
        return found

    async def endpoint(self, name: str) -> str:
        """Return an address that the issuer's discovery document names, such as `token_endpoint`.

        `Busy` while the document is not known; `Misconfigured` if it has none that can be trusted.
        """
        await self._wait_known()
        where = self._document.get(name)
        if not isinstance(where, str):
            raise Misconfigured(f"The discovery document of {self.url} has no {name}.")
        check_endpoint(where, name)
        return where

    async def _wait_known(self) -> None:
        """Wait until the issuer has answered lately enough; `Busy` if it does not."""
        age = self._age()
        if age is None or age > self._limits.stale_time:
            if self._flight is not None or self._may_try():
                await self._refresh()
            age = self._age()
            if age is None or age > self._limits.stale_time:
                raise Busy(UNREACHABLE)
        elif age > self._limits.fresh_time and self._flight is None and self._may_try():
            self._start()

    def _age(self) -> float | None:
        return None if self._fetched is None else self._clock.monotonic() - self._fetched

    def _may_try(self) -> bool:
        return self._tried is None or self._clock.monotonic() - self._tried >= self._limits.pause

    async def _refresh(self) -> None:
        """Fetch the keys, or wait for the fetch that is under way; a failure is logged."""
        # A cancelled request must not fail the others that wait for the same fetch.
        await asyncio.shield(self._flight or self._start())

    def _start(self) -> asyncio.Task[None]:
        self._tried = self._clock.monotonic()
        self._flight = asyncio.create_task(self._load())
        return self._flight

    async def _load(self) -> None:
        try:
            keys = await self._ask()
            if keys != self._keys:
                self._keys = keys
                self.version += 1
            self._fetched = self._clock.monotonic()
        except IssuerFailed as error:
            log.warning("%s", error.message)
        finally:
            self._flight = None

    async def _ask(self) -> tuple[SigningKey, ...]:
        document = await self._fetch(self.url.rstrip("/") + DISCOVERY)
        if not isinstance(document, dict) or document.get("issuer") != self.url:
            raise IssuerFailed(
                f"The discovery document of {self.url} is of another issuer; set --oidc-issuer to what it says."
            )
        where = document.get("jwks_uri")
        if not isinstance(where, str):
            raise IssuerFailed(f"The discovery document of {self.url} has no jwks_uri.")
        try:
            check_endpoint(where, "jwks_uri")
        except Misconfigured as error:
            raise IssuerFailed(error.message) from error
        keys = read_keys(await self._fetch(where))
        if not keys:
            raise IssuerFailed(f"The issuer {self.url} has no keys for signatures that are accepted here.")
        self._document = document
        return keys


def check_issuer_url(url: str) -> None:
    """Raise `Misconfigured` for an issuer that could not be trusted, or has a query (OpenID Discovery, section 3)."""
    check_endpoint(url, "the issuer")
    if urlsplit(url).query:
        raise _unlike_a_url("the issuer")


def check_endpoint(url: str, what: str) -> None:
    """Raise `Misconfigured` for a URL whose answers could not be trusted: https, or http on this machine.

    It may have a query (RFC 6749, section 3).
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        raise Misconfigured(f"The URL of {what} is not a URL: {error}.") from error
    if not host or parts.fragment or parts.username is not None:
        raise _unlike_a_url(what)
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        raise Misconfigured(f"The URL of {what} must begin with https: its answers decide who signs in.")


def _unlike_a_url(what: str) -> Misconfigured:
    return Misconfigured(f"The URL of {what} must be like https://login.example.org/realm.")


async def fetch_json(url: str) -> Any:
    """GET a JSON document of at most 1 MiB, without following redirects; `IssuerFailed` says what went wrong."""
    status, found = await read_answer(
        url, lambda session: session.get(url, allow_redirects=False, headers=JSON_WANTED)
    )
    if status != 200:
        raise IssuerFailed(f"{url} answered {status}, not 200.")
    return found


async def read_answer(url: str, send: Send) -> tuple[int, Any]:
    """Return the status and the JSON of the answer to a request, None for any other answer than 200, 400 and 401.

    `IssuerFailed` if there is no answer, or one that is no JSON, is too long or takes too long.
    """
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=FETCH_SECONDS)) as session,
            send(session) as answer,
        ):
            if answer.status not in READ_STATUSES:
                return answer.status, None
            data = bytearray()
            async for block in answer.content.iter_any():
                data += block
                if len(data) > MAX_DOCUMENT:
                    raise IssuerFailed(f"{url} answered with more than {MAX_DOCUMENT} bytes, the limit.")
            return answer.status, orjson.loads(data)
    except (ClientError, TimeoutError, OSError) as error:
        raise IssuerFailed(f"{url} did not answer: {type(error).__name__}.") from error
    except ValueError as error:
        raise IssuerFailed(f"{url} did not answer with JSON.") from error
