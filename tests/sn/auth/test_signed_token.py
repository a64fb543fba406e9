from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwk

from hsparse.errors import Unauthenticated
from hsparse.openid.issuer import (
    KEY_TYPES,
    MAX_TOKEN,
    TokenHeader,
    read_header,
    read_keys,
    verified_claims,
)
from tests.support.characters import CHARACTERS
from tests.support.token_issuer import TokenIssuer

ISSUER = TokenIssuer(url="http://127.0.0.1:1")
RSA, EC = ISSUER.keys["RS256"], ISSUER.keys["ES256"]
PUBLIC = [key.as_dict(private=False) for key in (RSA, EC)]
KEYS = read_keys({"keys": PUBLIC})


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def claims_of(token: str) -> dict[str, Any]:
    header = read_header(token)
    return verified_claims(token, header, tuple(key for key in KEYS if key.fits(header)))


def refused(token: str, message: str) -> None:
    with pytest.raises(Unauthenticated, match=message) as caught:
        claims_of(token)
    assert caught.value.__cause__ is None
    for piece in token.split("."):
        assert len(piece) < 20 or piece not in caught.value.message


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_signed_token_gives_its_claims(algorithm: str) -> None:
    assert claims_of(ISSUER.token("ann", algorithm))["preferred_username"] == "ann"


@pytest.mark.parametrize("algorithm", KEY_TYPES)
def test_every_algorithm_that_is_accepted_verifies(algorithm: str) -> None:
    curves = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
    key: jwk.Key = jwk.RSAKey.import_key(RSA.as_pem(private=True))
    if algorithm in curves:
        key = jwk.ECKey.generate_key(curves[algorithm], {"kid": "k"})
    elif algorithm == "Ed25519":
        key = jwk.OKPKey.generate_key("Ed25519", {"kid": "k"})
    token = ISSUER.signed({"alg": algorithm}, b'{"sub": "ann"}', key)
    keys = read_keys({"keys": [key.as_dict(private=False)]})
    assert verified_claims(token, read_header(token), keys) == {"sub": "ann"}


def test_unsigned_tokens_are_refused() -> None:
    for algorithm in ("none", "None", "NONE", ""):
        refused(f"{part({'alg': algorithm, 'typ': 'JWT'})}.{part(ISSUER.claims('ann'))}.", "algorithm is not")


def test_a_public_key_is_no_shared_secret() -> None:
    """The old confusion of algorithms: HS256 keyed with what everybody knows, the public key."""
    for header in ({"alg": "HS256"}, {"alg": "HS256", "kid": RSA.kid}):
        body = f"{part(header)}.{part(ISSUER.claims('ann'))}"
        mac = hmac.digest(RSA.as_pem(private=False), body.encode(), "sha256")
        refused(f"{body}.{part(mac)}", "algorithm is not accepted")


def test_another_key_under_the_same_id_is_refused() -> None:
    other = jwk.RSAKey.generate_key(2048)
    token = ISSUER.signed({"alg": "RS256", "kid": RSA.kid}, b"{}", other)
    refused(token, "signature is not one of the issuer's")
    refused(ISSUER.signed({"alg": "RS256"}, b"{}", other), "signature is not one of the issuer's")


def test_a_key_that_the_token_brings_along_is_not_looked_at() -> None:
    other = jwk.RSAKey.generate_key(2048)
    header = {
        "alg": "RS256",
        "kid": RSA.kid,
        "jwk": other.as_dict(private=False),
        "jku": "http://127.0.0.1/keys",
    }
    refused(ISSUER.signed(header, b"{}", other), "signature is not one of the issuer's")


def test_changed_tokens_are_refused() -> None:
    head, _, signature = ISSUER.token("ann").split(".")
    refused(f"{head}.{part(ISSUER.claims('root'))}.{signature}", "signature is not one")
    refused(f"{head}.{part(ISSUER.claims('root'))}.", "signature is not one")


@pytest.mark.parametrize(
    "extra", [{"crit": ["exp"], "exp": 1}, {"crit": ["b64"], "b64": False}, {"b64": False}]
)
def test_extensions_are_refused(extra: dict[str, Any]) -> None:
    head = {"alg": "RS256", "kid": RSA.kid, **extra}
    refused(f"{part(head)}.{part({})}.{part(b'x')}", "extensions that this server lacks")


@pytest.mark.parametrize("extra", [{"typ": "logout+jwt"}, {"typ": 1}, {"kid": 1}])
def test_tokens_for_something_else_are_refused(extra: dict[str, Any]) -> None:
    refused(f"{part({'alg': 'RS256', **extra})}.{part({})}.{part(b'x')}", "not an access token")


def test_headers_that_nobody_knows_are_no_fault() -> None:
    token = ISSUER.signed({"alg": "RS256", "kid": RSA.kid, "typ": "at+jwt", "nonce": "x"}, b"{}", RSA)
    assert claims_of(token) == {}


@pytest.mark.parametrize("payload", [b"", b"[]", b"1", b"{", b"\xff", b'{"exp": NaN}'])
def test_a_payload_that_is_no_object_is_refused(payload: bytes) -> None:
    refused(ISSUER.signed({"alg": "RS256", "kid": RSA.kid}, payload, RSA), "not a signed JSON Web Token")


def test_a_token_has_a_limit() -> None:
    refused("e" * (MAX_TOKEN + 1), f"more than {MAX_TOKEN} characters")


@given(st.text(CHARACTERS, max_size=60) | st.binary(max_size=40).map(part))
def test_any_text_is_refused(text: str) -> None:
    for token in (text, f"{text}.{text}.{text}", f"{part({'alg': 'ES256'})}.{text}.{text}"):
        with pytest.raises(Unauthenticated):
            claims_of(token)


def test_keys_are_those_for_signatures() -> None:
    rsa = PUBLIC[0]
    small = (2**1023 + 1).to_bytes(128, "big")
    left_out: list[Any] = [
        {**rsa, "use": "enc"},
        {**rsa, "key_ops": ["encrypt"]},
        {**rsa, "kid": 1},
        {**rsa, "n": "AQAB"},
        {**rsa, "n": part(small)},
        {**rsa, "n": 1},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "x"},
        {"kty": "RSA"},
        {"kty": "what"},
        {},
        None,
        "text",
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
    ]
    assert read_keys({"keys": [*left_out, rsa]}) == read_keys({"keys": [rsa]})
    assert len(read_keys({"keys": PUBLIC})) == 2
    for document in (None, [], {}, {"keys": None}, {"keys": {}}):
        assert read_keys(document) == ()
    assert len(read_keys({"keys": [rsa] * 1000})) == 100


def test_which_key_fits() -> None:
    rsa = KEYS[0]
    assert rsa.fits(TokenHeader("RS256", None))
    assert rsa.fits(TokenHeader("RS256", RSA.kid))
    assert not rsa.fits(TokenHeader("RS512", RSA.kid)), "the issuer says that it is for RS256"
    assert not rsa.fits(TokenHeader("ES256", RSA.kid))
    assert not rsa.fits(TokenHeader("RS256", "other"))
