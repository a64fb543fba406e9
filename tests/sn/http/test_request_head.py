"""Heads read before the parser: what is read is what aiohttp reads, and what is not plain is left to it."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import HttpProcessingError
from hypothesis import given
from hypothesis import strategies as st

from hsparse.sn.http.request_head import read_head

HOST = b"Host: a\r\n"


def test_a_head_is_read() -> None:
    fields = (
        b"Authorization:  Basic YTpi \r\nrequest-TIMEOUT: 2.5\r\nX-Request-ID: 7\r\nContent-Length: 3\r\n"
    )
    head = read_head(b"PUT /datasets/d-1/value?select=[0:1] HTTP/1.1\r\n" + HOST + fields + b"\r\nabc")
    assert head is not None
    assert (head.method, head.path, head.length, head.plain) == ("PUT", "/datasets/d-1/value", 3, True)
    assert (head.authorization, head.timeout, head.id) == ("Basic YTpi", "2.5", "7")
    assert head.size == len(b"PUT /datasets/d-1/value?select=[0:1] HTTP/1.1\r\n" + HOST + fields) + 2


def test_what_is_not_there_is_none() -> None:
    head = read_head(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
    assert head is not None
    assert (head.length, head.plain, head.authorization, head.timeout, head.id) == (0, True, None, None, None)


@pytest.mark.parametrize(
    "field",
    [b"Origin: http://a", b"Expect: 100-continue", b"Connection: close", b"Connection: a, keep-alive"],
)
def test_a_head_on_which_the_answer_depends_is_not_plain(field: bytes) -> None:
    head = read_head(b"GET / HTTP/1.1\r\n" + HOST + field + b"\r\n\r\n")
    assert head is not None
    assert not head.plain


LEFT = {
    "in part": b"GET / HTTP/1.1\r\nHost: a\r\n",
    "nothing": b"",
    "chunked": b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "upgrade": b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
    "1.0": b"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
    "two lengths": b"GET / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n",
    "no length": b"GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
    "a length in other digits": "GET / HTTP/1.1\r\nContent-Length: ²\r\n\r\n".encode(),
    "a long length": b"GET / HTTP/1.1\r\nContent-Length: " + b"1" * 19 + b"\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nContent-Length : 1\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\nA: b\r\n c: d\r\n\r\n",
    "a bare line feed": b"GET / HTTP/1.1\r\nA: b\nTransfer-Encoding: chunked\r\n\r\n",
    "a bare carriage return": b"GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n",
    "another method": b"PATCH / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a whole URL": b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "a fragment's space": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("data", LEFT.values(), ids=LEFT.keys())
def test_what_is_not_plain_is_left_to_the_parser(data: bytes) -> None:
    assert read_head(data) is None


names = st.sampled_from(
    [
        b"Content-Length",
        b"content-length",
        b"Connection",
        b"Expect",
        b"Authorization",
        b"X-A",
        b"Transfer-Encoding",
    ]
)
values = st.one_of(
    st.sampled_from(
        [b"0", b"3", b"03", b"close", b"keep-alive", b"chunked", b"Basic a", b"\xff", b"a\tb", b""]
    ),
    st.binary(max_size=6),
)
heads = st.builds(
    lambda method, target, fields, end: (
        method + b" " + target + b" HTTP/1.1\r\n" + b"".join(n + b":" + v + b"\r\n" for n, v in fields) + end
    ),
    st.sampled_from([b"GET", b"PUT", b"HEAD", b"DELETE", b"OPTIONS"]),
    st.sampled_from([b"/", b"/a?b=c", b"/a%20b", b"/a#b", b"*", b"/[]"]),
    st.lists(st.tuples(names, values), max_size=4),
    st.sampled_from([b"\r\n", b"\r\nabc", b"\n", b""]),
)


@given(heads)
def test_a_head_that_is_read_is_the_parser_s(data: bytes) -> None:
    head = read_head(data)
    if head is None:
        return
    loop = asyncio.new_event_loop()
    try:
        parser = HttpRequestParser(BaseProtocol(loop, Mock()), loop, 2**16)
        body = b"x" * min(head.length, 1000)
        try:
            messages, _, _ = parser.feed_data(data[: head.size] + body)
        except HttpProcessingError:
            return  # answered as a bad request, which ends the connection
    finally:
        loop.close()
    ((message, payload),) = messages
    assert message.method == head.method
    assert message.headers.get("Authorization") == head.authorization
    assert payload.is_eof() == (len(body) == head.length)
    assert int(message.headers.get("Content-Length", "0")) == head.length
    assert not message.chunked
