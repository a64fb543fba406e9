"""Content codings of answers (RFC 9110, section 8.4.1): choosing one and compressing with it."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Callable
from enum import StrEnum
from typing import Any

import imagecodecs

from hsparse.compute import compute

BYTES_PER_WORK = 4
"""Bytes whose compression takes as long as one unit of the work passed to `compute`: 64 KiB take about 0.1 ms."""
LEVEL = 1
PART_BYTES = 1 << 20


class Coding(StrEnum):
    """A content coding, by its registered name. The first member wins among codings of equal weight."""

    ZSTD = "zstd"
    GZIP = "gzip"
    DEFLATE = "deflate"


STREAMED = {Coding.GZIP: 31, Coding.DEFLATE: 15}
"""The codings for streamed answers, each with zlib's window bits."""


def accepted_coding(header: str, codings: tuple[Coding, ...] = tuple(Coding)) -> Coding | None:
    """Return the member of `codings` that an `Accept-Encoding` header prefers, or None if it prefers `identity`."""
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


async def compressed(pieces: AsyncGenerator[Any, None], coding: Coding) -> AsyncGenerator[bytes, None]:
    """Compress the pieces of a stream, and close `pieces` at the end."""
    coder = zlib.compressobj(LEVEL, wbits=STREAMED[coding])
    try:
        async for piece in pieces:
            view = memoryview(piece)
            for first in range(0, len(view), PART_BYTES):
                part = view[first : first + PART_BYTES]
                data = await encoded(part, coder.compress)
                if data:
                    yield data
        yield coder.flush()
    finally:
        await pieces.aclose()


async def encoded(data: Any, encode: Callable[[Any], bytes]) -> bytes:
    """Return `encode(data)`, computed in a worker thread if `data` is large."""
    return await compute(len(data) // BYTES_PER_WORK, encode, data)


def compress(body: bytes | bytearray, coding: Coding) -> bytes:
    """Return the whole `body` compressed with `coding`."""
    if coding is Coding.ZSTD:
        return bytes(imagecodecs.zstd_encode(body, level=LEVEL))
    if coding is Coding.GZIP:
        return bytes(imagecodecs.gzip_encode(body, level=LEVEL))
    return bytes(imagecodecs.deflate_encode(body, level=LEVEL))


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
