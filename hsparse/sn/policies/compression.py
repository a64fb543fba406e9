"""Compressed answers for clients that accept them.

JSON is compressed by default. Binary values are compressed only if the settings say so: clients of HSDS always accept
gzip, and sending values that compress badly would be ten times slower.
"""

from __future__ import annotations

from functools import partial

from aiohttp import hdrs, payload, web

from hsparse.sn.coding import STREAMED, Coding, accepted_coding, compress, encoded
from hsparse.sn.policies.policy import Next
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from hsparse.sn.service_settings import CompressionPolicy

TEXTS = frozenset({"application/json", "application/xml", "text/html"})
"""Media types that are compressed by default."""
SHORT_ANSWERS = frozenset({"PUT", "DELETE"})
"""Methods whose answers are too short to compress."""
MIN_COMPRESSED_BYTES = 4096
"""The minimum number of bytes of a body that is compressed."""


class Compression:
    """Compresses answers that are sent whole, and chooses the coding of streamed answers."""

    def __init__(self, policy: CompressionPolicy) -> None:
        self._policy = policy

    def applies(self, route: Route) -> bool:
        return self._policy is not CompressionPolicy.NONE and route.method not in SHORT_ANSWERS

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        request.choose_coding = self.choose
        response = await next(request)
        if isinstance(response, web.Response) and (size := _size(response)) >= MIN_COMPRESSED_BYTES:
            await self._compress(request, response, size)
        return response

    def choose(self, request: Request, media: str, response: web.StreamResponse) -> Coding | None:
        """Return a stream's coding, or None if it stays uncompressed; set the headers of `response` accordingly."""
        if not self._is_wanted(media):
            return None
        response.headers.add(hdrs.VARY, hdrs.ACCEPT_ENCODING)
        coding = accepted_coding(request.http.headers.get(hdrs.ACCEPT_ENCODING, ""), tuple(STREAMED))
        if coding is not None:
            response.headers[hdrs.CONTENT_ENCODING] = coding.value
        return coding

    async def _compress(self, request: Request, response: web.Response, size: int) -> None:
        """Compress a body if the client accepts a coding and the body becomes smaller."""
        if hdrs.CONTENT_ENCODING in response.headers or not self._is_wanted(response.content_type):
            return
        response.headers.add(hdrs.VARY, hdrs.ACCEPT_ENCODING)
        coding = accepted_coding(request.http.headers.get(hdrs.ACCEPT_ENCODING, ""))
        if coding is None:
            return
        body = response.body
        whole = await body.as_bytes() if isinstance(body, payload.Payload) else body
        assert whole is not None
        data = await encoded(whole, partial(compress, coding=coding))
        if len(data) < size:
            response.body = data
            response.headers[hdrs.CONTENT_ENCODING] = coding.value

    def _is_wanted(self, media: str) -> bool:
        return self._policy is CompressionPolicy.ALL or media in TEXTS


def _size(response: web.Response) -> int:
    """Return the size in bytes of a body that is in memory, or 0 for other bodies."""
    body = response.body
    if isinstance(body, payload.BytesPayload):
        return body.size or 0
    return len(body) if isinstance(body, bytes) else 0
