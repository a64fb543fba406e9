"""Who is asked to sign in: programs and people by Basic, scripts of pages without a window of the browser."""

from __future__ import annotations

import pytest

from tests.support.rest_client import RestClient

BASIC = 'Basic realm="hsparse", charset="UTF-8"'
UNKNOWN = 'xBasic realm="hsparse", charset="UTF-8"'
PAGE = {"Sec-Fetch-Mode": "navigate", "Accept": "text/html,*/*"}
PLAIN_PAGE = {"Accept": "text/html,application/xhtml+xml"}
SCRIPTS = [
    {"Sec-Fetch-Mode": "cors"},
    {"Sec-Fetch-Mode": "same-origin", "Accept": "text/html"},
    {"Sec-Fetch-Mode": "no-cors"},
    {"Origin": "https://viewer.example.org"},
    {"X-Requested-With": "XMLHttpRequest", "Accept": "text/html"},
]


@pytest.mark.parametrize("headers", [{}, PAGE, PLAIN_PAGE])
async def test_a_bad_password_is_asked_for_again(rest: RestClient, headers: dict[str, str]) -> None:
    reply = await rest("GET", "/", user="nobody", headers=headers)
    assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, BASIC)


@pytest.mark.parametrize("headers", SCRIPTS)
async def test_a_script_is_told_by_a_name_that_opens_no_window(
    rest: RestClient, headers: dict[str, str]
) -> None:
    reply = await rest("GET", "/", user="nobody", headers=headers)
    assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, UNKNOWN)


@pytest.mark.parametrize("headers", [PAGE, PLAIN_PAGE])
async def test_a_person_who_may_not_is_asked_to_sign_in(rest: RestClient, headers: dict[str, str]) -> None:
    reply = await rest("GET", "/", user=None, headers=headers)
    assert (reply.status, reply["error"]["kind"]) == (401, "unauthenticated")
    assert reply.headers["WWW-Authenticate"] == BASIC
    signed_in = await rest("GET", "/", user="test_user2", headers=headers)
    assert (signed_in.status, "WWW-Authenticate" in signed_in.headers) == (403, False)


@pytest.mark.parametrize("headers", [{}, {"Accept": "application/json"}, *SCRIPTS])
async def test_programs_without_credentials_are_refused_as_by_hsds(
    rest: RestClient, headers: dict[str, str]
) -> None:
    reply = await rest("GET", "/", user=None, headers=headers)
    assert (reply.status, "WWW-Authenticate" in reply.headers) == (403, False)


async def test_a_person_who_may_is_not_asked(rest: RestClient) -> None:
    reply = await rest("GET", "/about", user=None, headers=PAGE)
    assert (reply.status, "WWW-Authenticate" in reply.headers) == (200, False)
