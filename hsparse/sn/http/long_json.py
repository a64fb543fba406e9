"""Parsing long JSON in pieces, so that other threads run in between.

A parser holds the interpreter's lock until it returns: for half a second when it makes a million lists. A long body is
therefore cut at commas into pieces of about `WINDOW_BYTES` bytes. Each comma has a level: the number of lists and
objects around it (RFC 8259, section 2). A piece is a run of members of one list or object; it becomes JSON again when
brackets are put around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge

WINDOW_BYTES = 256 * 1024
MAX_DEPTH = 240
"""The maximum nesting of a body: orjson writes at most 254 levels, and a record adds a few levels to a body."""
MAX_MEMBERS = 100_000
"""The maximum number of members of one object, because loops over the members' names block other requests."""
LONGEST_NAME = 64 * 1024
"""The maximum size in bytes of a member's name if the member is parsed alone because it is long."""
SPACE = b" \t\r\n"
NAME = re.compile(rb'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:', re.DOTALL)
ESCAPE = re.compile(rb"\\.", re.DOTALL)
STEPS = np.zeros(256, np.int8)
STEPS[list(b"[{")], STEPS[list(b"]}")] = 1, -1
BRACKETS = {ord("["): b"[]", ord("{"): b"{}"}

Parse = Callable[[bytes | bytearray], Any]


def parse_long_json(data: bytearray, parse: Parse, window: int = WINDOW_BYTES) -> Any:
    """Parse JSON by calling `parse` on pieces of about `window` bytes; return the value.

    `parse` raises `ValueError` for invalid JSON. This function raises `BadRequest` for invalid JSON, and `TooLarge` for
    an object with more than `MAX_MEMBERS` members.
    """
    return _Pieces(data, parse, window).value(0, len(data), 0)


class _Pieces:
    """The pieces of one body. The body is cut at the first and the last comma of each level in each window."""

    def __init__(self, data: bytearray, parse: Parse, window: int) -> None:
        self._data = data
        self._parse = parse
        self._short = 2 * window
        self._commas = _commas(data, window)

    def value(self, start: int, stop: int, level: int) -> Any:
        """Return the JSON value that `data[start:stop]` contains; `level` lists and objects surround it."""
        if stop - start <= self._short:
            return self._piece(self._data[start:stop], start)
        start, stop = self._stripped(start, stop)
        opening = self._data[start : start + 1]
        if opening == b"[":
            return self._list(start, stop, level + 1)
        if opening == b"{":
            return self._object(start, stop, level + 1)
        return self._piece(self._data[start:stop], start)  # one long text

    def _list(self, start: int, stop: int, level: int) -> list[Any]:
        found: list[Any] = []
        for first, last, long in self._members(start, stop, level):
            if long:
                found.append(self.value(first, last, level))
            else:
                found += self._run(first, last, b"[%b]")
        return found

    def _object(self, start: int, stop: int, level: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for first, last, long in self._members(start, stop, level):
            if len(found) > MAX_MEMBERS:
                raise _too_many()
            if not long:
                found |= self._run(first, last, b"{%b}")
                continue
            name = NAME.match(self._data, first, first + LONGEST_NAME)
            if name is None:
                raise _invalid("a member without a name", first)
            found[self._piece(name[1], first)] = self.value(name.end(), last, level)
        if len(found) > MAX_MEMBERS:
            raise _too_many()
        return found

    def _members(self, start: int, stop: int, level: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the runs of members of the list or object in `data[start:stop]`, as (start, stop, is a long run)."""
        if self._data[stop - 1] != BRACKETS[self._data[start]][1]:
            raise _invalid("a list or an object that does not end", start)
        commas = self._commas.get(level, np.zeros(0, np.int64))
        first, last = np.searchsorted(commas, (start, stop))
        if first == last and len(set(self._stripped(start + 1, stop - 1))) == 1:
            return
        for before, after in pairwise([start, *commas[first:last].tolist(), stop - 1]):
            yield before + 1, after, after - before - 1 > self._short

    def _run(self, start: int, stop: int, form: bytes) -> Any:
        found = self._piece(form % self._data[start:stop], start)
        if not found:
            raise _invalid("a comma without a value", start)
        return found

    def _piece(self, text: bytes | bytearray, start: int) -> Any:
        try:
            return self._parse(text)
        except ValueError as error:
            raise _invalid(str(error).partition(":")[0], start) from error

    def _stripped(self, start: int, stop: int) -> tuple[int, int]:
        """Return `start` and `stop` moved past white space; they are equal if there is only white space."""
        while start < stop and not (part := self._data[start : min(start + 4096, stop)].lstrip(SPACE)):
            start = min(start + 4096, stop)
        start = min(start + 4096, stop) - len(part) if start < stop else stop
        while start < stop and not (part := self._data[max(stop - 4096, start) : stop].rstrip(SPACE)):
            stop = max(stop - 4096, start)
        return start, max(stop - 4096, start) + len(part) if start < stop else stop


def _too_many() -> TooLarge:
    return TooLarge(f"A JSON object has more than {MAX_MEMBERS} members, the limit: send several requests.")


def _invalid(why: str, place: int) -> BadRequest:
    return BadRequest(f"The body is not valid JSON: {why}, after byte {place}.")


def _commas(data: bytearray, window: int) -> dict[int, NDArray[np.int64]]:
    """Return a dict that maps each level to the indices of its first and last comma outside strings in each window."""
    found: dict[int, list[int]] = {}
    depth, in_text, escaped = 0, False, False
    for start in range(0, len(data), window):
        text, escaped = _without_escapes(data[start : start + window], escaped)
        block = np.frombuffer(text, np.uint8)
        quotes = block == ord('"')
        if in_text or quotes.any():
            inside = np.logical_xor.accumulate(quotes) ^ in_text
            in_text = bool(inside[-1])
            block = np.where(inside, 0, block)
        depths = np.cumsum(STEPS[block], dtype=np.int64) + depth
        depth = int(depths[-1])
        if depths.max() > MAX_DEPTH:
            raise BadRequest(f"The body is nested too deeply: the limit is {MAX_DEPTH} levels.")
        if depths.min() < 0:
            raise _invalid("a closing bracket without an opening one", start)
        places = np.flatnonzero(block == ord(","))
        levels = depths[places]
        for one, at in _ends(places, levels):
            found.setdefault(one, []).append(start + at)
    return {level: np.unique(places) for level, places in found.items()}


def _ends(places: NDArray[np.int64], levels: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield (level, index) for each level's first and last comma; commas have the indices `places` and the `levels`."""
    last = np.full(MAX_DEPTH + 1, -1)
    last[levels] = places
    first = np.full(MAX_DEPTH + 1, -1)
    first[levels[::-1]] = places[::-1]
    for level in np.flatnonzero(last >= 0).tolist():
        yield level, int(first[level])
        yield level, int(last[level])


def _without_escapes(text: bytearray, escaped: bool) -> tuple[bytearray, bool]:
    """Return a pair: `text` with its escapes replaced by `_`, and whether its last backslash escapes the next text."""
    if escaped:
        text[:1] = b"_"
    if b"\\" not in text:
        return text, False
    plain = bytearray(ESCAPE.sub(b"__", text))
    return plain, plain.endswith(b"\\")
