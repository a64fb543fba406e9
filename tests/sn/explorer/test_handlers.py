"""Who gets the explorer at `/`, the headers of all its files, and the rights by which it shows what may be done."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any

import pytest

from hsparse.explorer.handlers import NAMED, PAGE, static_file, static_files
from hsparse.model.acl import Right
from hsparse.sn.records import streamed_records
from tests.sn.conftest import DOMAIN
from tests.support.rest_client import Reply, RestClient

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
