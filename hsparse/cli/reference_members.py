"""Kerchunk references in JSON, read member by member as they come: a domain may have millions."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any

from hsparse.errors import HsparseError

REFS = "refs"
WHITE = " \t\r\n"
ENDS = frozenset(WHITE + ":,]}")


class ReferenceMembers:
    """The members of `refs` in JSON that comes in `blocks`; `others` are those beside it, once all were read.

    Iterating raises `HsparseError` for what is no such JSON, and for JSON that ends too early.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self.others: dict[str, Any] = {}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name in self._names():
            if name == REFS:
                for member in self._names():
                    yield member, self._value()
            else:
                self.others[name] = self._value()

    def _names(self) -> Iterator[str]:
        """Yield the names of an object's members; before the next one is asked for, the value must be read."""
        self._expect("{")
        if self._next() == "}":
            self._at += 1
            return
        while True:
            name = self._value()
            self._expect(":")
            yield name
            if self._expect(",}") == "}":
                return

    def _value(self) -> Any:
        """Return the value that comes next."""
        self._next()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except ValueError:
                if not self._more():
                    raise HsparseError("The references end too early, or are no JSON: ask again.") from None
                continue
            # A number may go on: in the next block, or what is there of it is one already, as 1 of 1.5 is.
            if self._text[end : end + 1] in ENDS or not self._more():
                self._at = end
                return value

    def _expect(self, marks: str) -> str:
        found = self._next()
        if not found or found not in marks:
            raise HsparseError(f"The references are no JSON: {found!r} is where {marks!r} should be.")
        self._at += 1
        return found

    def _next(self) -> str:
        """Return the next character that is no white space, empty at the end; it stays the next."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in WHITE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Take another block; false at the end."""
        block = next(self._blocks, None)
        if block is None:
            return False
        self._text = self._text[self._at :] + self._decoder.decode(block)
        self._at = 0
        return True
