from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession
from joserfc import jwk

from hsparse.errors import Busy, Misconfigured, Unauthenticated
from hsparse.model.acl import Principal
from hsparse.openid import token_authenticator
from hsparse.openid.issuer import Issuer
from hsparse.openid.token_authenticator import TokenAuthenticator, TokenRules, claimed
from tests.support.token_issuer import LIFETIME, TokenIssuer, serving
from tests.testing.manual_clock import ManualClock

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


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_both_kinds_of_keys_sign_in(rig: Rig, algorithm: str) -> None:
    assert await rig.sign_in(rig.issuer.token("ann", algorithm)) == ANN


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


async def test_a_storm_of_made_up_keys_asks_the_issuer_once(rig: Rig) -> None:
    assert await rig.sign_in(rig.issuer.token("ann")) == ANN
    rig.clock.time += 15
    other = jwk.RSAKey.generate_key(2048)
    for number in range(50):
        token = rig.issuer.signed({"alg": "RS256", "kid": f"made-up-{number}"}, b"{}", other)
        await rig.refused(token, "signature is not one")
    assert rig.issuer.asked == 2


async def test_an_issuer_that_is_down_is_busy_not_a_wrong_token(rig: Rig) -> None:
    rig.issuer.down = True
    with pytest.raises(Busy):
        await rig.sign_in(rig.issuer.token("ann"))


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
