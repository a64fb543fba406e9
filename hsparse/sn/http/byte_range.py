"""Byte ranges and conditional requests: RFC 9110, sections 13 and 14."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import hdrs

WEAK = "W/"
"""In front of an etag of answers that mean the same, but may differ in their bytes."""
ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HttpRange:
    """The bytes from `start` to before `stop` of `size`; an empty file has no satisfiable range."""

    start: int
    stop: int
    size: int

    @property
    def content_range(self) -> str:
        """The value of the header Content-Range."""
        return f"bytes {self.start}-{self.stop - 1}/{self.size}"

    @property
    def satisfiable(self) -> bool:
        return self.start < self.stop


def requested_range(headers: Mapping[str, str], etag: str, size: int) -> HttpRange | None:
    """Return the range in a request for `size` bytes with `etag`, None for the whole.

    The whole is sent without a Range, for several ranges, for a malformed one, and if If-Range names another etag.
    """
    found = ONE_RANGE.fullmatch(headers.get(hdrs.RANGE, ""))
    if found is None or headers.get(hdrs.IF_RANGE, f'"{etag}"').strip() != f'"{etag}"':
        return None
    first, last = found.groups()
    if first:
        stop = min(size, int(last) + 1) if last else size
        # A last byte before the first one makes the header invalid, which is then ignored.
        return None if last and int(last) < int(first) else HttpRange(int(first), stop, size)
    return HttpRange(max(0, size - int(last)), size, size) if last else None


def matches_etag(header: str, etag: str) -> bool:
    """Say whether an If-Match names the etag, or any (`*`)."""
    names = [name.strip() for name in header.split(",")]
    return "*" in names or f'"{etag}"' in names


def is_known(headers: Mapping[str, str], etag: str) -> bool:
    """Say whether an If-None-Match names the etag, weak or strong (RFC 9110, section 13.1.2), or any."""
    header = headers.get(hdrs.IF_NONE_MATCH)
    return header is not None and matches_etag(header.replace(WEAK, ""), etag)
