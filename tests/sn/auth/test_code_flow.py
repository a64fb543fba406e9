from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from hsparse.errors import Busy, Misconfigured, RateLimited, Unauthenticated
from hsparse.openid.code_flow import FAILURE_SECONDS, FAILURES, CodeFlow, CodeGrant
from hsparse.openid.issuer import Issuer
from tests.support.token_issuer import TokenIssuer, serving
from tests.testing.manual_clock import ManualClock

CLIENT, REDIRECT = "explorer", "http://127.0.0.1:5101/sign-in"
VERIFIER, NONCE = "v" * 43, "n" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


class Rig:
    """An issuer, the flow of a server that trusts it, and the grant of a page."""

    def __init__(self, there: TokenIssuer) -> None:
        self.there = there
        self.clock = ManualClock()
        self.clock.time = time.time()
        self.flow = CodeFlow(Issuer(there.url, self.clock), self.clock, CLIENT, "openid", 60.0)

    def grant(self) -> CodeGrant:
        asked = {"client_id": CLIENT, "redirect_uri": REDIRECT, "code_challenge": CHALLENGE, "nonce": NONCE}
        return CodeGrant(self.there.code(asked, "ann"), VERIFIER, NONCE, REDIRECT)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving(TokenIssuer(users={"ann": "x"})) as there:
        yield Rig(there)


async def test_a_code_is_exchanged_once(rig: Rig) -> None:
    grant = rig.grant()
    tokens = await rig.flow.exchange(grant)
    assert tokens.access.count(".") == tokens.identity.count(".") == 2
    with pytest.raises(Unauthenticated, match="invalid_grant"):
        await rig.flow.exchange(grant)
    for secret in (grant.code, VERIFIER, tokens.access, tokens.identity):
        assert secret not in f"{grant!r}{tokens!r}"


@pytest.mark.parametrize("changed", [{"verifier": "w" * 43}, {"redirect_uri": "http://127.0.0.1/evil"}])
async def test_who_stole_a_code_gets_nothing_for_it(rig: Rig, changed: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated, match="invalid_grant"):
        await rig.flow.exchange(replace(rig.grant(), **changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"nonce": "m" * 43}, "another sign-in"),
        ({"nonce": None}, "another sign-in"),
        ({"aud": "another"}, "another audience"),
        ({"azp": "another"}, "another client"),
        ({"iss": "https://another.example"}, "another issuer"),
        ({"exp": 1}, "expired"),
    ],
)
async def test_a_token_of_another_sign_in_is_refused(rig: Rig, changed: dict[str, Any], message: str) -> None:
    rig.there.changed = changed
    with pytest.raises(Unauthenticated, match=message):
        await rig.flow.exchange(rig.grant())


async def test_failures_from_an_address_have_a_limit(rig: Rig) -> None:
    wrong = replace(rig.grant(), code="made up")
    for _ in range(FAILURES):
        with pytest.raises(Unauthenticated):
            await rig.flow.exchange(wrong)
    with pytest.raises(RateLimited):
        await rig.flow.exchange(rig.grant())
    rig.clock.time += FAILURE_SECONDS
    for _ in range(FAILURES + 1):
        await rig.flow.exchange(rig.grant())


async def test_what_the_issuer_does_not_answer(rig: Rig) -> None:
    assert (await rig.flow.description())["authorization_endpoint"] == f"{rig.there.url}/authorize"
    rig.there.down = True
    with pytest.raises(Busy, match="answered 503"):
        await rig.flow.exchange(rig.grant())
    with pytest.raises(Busy, match="does not answer a request for"):
        await Rig(rig.there).flow.description()


@pytest.mark.parametrize(
    "where",
    [None, "http://login.example.org/authorize?p=1", "https://a.example/x?p=1#y", "javascript:alert(1)"],
)
async def test_an_address_that_cannot_be_trusted(rig: Rig, where: str | None) -> None:
    rig.there.document = {"authorization_endpoint": where}
    with pytest.raises(Misconfigured, match="authorization_endpoint"):
        await rig.flow.description()


async def test_addresses_may_have_a_query_which_stays(rig: Rig) -> None:
    """RFC 6749, sections 3.1 and 3.2; Azure AD B2C names its policy there."""
    rig.there.query = "?p=sign_in"
    assert (await rig.flow.description())["authorization_endpoint"] == f"{rig.there.url}/authorize?p=sign_in"
    assert (await rig.flow.exchange(rig.grant())).identity


@pytest.mark.parametrize("where", ["/authorize", "/keys"])
async def test_an_answer_that_has_no_tokens(rig: Rig, where: str) -> None:
    rig.there.document = {"token_endpoint": rig.there.url + where}
    with pytest.raises(Busy, match="answered 405"):
        await rig.flow.exchange(rig.grant())


async def test_the_scope_has_openid() -> None:
    flow = CodeFlow(Issuer("https://login.example.org", ManualClock()), ManualClock(), CLIENT, "groups", 60.0)
    assert flow.scope == "openid groups"
