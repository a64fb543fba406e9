"""Ranges and conditions of requests, as RFC 9110 has them."""

from __future__ import annotations

import pytest

from hsparse.sn.http.challenge import HttpRange, is_known, matches_etag, requested_range


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-", 5, 10),
        ("bytes=5-99", 5, 10),
        ("bytes=-3", 7, 10),
        ("Bytes = 1 - 2", 1, 3),
    ],
)
def test_one_range(header: str, start: int, stop: int) -> None:
    found = requested_range({"Range": header}, "e", 10)
    assert found == HttpRange(start, stop, 10)
    assert found.satisfiable
    assert found.content_range == f"bytes {start}-{stop - 1}/10"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "bytes=",
        "bytes=-",
        "bytes=2-1",
        "bytes=0-1,3-4",
        "items=0-1",
        "bytes=a-b",
        "bytes=" + "9" * 30 + "-",
    ],
)
def test_what_is_ignored(header: str) -> None:
    assert requested_range({"Range": header}, "e", 10) is None


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=11-12", "bytes=-0"])
def test_what_no_byte_is_in(header: str) -> None:
    found = requested_range({"Range": header}, "e", 10)
    assert found is not None
    assert not found.satisfiable


def test_a_range_of_another_state_is_all_of_this_one() -> None:
    assert requested_range({"Range": "bytes=0-1", "If-Range": '"e"'}, "e", 10) == HttpRange(0, 2, 10)
    for other in ('"f"', 'W/"e"', "Fri, 20 Nov 2026 12:00:00 GMT"):
        assert requested_range({"Range": "bytes=0-1", "If-Range": other}, "e", 10) is None


def test_names_of_states() -> None:
    assert matches_etag("*", "e")
    assert matches_etag('"a", "e"', "e")
    assert not matches_etag('"a"', "e")
    assert not matches_etag('W/"e"', "e")


def test_a_known_etag_may_be_weak() -> None:
    for header in ('"e"', 'W/"e"', '"a", W/"e"', "*"):
        assert is_known({"If-None-Match": header}, "e")
    for headers in ({}, {"If-None-Match": 'W/"a"'}, {"If-None-Match": "e"}):
        assert not is_known(headers, "e")
