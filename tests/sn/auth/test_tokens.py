"""Signed tokens, by themselves and of an issuer that is asked."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwk

from hsparse.errors import Busy, Misconfigured, Unauthenticated
from hsparse.model.acl import Principal
from hsparse.openid import token_authenticator
from hsparse.openid.issuer import (
    KEY_TYPES,
    MAX_TOKEN,
    Issuer,
    TokenHeader,
    read_header,
    read_keys,
    verified_claims,
)
from hsparse.openid.token_authenticator import TokenAuthenticator, TokenRules, claimed
from tests.support.characters import CHARACTERS
from tests.support.token_issuer import LIFETIME, TokenIssuer, serving
from tests.testing.manual_clock import ManualClock

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


def not_verified(token: str, message: str) -> None:
    with pytest.raises(Unauthenticated, match=message) as caught:
        claims_of(token)
    assert caught.value.__cause__ is None
    for piece in token.split("."):
        assert len(piece) < 20 or piece not in caught.value.message


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
        not_verified(
            f"{part({'alg': algorithm, 'typ': 'JWT'})}.{part(ISSUER.claims('ann'))}.", "algorithm is not"
        )


def test_a_public_key_is_no_shared_secret() -> None:
    """The old confusion of algorithms: HS256 keyed with what everybody knows, the public key."""
    for header in ({"alg": "HS256"}, {"alg": "HS256", "kid": RSA.kid}):
        body = f"{part(header)}.{part(ISSUER.claims('ann'))}"
        mac = hmac.digest(RSA.as_pem(private=False), body.encode(), "sha256")
        not_verified(f"{body}.{part(mac)}", "algorithm is not accepted")


def test_another_key_under_the_same_id_is_refused() -> None:
    other = jwk.RSAKey.generate_key(2048)
    token = ISSUER.signed({"alg": "RS256", "kid": RSA.kid}, b"{}", other)
    not_verified(token, "signature is not one of the issuer's")
    not_verified(ISSUER.signed({"alg": "RS256"}, b"{}", other), "signature is not one of the issuer's")


def test_a_key_that_the_token_brings_along_is_not_looked_at() -> None:
    other = jwk.RSAKey.generate_key(2048)
    header = {
        "alg": "RS256",
        "kid": RSA.kid,
        "jwk": other.as_dict(private=False),
        "jku": "http://127.0.0.1/keys",
    }
    not_verified(ISSUER.signed(header, b"{}", other), "signature is not one of the issuer's")


def test_changed_tokens_are_refused() -> None:
    head, _, signature = ISSUER.token("ann").split(".")
    not_verified(f"{head}.{part(ISSUER.claims('root'))}.{signature}", "signature is not one")
    not_verified(f"{head}.{part(ISSUER.claims('root'))}.", "signature is not one")


@pytest.mark.parametrize(
    "extra", [{"crit": ["exp"], "exp": 1}, {"crit": ["b64"], "b64": False}, {"b64": False}]
)
def test_extensions_are_refused(extra: dict[str, Any]) -> None:
    head = {"alg": "RS256", "kid": RSA.kid, **extra}
    not_verified(f"{part(head)}.{part({})}.{part(b'x')}", "extensions that this server lacks")


@pytest.mark.parametrize("extra", [{"typ": "logout+jwt"}, {"typ": 1}, {"kid": 1}])
def test_tokens_for_something_else_are_refused(extra: dict[str, Any]) -> None:
    not_verified(f"{part({'alg': 'RS256', **extra})}.{part({})}.{part(b'x')}", "not an access token")


def test_headers_that_nobody_knows_are_no_fault() -> None:
    token = ISSUER.signed({"alg": "RS256", "kid": RSA.kid, "typ": "at+jwt", "nonce": "x"}, b"{}", RSA)
    assert claims_of(token) == {}


@pytest.mark.parametrize("payload", [b"", b"[]", b"1", b"{", b"\xff", b'{"exp": NaN}'])
def test_a_payload_that_is_no_object_is_refused(payload: bytes) -> None:
    not_verified(ISSUER.signed({"alg": "RS256", "kid": RSA.kid}, payload, RSA), "not a signed JSON Web Token")


def test_a_token_has_a_limit() -> None:
    not_verified("e" * (MAX_TOKEN + 1), f"more than {MAX_TOKEN} characters")


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


ANN = Principal("ann", groups=frozenset({"beam", "staff"}))


class Rig:
    """An issuer, and an authenticator that trusts it; its clock begins now, as the issuer's does."""

    def __init__(self, issuer: TokenIssuer) -> None:
        self.issuer = issuer
        self.clock = ManualClock(time.time())
        rules = TokenRules(("other", "hsparse"), "preferred_username", "realm_access.roles")
        self.authenticator = TokenAuthenticator(Issuer(issuer.url, self.clock), self.clock, rules)
        self.sign_in = self.authenticator.principal

    async def refused(self, token: str, message: str) -> None:
        with pytest.raises(Unauthenticated, match=message) as caught:
            await self.sign_in(token)
        assert token not in caught.value.message

    async def ask(self, **form: str) -> str:
        """Return an access token as the issuer's token endpoint gives one."""
        async with ClientSession() as session, session.post(f"{self.issuer.url}/token", data=form) as answer:
            assert answer.status == 200
            return str((await answer.json())["access_token"])


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    issuer = TokenIssuer(users={"ann": "secret", "robot": "wires"}, groups={"ann": ["beam", "staff"]})
    async with serving(issuer):
        yield Rig(issuer)


async def test_tokens_of_both_grants_sign_in(rig: Rig) -> None:
    token = await rig.ask(grant_type="password", username="ann", password="secret", client_id="hsparse")
    assert await rig.sign_in(token) == ANN
    token = await rig.ask(grant_type="client_credentials", client_id="robot", client_secret="wires")
    assert await rig.sign_in(token) == Principal("robot")


