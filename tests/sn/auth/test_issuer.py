"""What an issuer is asked: its keys, and codes of pages for tokens."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from hsparse.errors import Busy, Misconfigured, RateLimited, Unauthenticated
from hsparse.openid.code_flow import FAILURE_SECONDS, FAILURES, CodeFlow, CodeGrant
from hsparse.openid.issuer import (
    MAX_DOCUMENT,
    Issuer,
    IssuerFailed,
    SigningKey,
    TokenHeader,
    check_issuer_url,
    fetch_json,
)
from tests.support.token_issuer import TokenIssuer, serving
from tests.testing.manual_clock import ManualClock

HEADER = TokenHeader("RS256", "rsa-1")


class Rig:
    """An issuer, what asks it with a clock that stands still, and the grant of a page."""

    def __init__(self, there: TokenIssuer) -> None:
        self.there = there
        self.clock = ManualClock(time.time())
        self.issuer = Issuer(there.url, self.clock)
        self.flow = CodeFlow(self.issuer, self.clock, CLIENT, "openid", 60.0)

    def grant(self) -> CodeGrant:
        asked = {"client_id": CLIENT, "redirect_uri": REDIRECT, "code_challenge": CHALLENGE, "nonce": NONCE}
        return CodeGrant(self.there.code(asked, "ann"), VERIFIER, NONCE, REDIRECT)

    async def find(self, id: str | None, algorithm: str = "RS256") -> tuple[SigningKey, ...]:
        return await self.issuer.keys_for(TokenHeader(algorithm, id))


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving(TokenIssuer(users={"ann": "x"})) as there:
        yield Rig(there)


async def test_keys_are_found_by_discovery_and_fetched_once(rig: Rig) -> None:
    (rsa,) = await rig.find("rsa-1")
    assert rsa.id == "rsa-1"
    (ec,) = await rig.find("ec-1", "ES256")
    assert ec.key.key_type == "EC"
    assert await rig.find(None) == (rsa,)
    assert rig.there.asked == 1


async def test_requests_side_by_side_share_one_fetch(rig: Rig) -> None:
    found = await asyncio.gather(*(rig.find("rsa-1") for _ in range(50)))
    assert all(len(keys) == 1 for keys in found)
    assert rig.there.asked == 1


async def test_a_request_that_goes_away_does_not_fail_the_others(rig: Rig) -> None:
    gone, stays = (asyncio.create_task(rig.find("rsa-1")) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert len(await stays) == 1
    assert rig.there.asked == 1


async def test_rotated_keys_are_found(rig: Rig) -> None:
    await rig.find("rsa-1")
    version = rig.issuer.version
    rig.there.rotate()
    rig.clock.time += 15
    assert len(await rig.find("rsa-2")) == 1
    assert await rig.find("rsa-1") == (), "a key that the issuer withdrew"
    assert rig.issuer.version == version + 1
    assert rig.there.asked == 2


async def test_made_up_key_ids_cause_one_fetch_a_pause(rig: Rig) -> None:
    for _ in range(4):
        await asyncio.gather(*(rig.find(f"made-up-{n}") for n in range(100)))
        rig.clock.time += 14
        assert await rig.find("made-up") == ()
        rig.clock.time += 1
    assert rig.there.asked == 4


async def test_keys_are_fetched_again_when_they_are_old_without_a_wait(rig: Rig) -> None:
    await rig.find("rsa-1")
    rig.there.rotate()
    rig.clock.time += 3601
    assert len(await rig.find("rsa-1")) == 1, "what is known answers while the fetch is under way"
    assert len(await rig.find("rsa-2")) == 1
    assert rig.there.asked == 2


async def test_while_the_issuer_is_down_its_keys_are_used_for_a_day(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.find("rsa-1")
    rig.there.down = True
    with caplog.at_level(logging.WARNING):
        for _ in range(24):
            rig.clock.time += 3600
            assert len(await rig.find("rsa-1")) == 1
        assert await rig.find("rsa-2") == ()
        rig.clock.time += 1
        with pytest.raises(Busy, match="try again"):
            await rig.find("rsa-1")
    assert "answered 503" in caplog.text
    rig.there.down = False
    rig.clock.time += 15
    assert len(await rig.find("rsa-1")) == 1


async def test_an_issuer_that_was_never_reached_is_asked_once_a_pause(rig: Rig) -> None:
    rig.there.down = True
    asked = 0

    async def fetch(url: str) -> Any:
        nonlocal asked
        asked += 1
        raise IssuerFailed("It does not answer.")

    issuer = Issuer(rig.there.url, rig.clock, fetch)
    for _ in range(3):
        for _ in range(10):
            with pytest.raises(Busy):
                await issuer.keys_for(HEADER)
        rig.clock.time += 15
    assert asked == 3


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"issuer": "http://127.0.0.1:1"}, "names another issuer"),
        ({"jwks_uri": None}, "no jwks_uri"),
        ({"jwks_uri": "http://example.org/keys"}, "must begin with https"),
        ({"jwks_uri": "file:///etc/passwd"}, "jwks_uri must be"),
    ],
)
async def test_a_discovery_document_that_cannot_be_trusted_is_logged(
    rig: Rig, document: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.there.document = document
    with caplog.at_level(logging.WARNING), pytest.raises(Busy):
        await rig.find("rsa-1")
    assert message in caplog.text
    assert rig.there.asked == 0


async def test_an_issuer_without_usable_keys_is_logged(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.there.keys.clear()
    with caplog.at_level(logging.WARNING), pytest.raises(Busy):
        await rig.find("rsa-1")
    assert "has no signing keys" in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org", "ftp://example.org", "login.example.org", "https://",
        "https://user:secret@example.org", "https://example.org?x=1", "https://example.org#x", "https://[",
        "",
    ],
)  # fmt: skip
def test_urls_that_could_not_be_trusted(url: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        check_issuer_url(url)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("url", ["https://example.org/realm", "http://127.0.0.1:8080", "http://localhost/x"])
def test_urls_that_can_be(url: str) -> None:
    check_issuer_url(url)


async def test_what_is_fetched_is_limited() -> None:
    async def answer(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name == "away":
            raise web.HTTPFound("/big")
        return web.Response(body=b" " * (MAX_DOCUMENT + 1) if name == "big" else b"<html>")

    app = web.Application()
    app.router.add_get("/{name}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        for name, message in (("big", "more than"), ("away", "answered 302"), ("html", "with JSON")):
            with pytest.raises(IssuerFailed, match=message):
                await fetch_json(f"{url}/{name}")
    finally:
        await runner.cleanup()
    with pytest.raises(IssuerFailed, match="did not answer"):
        await fetch_json(url)


CLIENT, REDIRECT = "explorer", "http://127.0.0.1:5101/sign-in"
VERIFIER, NONCE = "v" * 43, "n" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


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
