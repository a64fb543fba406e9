"""The explorer: who gets it, its files and their headers, the rights it shows, and signing in by an issuer."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests

from hsparse.cli.embedded_server import embedded_server
from hsparse.config import load_settings
from hsparse.errors import BadRequest, NotFound
from hsparse.explorer.handlers import DOCS, NAMED, PAGE, static_file, static_files
from hsparse.model.acl import Right
from hsparse.openid.code_flow import read_grant
from hsparse.sn.records import streamed_records
from tests.sn.auth.test_issuer import CHALLENGE, CLIENT, NONCE, REDIRECT, VERIFIER
from tests.sn.conftest import DOMAIN
from tests.support.rest_client import Reply, RestClient
from tests.support.token_issuer import AUDIENCE, TokenIssuer, serving_in_thread

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
NONE = dict.fromkeys([right.value for right in Right], False)
ALL = dict.fromkeys(NONE, True)


async def test_a_browser_gets_the_page_and_a_program_the_top_level(bare: RestClient) -> None:
    page = await bare("GET", "/", user=None, accept=BROWSER)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.body == static_file(PAGE).body()
    for accept in ("*/*", "application/json"):
        answer = await bare("GET", "/", user=None, accept=accept)
        assert answer["domains"] == []
    assert "domains" in (await bare("GET", "/", user=None, accept=BROWSER, domain="/")).body


async def test_a_domain_is_answered_as_it_was(rest: RestClient) -> None:
    assert (await rest("GET", "/", accept=BROWSER))["root"]
    header = {"X-Hdf-domain": rest.domain or ""}
    assert (await rest("GET", "/", accept=BROWSER, domain=None, headers=header))["root"]


@pytest.mark.parametrize("name", ["/", *(f"/explorer/{name}" for name in static_files())])
async def test_every_file_has_the_headers_that_guard_it(bare: RestClient, name: str) -> None:
    reply = await bare("GET", name, user=None, accept=BROWSER)
    assert reply.status == 200
    policy = dict(part.split(" ", 1) for part in reply.headers["Content-Security-Policy"].split("; "))
    assert (policy["default-src"], policy["script-src"], policy["connect-src"]) == (
        "'none'",
        "'self'",
        "'self'",
    )
    assert policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    is_named = name == "/" or name.removeprefix("/explorer/") in NAMED
    assert reply.headers["Cache-Control"] == (
        "no-cache" if is_named else "public, max-age=31536000, immutable"
    )
    again = await bare(
        "GET", name, user=None, accept=BROWSER, headers={"If-None-Match": reply.headers["ETag"]}
    )
    assert (again.status, again.body) == (304, b"")


async def test_a_file_is_sent_as_it_is_kept(bare: RestClient) -> None:
    name = next(name for name in static_files() if name.endswith(".css"))
    plain = await bare("GET", f"/explorer/{name}", user=None, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    assert plain.body == gzip.decompress(static_file(name).compressed)
    packed = await bare("GET", f"/explorer/{name}", user=None, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert int(packed.headers["Content-Length"]) == len(static_file(name).compressed)


@pytest.mark.parametrize("name", ["/", "/docs"])
async def test_a_coding_has_an_etag_of_its_own_which_may_come_back_weak(bare: RestClient, name: str) -> None:
    async def ask(coding: str, known: str = "") -> Reply:
        headers = {"Accept-Encoding": coding} | ({"If-None-Match": known} if known else {})
        return await bare("GET", name, user=None, accept=BROWSER, headers=headers)

    packed, plain = [(await ask(coding)).headers["ETag"] for coding in ("gzip", "identity")]
    assert packed != plain
    for coding, own, other in (("gzip", packed, plain), ("identity", plain, packed)):
        for known in (own, f"W/{own}", f'"x", W/{own}', "*"):
            again = await ask(coding, known)
            assert (again.status, again.headers["ETag"]) == (304, own)
        assert (await ask(coding, other)).status == 200


@pytest.mark.parametrize("weight", ["q=0", "Q=0.000 ", "charset=utf-8; q=0", "q = 0.0;x=1"])
async def test_who_refuses_html_gets_json(bare: RestClient, weight: str) -> None:
    accept = f"text/html;{weight}, */*"
    assert (await bare("GET", "/", user=None, accept=accept))["domains"] == []
    for wanted in ("text/html;q=0.1", "text/html;q=0.001, */*", "TEXT/HTML;level=0"):
        assert b"<!doctype html>" in (await bare("GET", "/", user=None, accept=wanted)).body.lower()


async def test_what_is_at_the_top_depends_on_accept(
    bare: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    streamed = {"Accept-Encoding": "gzip"}
    for size in (streamed_records.PIECE_BYTES, 1):
        monkeypatch.setattr(streamed_records, "PIECE_BYTES", size)
        for accept in (BROWSER, "application/json"):
            reply = await bare("GET", "/", user=None, accept=accept, headers=streamed)
            names = {name.strip() for header in reply.headers.getall("Vary") for name in header.split(",")}  # type: ignore[attr-defined]
            assert {"Accept", "Origin"} <= names


async def test_a_file_of_another_version(bare: RestClient) -> None:
    reply = await bare("GET", "/explorer/index-00000000.js", user=None)
    assert (reply.status, reply["error"]["kind"]) == (404, "not_found")


async def rights_of(rest: RestClient, **options: Any) -> Any:
    return (await rest("GET", "/explorer/rights", **options)).body.get("rights")


async def test_they_are_those_of_the_entries_that_decide(rest: RestClient) -> None:
    other: dict[str, Any] = {"user": "test_user2"}
    assert await rights_of(rest) == ALL
    assert await rights_of(rest, user="admin") == ALL
    refused = await rest("GET", "/explorer/rights", **other)
    assert (refused.status, refused["error"]["kind"]) == (403, "forbidden")
    await rest("PUT", "/acls/default", {"read": True})
    assert await rights_of(rest, **other) == NONE | {"read": True} == await rights_of(rest, user=None)
    await rest("PUT", "/acls/g:test_group", {"read": True, "update": True})
    assert await rights_of(rest, **other) == NONE | {"read": True, "update": True}
    await rest("PUT", "/acls/test_user2", {"read": True, "delete": True})
    assert await rights_of(rest, **other) == NONE | {"read": True, "delete": True}


async def test_folders_have_them_too(rest: RestClient) -> None:
    folder = DOMAIN.rpartition("/")[0]
    assert await rights_of(rest, domain=folder) == ALL
    assert await rights_of(rest, domain=folder, user="test_user2") == NONE | {"read": True}
    assert await rights_of(rest, domain="/", user="test_user2") == NONE | {"read": True}
    assert await rights_of(rest, domain="/", user="admin") == ALL


@pytest.mark.parametrize("user", ["test_user1", "admin"])
async def test_nobody_changes_what_a_server_only_reads(rest: RestClient, user: str) -> None:
    rest.service.settings = replace(rest.service.settings, read_only=True)
    assert await rights_of(rest, user=user) == NONE | {"read": True, "readACL": True}


@pytest.mark.parametrize("name", [PAGE, DOCS])
def test_the_pages_name_files_that_are_there(name: str) -> None:
    page = static_file(name).body().decode()
    named = re.findall(r'(?:src|href)="\./explorer/([^"]+)"', page)
    assert len(named) >= 2
    assert {static_file(name).media.partition(";")[0] for name in named} == {"text/javascript", "text/css"}
    assert set(named) < set(static_files())


@pytest.mark.parametrize("name", [PAGE, DOCS])
def test_the_pages_have_nothing_that_their_policy_forbids(name: str) -> None:
    page = static_file(name).body().decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|style=", page)
    assert not re.search(r'(?:src|href)="(?!\./explorer/|data:,)', page)


def test_scripts_compile_nothing_from_text() -> None:
    for name, file in static_files().items():
        # Swagger UI has a way without it.
        if name.endswith(".js") and not name.startswith("docs-"):
            assert not re.search(rb"new Function\(|(?<![.\w])eval\(", file.body()), name


def test_the_first_view_is_small() -> None:
    first = [file for name, file in static_files().items() if name.startswith("index")]
    assert sum(len(file.compressed) for file in first) < 150_000
    assert sum(len(file.compressed) for file in static_files().values()) < 1_500_000


def test_names_change_with_the_content() -> None:
    assert all(re.search(r"-[\w-]{8}\.\w+$", name) for name in static_files() if name not in NAMED)


def test_another_name_is_not_found() -> None:
    for name in ("", "index.html.gz", "../static_files.py", "index-00000000.js"):
        with pytest.raises(NotFound):
            static_file(name)


BODY = {"code": "c", "verifier": VERIFIER, "nonce": NONCE, "redirect_uri": REDIRECT}


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with serving_in_thread(TokenIssuer(users={"ann": "x"})) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def url(issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = load_settings(
        root=tmp_path_factory.mktemp("store"),
        port=0,
        fsync=False,
        oidc_issuer=issuer.url,
        oidc_audience=f"{AUDIENCE},{CLIENT}",
        oidc_user_claim="preferred_username",
        oidc_client_id=CLIENT,
    )
    with embedded_server(settings) as url:
        yield url


@pytest.mark.parametrize("opaque", [False, True])
def test_a_code_signs_in(issuer: TokenIssuer, url: str, opaque: bool) -> None:
    assert requests.get(f"{url}/about").json()["sign_in_issuer"] == issuer.url
    client = requests.get(f"{url}/sign-in/client").json()
    assert (client["client_id"], client["scope"]) == (CLIENT, "openid")
    issuer.opaque = opaque
    asked = {"client_id": CLIENT, "redirect_uri": REDIRECT, "code_challenge": CHALLENGE, "nonce": NONCE}
    answer = requests.post(f"{url}/sign-in/token", json=BODY | {"code": issuer.code(asked, "ann")})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["username"], answer.headers["Cache-Control"]) == ("ann", "no-store")
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    assert requests.get(f"{url}/about", headers=headers).json()["username"] == "ann"


def test_what_is_refused(issuer: TokenIssuer, url: str) -> None:
    answer = requests.post(f"{url}/sign-in/token", json=BODY)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (401, "unauthenticated")
    forged = requests.post(
        f"{url}/sign-in/token",
        data=b"{}",
        headers={
            "Content-Type": "text/plain",
            "Origin": "https://evil.example",
            "Sec-Fetch-Site": "cross-site",
        },
    )
    assert forged.status_code == 403


async def test_a_server_without_a_client_of_an_issuer(bare: RestClient) -> None:
    assert "sign_in_issuer" not in (await bare("GET", "/about", user=None)).body
    assert (await bare("GET", "/sign-in/client", user=None)).status == 404
    assert (await bare("POST", "/sign-in/token", BODY, user=None)).status == 404


@pytest.mark.parametrize(
    "changed",
    [
        {"code": ""},
        {"code": 1},
        {"verifier": "v" * 42},
        {"nonce": "n" * 42 + "é"},
        {"redirect_uri": "x" * 2049},
    ],
)
def test_a_body_that_is_wrong(changed: dict[str, Any]) -> None:
    (name,) = changed
    with pytest.raises(BadRequest, match=name):
        read_grant(BODY | changed)


def test_a_body_that_is_no_object() -> None:
    with pytest.raises(BadRequest):
        read_grant([])
