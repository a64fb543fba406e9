"""Headers: ranges, conditions, what caches keep, codings of answers, and who is asked to sign in."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator
from typing import Any

import imagecodecs
import numpy as np
import pytest
from aiohttp.test_utils import TestClient

from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.sn.app import create_app
from hsparse.sn.coding import STREAMED, Coding, accepted_coding, compress
from hsparse.sn.http.challenge import HttpRange, is_known, matches_etag, requested_range
from hsparse.sn.policies.compression import MIN_COMPRESSED_BYTES
from hsparse.sn.service_settings import CompressionPolicy, ServiceSettings
from tests.support.rest_client import PARTS, AppServer, RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore


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


BINARY, ARROW = "application/octet-stream", "application/vnd.apache.arrow.stream"
DOMAIN = "/home/ann/a.h5"
DECODERS: dict[str | None, Any] = {
    None: bytes,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    "zstd": lambda data: bytes(imagecodecs.zstd_decode(data)),
}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", None),
        ("identity", None),
        ("gzip", Coding.GZIP),
        ("deflate, gzip", Coding.GZIP),
        ("gzip, deflate, br, zstd", Coding.ZSTD),
        ("GZIP;q=0.5, deflate;q=0.8", Coding.DEFLATE),
        ("gzip;q=0", None),
        ("gzip;q=0, *", Coding.ZSTD),
        ("*;q=0", None),
        ("br", None),
        ("gzip;q=0.5, identity;q=0.9", None),
        ("gzip;q=nan", None),
        ("gzip;q=2", None),
        ("gzip;q=", None),
        (";;;,,,=", None),
        ("gzip ; q=1.0", Coding.GZIP),
    ],
)
def test_which_coding_a_client_likes_best(header: str, expected: Coding | None) -> None:
    assert accepted_coding(header) == expected


def test_streams_have_no_zstd() -> None:
    assert accepted_coding("zstd", tuple(STREAMED)) is None
    assert accepted_coding("zstd, deflate", tuple(STREAMED)) is Coding.DEFLATE


@pytest.mark.parametrize("coding", Coding)
def test_what_is_compressed_decodes(coding: Coding) -> None:
    data = np.arange(5000).tobytes()
    assert DECODERS[coding.value](compress(data, coding)) == data


class Rig:
    """A server with a dataset of many numbers; answers as they are on the wire."""

    def __init__(self, policy: CompressionPolicy) -> None:
        clock = ManualClock()
        self.node = DataService(MemoryStore(clock=clock), clock)
        settings = ServiceSettings(compress=policy, page_size=1 << 18)
        self.rest = RestClient(self.node, clock, Principal("ann"), settings=settings)
        self.client: TestClient[Any, Any] = TestClient(
            AppServer(create_app(self.rest.service, parts=PARTS)), auto_decompress=False
        )
        self.numbers = np.arange(200_000, dtype="<i4") // 7
        self.value = self.sparse = ""

    async def fill(self) -> None:
        await self.client.start_server()
        await self.rest.open()
        self.rest.domain = DOMAIN
        await self.rest("PUT", "/", {})
        made = await self.rest("POST", "/datasets", {"type": "H5T_STD_I32LE", "shape": 200_000})
        self.value = f"/datasets/{made['id']}/value"
        assert (await self.rest("PUT", self.value, self.numbers.tobytes())).status == 200
        layout = {"class": "H5D_STRUCT_CHUNK", "dims": [20_000], "flags": ["H5D_SPARSE_DATA"]}
        body = {"type": "H5T_STD_I32LE", "shape": 200_000, "creationProperties": {"layout": layout}}
        made = await self.rest("POST", "/datasets", body)
        self.sparse = f"/datasets/{made['id']}/value"
        assert (await self.rest("PUT", self.sparse, self.numbers.tobytes())).status == 200

    async def get(self, path: str, accept: str, coding: str, **params: str) -> tuple[Any, bytes]:
        headers = {"Authorization": "ann", "Accept": accept, "Accept-Encoding": coding}
        async with self.client.get(path, params={"domain": DOMAIN, **params}, headers=headers) as answer:
            data = await answer.read()
            assert answer.status == 200
            used = answer.headers.get("Content-Encoding")
            if "Content-Length" in answer.headers:
                assert int(answer.headers["Content-Length"]) == len(data)
            return answer.headers, DECODERS[used](data)


@pytest.fixture(params=list(CompressionPolicy))
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    made = Rig(request.param)
    await made.fill()
    yield made
    await made.client.close()
    await made.rest.close()
    await made.node.close()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", ""])
async def test_every_kind_of_answer_decodes_to_the_same(rig: Rig, coding: str) -> None:
    policy = rig.rest.service.settings.compress
    cases = (
        ("application/json", rig.value, {"select": "[0:20000]"}, policy is not CompressionPolicy.NONE, False),
        (BINARY, rig.value, {"select": "[0:20000]"}, policy is CompressionPolicy.ALL, False),
        (BINARY, rig.value, {}, policy is CompressionPolicy.ALL, True),
        (BINARY, rig.sparse, {"sparse": "1"}, policy is CompressionPolicy.ALL, False),
        (ARROW, rig.sparse, {"sparse": "1"}, policy is CompressionPolicy.ALL, True),
    )
    for accept, path, params, compressed, streamed in cases:
        _, plain = await rig.get(path, accept, "identity", **params)
        headers, data = await rig.get(path, accept, coding, **params)
        assert data == plain
        used = coding if compressed and not (streamed and coding == "zstd") else ""
        assert headers.get("Content-Encoding", "") == used, (accept, path)
        assert ("Accept-Encoding" in headers.get("Vary", "")) is compressed
    _, whole = await rig.get(rig.value, BINARY, coding)
    np.testing.assert_array_equal(np.frombuffer(whole, "<i4"), rig.numbers)


async def test_small_answers_and_errors_are_left_as_they_are(rig: Rig) -> None:
    headers, data = await rig.get("/about", "application/json", "gzip")
    assert len(data) < MIN_COMPRESSED_BYTES
    assert "Content-Encoding" not in headers


async def test_what_does_not_get_smaller_is_not_compressed() -> None:
    rig = Rig(CompressionPolicy.ALL)
    await rig.fill()
    noise = np.random.default_rng(0).integers(0, 2**32, 20_000, "u4").astype("<u4")
    assert (await rig.rest("PUT", rig.value, noise.tobytes(), select="[0:20000]")).status == 200
    headers, data = await rig.get(rig.value, BINARY, "gzip", select="[0:20000]")
    assert data == noise.tobytes()
    assert "Content-Encoding" not in headers
    assert "Accept-Encoding" in headers["Vary"]
    await rig.client.close()
    await rig.rest.close()
    await rig.node.close()
