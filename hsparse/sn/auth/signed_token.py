"""JSON Web Tokens (RFC 7519) that an issuer signed, and the public keys that verify them.

Only asymmetric signatures are accepted: with a shared secret, or `none`, anyone with the public key could sign. A key
in the token itself (`jwk`, `jku`, `x5c`, `x5u`) is ignored.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import orjson
from joserfc import jws
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key

from hsparse.errors import Unauthenticated

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