CLAIMS: list[tuple[dict[str, Any], str]] = [
    ({"iss": "http://127.0.0.1:1"}, "comes from another issuer"),
    ({"iss": None}, "comes from another issuer"),
    ({"aud": "account"}, "another audience"),
    ({"aud": ["account", None, 1]}, "another audience"),
    ({"aud": None}, "another audience"),
    ({"aud": {"hsparse": 1}}, "another audience"),
    ({"exp": None}, "no time of expiry"),
    ({"exp": 1}, "has expired"),
    ({"exp": "tomorrow"}, "exp is not a time"),
    ({"exp": True}, "exp is not a time"),
    ({"exp": [1]}, "exp is not a time"),
    ({"nbf": 99999999999}, "not valid yet"),
    ({"iat": 99999999999}, "not valid yet"),
    ({"preferred_username": None}, "claim preferred_username is missing"),
    ({"preferred_username": "a/../b"}, "not a valid user name"),
    ({"preferred_username": "default"}, "not a valid user name"),
    ({"preferred_username": "g:staff"}, "not a valid user name"),
    ({"preferred_username": ["ann"]}, "not a valid user name"),
    ({"preferred_username": "anonymous"}, "not a valid user name"),
]


@pytest.mark.parametrize(("changed", "message"), CLAIMS, ids=lambda value: str(value)[:40])
async def test_tokens_that_say_the_wrong_thing_are_refused(
    rig: Rig, changed: dict[str, Any], message: str
) -> None:
    await rig.refused(rig.issuer.token("ann", **changed), message)


async def test_an_audience_may_be_a_string(rig: Rig) -> None:
    assert await rig.sign_in(rig.issuer.token("ann", aud="hsparse")) == ANN


async def test_clocks_may_differ_by_the_leeway(rig: Rig) -> None:
    token = rig.issuer.token("ann", nbf=int(rig.clock.time) + 50)
    assert await rig.sign_in(token) == ANN
    rig.clock.time += LIFETIME + 50
    assert await rig.sign_in(token) == ANN, "expired for less than a minute"
    rig.clock.time += 20
    await rig.refused(token, "has expired")


async def test_a_token_remembered_expires_too(rig: Rig) -> None:
    token = rig.issuer.token("ann", exp=int(rig.clock.time) + 10)
    assert await rig.sign_in(token) == ANN
    rig.clock.time += 71
    await rig.refused(token, "has expired")


async def test_a_verified_token_is_not_verified_again_for_a_while(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real = token_authenticator.verified_claims

    def verified(token: str, *rest: Any) -> dict[str, Any]:
        seen.append(token)
        return real(token, *rest)

    monkeypatch.setattr(token_authenticator, "verified_claims", verified)
    token = rig.issuer.token("ann", exp=int(rig.clock.time) + 5000)
    for _ in range(5):
        assert await rig.sign_in(token) == ANN
    assert len(seen) == 1
    rig.clock.time += 300
    await rig.sign_in(token)
    assert len(seen) == 2
    await rig.refused(token[:-8] + "AAAAAAAA", "signature")


async def test_what_is_remembered_is_bounded(rig: Rig) -> None:
    rules = TokenRules(("hsparse",), remember_count=2)
    authenticator = TokenAuthenticator(Issuer(rig.issuer.url, rig.clock), rig.clock, rules)
    for name in ("a", "b", "c"):
        assert (await authenticator.principal(rig.issuer.token(name))).name == f"id-of-{name}"
    assert len(authenticator._verified) == 2


async def test_keys_rotate(rig: Rig) -> None:
    old = rig.issuer.token("ann")
    assert await rig.sign_in(old) == ANN
    rig.issuer.rotate()
    await rig.refused(rig.issuer.token("ann"), "signature is not one")  # within the pause of 15 s
    rig.clock.time += 15
    assert await rig.sign_in(rig.issuer.token("ann")) == ANN
    await rig.refused(old, "signature is not one")


async def test_a_token_is_in_no_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        token = rig.issuer.token("ann")
        await rig.sign_in(token)
        await rig.refused(rig.issuer.token("ann", exp=1), "expired")
        rig.issuer.down = True
        rig.clock.time += 100_000
        with pytest.raises(Busy):
            await rig.sign_in(token)
    assert token not in caplog.text
    assert token.split(".")[2] not in caplog.text


@pytest.mark.parametrize(
    ("roles", "groups"),
    [
        (["a", "b c", 1, "", "x" * 300], {"a", "b c"}),
        ("a b", {"a", "b"}),
        ({"a": 1}, set()),
        (None, set()),
        ([f"{n}" for n in range(1200)], {f"{n}" for n in range(1000)}),
    ],
)
async def test_groups_are_a_list_or_words(rig: Rig, roles: Any, groups: set[str]) -> None:
    token = rig.issuer.token("ann", realm_access={"roles": roles})
    assert (await rig.sign_in(token)).groups == groups


def test_a_claim_is_found_by_its_name_or_by_a_path() -> None:
    claims = {"a.b": 1, "a": {"b": 2, "c": {"d": 3}}, "https://example.org/groups": ["x"]}
    assert claimed(claims, "a.b") == 1
    assert claimed(claims, "a.c.d") == 3
    assert claimed(claims, "https://example.org/groups") == ["x"]
    for name in ("b", "a.x", "a.b.c", "a.c.d.e"):
        assert claimed(claims, name) is None


def test_an_issuer_without_an_audience_is_refused() -> None:
    with pytest.raises(Misconfigured, match="--oidc-audience"):
        TokenRules(())
