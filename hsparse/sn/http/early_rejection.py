"""Rejections before a request is parsed: under overload one must cost a small part of what an answer costs.

A connection counts the bytes of the requests on it (`hsparse.sn.server`), so that it is known where one begins. Where
that is not certain, nothing is refused here but later, when the request asks for a place. It counts for the user that
its credentials belonged to when they were verified; who sends others is verified first.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import orjson
from aiohttp import web

from hsparse.concurrency.admission import Admission
from hsparse.concurrency.request_trace import valid_id
from hsparse.sn.http.cors import Cors
from hsparse.sn.http.request_admission import QUEUE_PATIENCE, TIMEOUT, TIMEOUT_HEADER
from hsparse.sn.http.request_log import ID_HEADER, RequestLog
from hsparse.sn.http.response import FIXED_HEADERS, JSON_HEADER
from hsparse.sn.metrics import Metrics

LINE = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) (/[!-~]*) HTTP/1\.1(?=\r\n)")
"""The line of a request that may be refused here."""
FIELD = re.compile(
    rb"\r\n(Authorization|Connection|Content-Length|Expect|Origin|Request-Timeout|Transfer-Encoding|Upgrade|X-Request-ID)"
    rb":[ \t]*([^\r\n]*)",
    re.IGNORECASE,
)
HEAD_END = b"\r\n\r\n"
NOT_HERE = (b"transfer-encoding", b"expect", b"upgrade")
"""Headers of requests whose end or answer is not known from the head alone."""
MOST_USERS = 10_000


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request as its first bytes tell it: `nbytes` is how many it has, with its body; field names in lower case."""

    method: bytes
    target: bytes
    fields: dict[bytes, bytes]
    nbytes: int


def parse_head(data: bytes) -> RequestHead | None:
    """Return the request that begins with these bytes, None unless its length is beyond doubt."""
    line, end = LINE.match(data), data.find(HEAD_END)
    if line is None or end < 0 or data.count(b"\n", 0, end) != data.count(b"\r\n", 0, end):
        return None
    found = FIELD.findall(data, line.end(), end)
    fields = {name.lower(): value.strip() for name, value in found}
    if len(fields) != len(found) or any(name in fields for name in NOT_HERE):
        return None
    length = fields.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 18:
        return None
    return RequestHead(line[1], line[2], fields, end + len(HEAD_END) + int(length))


class EarlyRejection:
    """Refuses requests of one application; `unqueued` are the paths that always get an answer."""

    def __init__(
        self, admission: Admission, metrics: Metrics, log: RequestLog, cors: Cors, unqueued: frozenset[bytes]
    ) -> None:
        self._admission = admission
        self._metrics = metrics
        self._log = log
        self._cors = cors
        self._unqueued = unqueued
        fixed = {**FIXED_HEADERS, "Content-Type": JSON_HEADER, **({"Vary": "Origin"} if cors.varies else {})}
        self._same_for_all = not cors.varies
        if self._same_for_all:
            fixed |= cors.headers(None)
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())
        self._users: dict[int, str] = {}
        self._coming: Counter[str] = Counter()
        """The requests by user that were let through and wait to be parsed and handled: whole batches may."""

    @property
    def is_likely(self) -> bool:
        """Whether anything waits for its turn."""
        return self._admission.waiting > 0

    def remember(self, authorization: str, user: str) -> None:
        """Remember whom verified credentials count for; only their hash is kept."""
        if len(self._users) >= MOST_USERS:
            self._users.clear()
        self._users[hash(authorization.encode("utf-8", "surrogateescape"))] = user

    def user_of(self, head: RequestHead) -> str | None:
        """Return whom a request counts for, None if that is not known yet."""
        return self._users.get(hash(head.fields.get(b"authorization", b"")))

    def let_through(self, user: str) -> None:
        """Note that a request will be handled soon; `came` must follow."""
        self._coming[user] += 1

    def came(self, user: str) -> None:
        """Note that a request is being handled."""
        self._coming[user] -= 1
        if not self._coming[user]:
            del self._coming[user]

    def answer(self, head: RequestHead, user: str) -> bytes | None:
        """Return the answer to a request whose turn would come too late, None for one that may be answered."""
        fields = head.fields
        if head.target.partition(b"?")[0] in self._unqueued:
            return None
        timeout = fields.get(TIMEOUT_HEADER.lower().encode(), b"").decode("latin-1")
        if timeout and TIMEOUT.fullmatch(timeout) is None:
            return None
        coming = self._coming[user] * len(self._coming)  # users have their turns alike
        error = self._admission.refuses(user, float(timeout) if timeout else QUEUE_PATIENCE, coming)
        if error is None:
            return None
        id = valid_id(fields.get(b"x-request-id", b"").decode("latin-1")) or self._log.new_id()
        method = head.method.decode()
        self._metrics.count_refused(method)
        self._log.write_refused(id, user, method, head.target.partition(b"?")[0].decode())
        text = error.message
        body = orjson.dumps({"error": {"kind": error.kind.value, "message": text}})
        origin = fields.get(b"origin")
        headers = {} if self._same_for_all else self._cors.headers((origin or b"").decode("latin-1"))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        start = (
            f"HTTP/1.1 503 {text}\r\n{self._headers}{lines}{ID_HEADER}: {id}\r\n"
            f"Retry-After: {error.retry_after:.0f}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode("latin-1")
        return start if method == "HEAD" else start + body


EARLY_KEY = web.AppKey("early", EarlyRejection)
"""The key of an application's early refusals."""
