"""Compressed answers for clients that accept them: content codings (RFC 9110, section 8.4.1).

JSON is compressed by default. Binary values are compressed only if the settings say so: stock clients always accept
gzip, and values that do not compress would be ten times slower.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator
from enum import StrEnum
from typing import Any

import imagecodecs
from aiohttp import hdrs, payload, web

from hsparse.sn.service_settings import CompressionPolicy

TEXTS = frozenset({"application/json", "application/xml", "text/html"})
"""Media types that are compressed by default."""
SMALLEST = 4096
"""Bytes of the smallest body that is compressed."""
INLINE_BYTES = 64 * 1024
"""Bytes that are compressed on the event loop, in a tenth of a millisecond; more are compressed in a thread."""
LEVEL = 1
PART = 1 << 20
POLICY_KEY = web.RequestKey("compress", CompressionPolicy)
"""The key of the policy in a request."""


class Coding(StrEnum):
    """A content coding, by its registered name. Of those with the client's highest weight the first is used."""

    ZSTD = "zstd"
    GZIP = "gzip"
    DEFLATE = "deflate"


STREAMED = {Coding.GZIP: 31, Coding.DEFLATE: 15}
"""The codings of streams, by zlib's window bits."""


def accepted_coding(header: str, codings: tuple[Coding, ...] = tuple(Coding)) -> Coding | None:
    """Return the coding in `codings` that an `Accept-Encoding` prefers (RFC 9110, section 12.5.3); None for none."""
    weights: dict[str, float] = {}
    for item in header.lower().split(","):
        name, _, rest = item.partition(";")
        weights[name.strip()] = _weight(rest)
    any_other = weights.get("*", 0.0)
    liked = {coding: weights.get(coding.value, any_other) for coding in codings}
    best = max(liked, key=lambda coding: liked[coding], default=None)
    return (
        best if best is not None and liked[best] > 0 and liked[best] >= weights.get("identity", 0) else None
    )


def streamed_coding(request: web.Request, media: str) -> Coding | None:
    """Return the coding of a stream of this media type, None for no compression."""
    if not _wanted(request.get(POLICY_KEY, CompressionPolicy.NONE), media):
        return None
    return accepted_coding(request.headers.get(hdrs.ACCEPT_ENCODING, ""), tuple(STREAMED))


def coding_headers(request: web.Request, media: str, coding: Coding | None) -> dict[str, str]:
    """Return the headers of a stream with this coding, or of one that could be compressed."""
    if not _wanted(request.get(POLICY_KEY, CompressionPolicy.NONE), media):
        return {}
    return {hdrs.VARY: hdrs.ACCEPT_ENCODING} | ({hdrs.CONTENT_ENCODING: coding.value} if coding else {})


async def compressed(pieces: AsyncGenerator[Any, None], coding: Coding) -> AsyncGenerator[bytes, None]:
    """Compress the pieces of a stream, and close `pieces` at the end."""
    coder = zlib.compressobj(LEVEL, wbits=STREAMED[coding])
    try:
        async for piece in pieces:
            view = memoryview(piece)
            for first in range(0, len(view), PART):
                part = view[first : first + PART]
                if len(part) <= INLINE_BYTES:
                    data = coder.compress(part)
                else:
                    data = await asyncio.to_thread(coder.compress, part)
                if data:
                    yield data
        yield coder.flush()
    finally:
        await pieces.aclose()


async def compress_body(
    request: web.Request, response: web.StreamResponse, policy: CompressionPolicy
) -> None:
    """Compress the body of an answer that is not streamed, if the client accepts it and it becomes smaller."""
    if not isinstance(response, web.Response):
        return
    size = _size(response)
    if size is None or size < SMALLEST or hdrs.CONTENT_ENCODING in response.headers:
        return
    if not _wanted(policy, response.content_type):
        return
    response.headers.add(hdrs.VARY, hdrs.ACCEPT_ENCODING)
    coding = accepted_coding(request.headers.get(hdrs.ACCEPT_ENCODING, ""))
    if coding is None:
        return
    body = response.body
    whole = await body.as_bytes() if isinstance(body, payload.Payload) else body
    assert whole is not None
    data = (
        compress(whole, coding) if size <= INLINE_BYTES else await asyncio.to_thread(compress, whole, coding)
    )
    if len(data) < size:
        response.body = data
        response.headers[hdrs.CONTENT_ENCODING] = coding.value


def compress(body: bytes | bytearray, coding: Coding) -> bytes:
    """Return a whole body compressed."""
    if coding is Coding.ZSTD:
        return bytes(imagecodecs.zstd_encode(body, level=LEVEL))
    if coding is Coding.GZIP:
        return bytes(imagecodecs.gzip_encode(body, level=LEVEL))
    return bytes(imagecodecs.deflate_encode(body, level=LEVEL))


def _size(response: web.Response) -> int | None:
    """Return the number of bytes of a body that is in memory, None for other bodies."""
    body = response.body
    return (
        body.size
        if isinstance(body, payload.BytesPayload)
        else len(body)
        if isinstance(body, bytes)
        else None
    )


def _wanted(policy: CompressionPolicy, media: str) -> bool:
    return policy is CompressionPolicy.ALL or (policy is CompressionPolicy.JSON and media in TEXTS)


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
