"""Which answers caches may keep, and that those with etags are still validated by them."""

from __future__ import annotations

from tests.support.rest_client import RestClient


async def test_answers_to_credentials_are_kept_by_nobody(rest: RestClient) -> None:
    for path in ("/", "/about", "/nope"):
        reply = await rest("GET", path)
        assert reply.headers["Cache-Control"] == "private, no-store"
    assert (await rest("GET", "/", user="nobody")).headers["Cache-Control"] == "private, no-store"
    assert "Cache-Control" not in (await rest("GET", "/about", user=None)).headers


async def test_what_has_an_etag_is_validated(rest: RestClient) -> None:
    path, rule = "/files/home/test_user1/file.h5", "private, no-cache"
    first = await rest("GET", path)
    assert (first.status, first.headers["Cache-Control"]) == (200, rule)
    again = await rest("GET", path, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.headers["Cache-Control"]) == (304, rule)


async def test_files_of_the_explorer_keep_their_rules(rest: RestClient) -> None:
    reply = await rest("GET", "/docs")
    assert (reply.status, reply.headers["Cache-Control"]) == (200, "no-cache")
