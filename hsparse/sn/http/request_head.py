"""The head of a request, read as far as its turn and a refusal need it, before the HTTP parser spends time on it; and
what the gate gave the request.

Strict on purpose: what is not the plain form of RFC 9112 is left to the parser, so that the two never disagree on where
a request ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aiohttp import web

from hsparse.concurrency.admission import Place
from hsparse.errors import Busy

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
HEAD = re.compile(
    rb"(GET|HEAD|PUT|POST|DELETE|OPTIONS) (/[!->@-~]*)(?:\?[!-~]*)? HTTP/1\.1"
    rb"(\r\n(?:" + TOKEN + rb":[^\r\n\0]*\r\n)*)\r\n"
)
DIGITS = 18
"""The most digits of a length."""


@dataclass(slots=True)
class RequestHead:
    """A head: `size` is its bytes with the empty line, `length` those of the body. Headers are None if not there.

    `plain` is for one whose refusal depends on nothing else: no page's, no `Expect`, and the connection stays open.
    """

    method: str
    path: str
    size: int
    length: int
    plain: bool
    authorization: str | None
    timeout: str | None
    id: str | None


def read_head(data: bytes) -> RequestHead | None:
    """Return the head of the request with which `data` begins, None if it is not all there or not plain HTTP/1.1."""
    match = HEAD.match(data)
    if match is None:
        return None
    method, path, fields = match.groups()
    lower = fields.lower()
    if b"\r\ntransfer-encoding:" in lower or b"\r\nupgrade:" in lower:
        return None
    length = _field(fields, lower, b"\r\ncontent-length:")
    if length is None:
        length = "0"
    elif (
        lower.count(b"\r\ncontent-length:") > 1
        or not (length.isascii() and length.isdigit())
        or len(length) > DIGITS
    ):
        return None
    connection = _field(fields, lower, b"\r\nconnection:")
    return RequestHead(
        method.decode(),
        path.decode(),
        match.end(),
        int(length),
        (connection is None or connection.lower() == "keep-alive")
        and b"\r\nexpect:" not in lower
        and b"\r\norigin:" not in lower,
        _field(fields, lower, b"\r\nauthorization:"),
        _field(fields, lower, b"\r\nrequest-timeout:"),
        _field(fields, lower, b"\r\nx-request-id:"),
    )


def _field(fields: bytes, lower: bytes, name: bytes) -> str | None:
    """Return the value of the first header of this name, as aiohttp decodes it."""
    start = lower.find(name)
    if start < 0:
        return None
    start += len(name)
    return fields[start : fields.index(b"\r\n", start)].decode("utf-8", "surrogateescape").strip(" \t")


@dataclass(slots=True)
class GatePass:
    """The request came at `arrived`, a time of the event loop, and waited so many seconds.

    It has a place, it was refused with an `error` or, with neither, is still to ask for its turn.
    """

    arrived: float
    waited: float = 0.0
    place: Place | None = None
    error: Busy | None = None


def pass_of(request: web.BaseRequest) -> GatePass | None:
    """Return what the gate gave a request, None for one that did not come through it."""
    given: GatePass | None = getattr(request.protocol, "gate_pass", None)
    return given


def waited_before(request: web.BaseRequest) -> float:
    """Return the seconds that the request has waited before it was parsed."""
    given = pass_of(request)
    return 0.0 if given is None else given.waited
