"""An OpenID Connect issuer: its keys and endpoints, found by discovery, and the verification of its tokens.

The tokens are JSON Web Tokens (RFC 7519). Only asymmetric signatures are accepted: if the algorithm could be `none` or
a shared secret, anyone with the public key could sign. A key in the token itself (`jwk`, `jku`, `x5c`, `x5u`) is
ignored.
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

from hsparse.api import Busy, Clock, HsparseError, Misconfigured, Unauthenticated, shielded

KEY_TYPES = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "Ed25519": "OKP",
}
"""Maps each accepted algorithm to its key type."""
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
        """Tell whether the key matches a token's algorithm and key id."""
        return (
            self.key.key_type == KEY_TYPES[header.algorithm]
            and self.algorithm in (None, header.algorithm)
            and header.key_id in (None, self.id)
        )


def read_keys(document: Any) -> tuple[SigningKey, ...]:
    """Return the signing keys in a JWK set (RFC 7517), without unusable keys and without all after the first 100."""
    items = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(items, list):
        return ()
    return tuple(key for item in items[:MAX_KEYS] if (key := _read_key(item)) is not None)


def read_header(token: str) -> TokenHeader:
    """Return a token's header; raise `Unauthenticated` if it is not a signed token of an accepted algorithm."""
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
            f"The bearer token's signature algorithm is not accepted; use one of {', '.join(KEY_TYPES)}."
        )
    if (
        not isinstance(kind, str)
        or kind.lower() not in TYPES
        or not (key_id is None or isinstance(key_id, str))
    ):
        raise Unauthenticated("The bearer token is not an access token: its typ or kid is wrong.")
    if "crit" in header or "b64" in header:
        raise Unauthenticated("The bearer token requires extensions that this server lacks (crit, b64).")
    return TokenHeader(algorithm, key_id)


def verified_claims(token: str, header: TokenHeader, keys: tuple[SigningKey, ...]) -> dict[str, Any]:
    """Return the claims of a token whose signature one of `keys` verifies; raise `Unauthenticated` if no key does."""
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
"""HTTP statuses whose bodies are read; errors of OAuth have 400 or 401 (RFC 6749, section 5.2)."""
JSON_WANTED = {"Accept": "application/json"}
UNREACHABLE = "The token issuer does not answer a request for its keys; try again in a few seconds."

Fetch: TypeAlias = Callable[[str], Awaitable[Any]]
Send: TypeAlias = Callable[[ClientSession], AbstractAsyncContextManager[ClientResponse]]


class IssuerFailed(HsparseError):
    """The issuer did not answer, or its answer is not a discovery document or key set."""


@dataclass(frozen=True, slots=True)
class IssuerLimits:
    """Times in seconds for fetching keys.

    Keys are fetched again at the age of `fresh_time`. If that fails, the old keys are used up to the age of
    `stale_time`. Keys are fetched at most once in `pause` seconds.
    """

    fresh_time: float = 3600.0
    stale_time: float = 24 * 3600.0
    pause: float = 15.0


class Issuer:
    """The issuer at `url`; `keys_for` returns the keys that may have signed a token.

    A token with an unknown key causes a fetch, because issuers rotate keys. All waiting requests share the fetch, and
    fetches are `pause` seconds apart, so invented key ids cannot flood the issuer.
    """

    def __init__(
        self, url: str, clock: Clock, fetch: Fetch | None = None, limits: IssuerLimits | None = None
    ) -> None:
        check_issuer_url(url)
        self.url = url
        self.version = 0
        """Number of the current key set; results that were cached under another number are invalid."""
        self._clock = clock
        self._fetch = fetch or fetch_json
        self._limits = limits or IssuerLimits()
        self._keys: tuple[SigningKey, ...] = ()
        self._document: dict[str, Any] = {}
        self._fetched: float | None = None
        self._tried: float | None = None
        self._flight: asyncio.Task[None] | None = None

    async def keys_for(self, header: TokenHeader) -> tuple[SigningKey, ...]:
        """Return the keys that may have made this signature; the result is empty if the issuer has no such key.

        Raises `Busy` while the issuer cannot be reached and its keys are not known.
        """
        await self._wait_known()
        found = tuple(key for key in self._keys if key.fits(header))
        if not found and (self._flight is not None or self._may_try()):
            await self._refresh()
            found = tuple(key for key in self._keys if key.fits(header))
        return found

    async def endpoint(self, name: str) -> str:
        """Return a URL in the issuer's discovery document by its name, such as `token_endpoint`.

        Raises `Busy` while the document is not known, `Misconfigured` if the URL is missing or cannot be trusted.
        """
        await self._wait_known()
        where = self._document.get(name)
        if not isinstance(where, str):
            raise Misconfigured(f"The discovery document of {self.url} has no {name}.")
        check_endpoint(where, name)
        return where

    async def _wait_known(self) -> None:
        """Wait until the keys are at most `stale_time` old, or raise `Busy`; renew them after `fresh_time`."""
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
        """Fetch the keys, or wait for the running fetch; a failure is logged."""
        # A cancelled request must not fail the others that wait for the same fetch.
        await shielded(self._flight or self._start())

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
                f"The discovery document of {self.url} names another issuer; set --oidc-issuer to that URL."
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
            raise IssuerFailed(
                f"The issuer {self.url} has no signing keys of a kind that this server accepts."
            )
        self._document = document
        return keys


def check_issuer_url(url: str) -> None:
    """Raise `Misconfigured` if `check_endpoint` refuses the URL or it has a query (OpenID Discovery, section 3)."""
    check_endpoint(url, "the issuer")
    if urlsplit(url).query:
        raise _unlike_a_url("the issuer")


def check_endpoint(url: str, what: str) -> None:
    """Raise `Misconfigured` unless a URL uses https, or http on this machine, so that its answers can be trusted.

    The URL may have a query (RFC 6749, section 3).
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
    """GET a JSON document of at most 1 MiB without following redirects; raise `IssuerFailed` if that fails."""
    status, found = await read_answer(
        url, lambda session: session.get(url, allow_redirects=False, headers=JSON_WANTED)
    )
    if status != 200:
        raise IssuerFailed(f"{url} answered {status}, not 200.")
    return found


async def read_answer(url: str, send: Send) -> tuple[int, Any]:
    """Return the status and the JSON of an answer; the JSON is None for statuses other than 200, 400 and 401.

    Raises `IssuerFailed` if there is no answer, or if it is not JSON, too long or too late.
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
