"""A streaming JSON reader: only the values that the caller requests are held in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from hsparse.errors import HsparseError

SPACE = re.compile(r"[ \t\n\r]*")
BEHIND = frozenset(" \t\n\r:,]}")
"""The characters that end a number or literal."""


class JsonReader:
    """Reads a JSON value from consecutive pieces of its UTF-8 text; each method reads on from the last position.

    Raises `HsparseError` for invalid JSON, and if the next value is not of the requested kind.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._texts = codecs.iterdecode(pieces, "utf-8")
        self._text = ""
        self._at = 0
        self._decode = json.JSONDecoder().raw_decode

    def members(self) -> Iterator[str]:
        """Yield each name in the next value, an object. The caller must read the name's value before the next name."""
        for _ in self._elements("{", "}"):
            name = str(self.value())
            self._expect(":")
            yield name

    def items(self) -> Iterator[None]:
        """Yield None for each item of the next value, an array. The caller must read each item before the next."""
        return self._elements("[", "]")

    def value(self) -> Any:
        """Return the next value."""
        self._peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except ValueError as error:
                if not self._more():
                    raise self._wrong() from error
                continue
            # A number may continue in the next piece.
            if self._text[end : end + 1] in BEHIND or not self._more():
                self._at = end
                return value

    def _elements(self, first: str, last: str) -> Iterator[None]:
        self._expect(first)
        if self._peek() == last:
            self._at += 1
            return
        while True:
            yield
            if self._peek() == last:
                self._at += 1
                return
            self._expect(",")

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._wrong()
        self._at += 1

    def _peek(self) -> str:
        """Skip white space, and return the next character, or an empty text at the end."""
        while True:
            found = SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Read another piece of text; return whether there was one."""
        try:
            text = next(self._texts, None)
        except UnicodeDecodeError as error:
            raise self._wrong() from error
        if text is None:
            return False
        self._text, self._at = self._text[self._at :] + text, 0
        return True

    def _wrong(self) -> HsparseError:
        here = self._text[self._at : self._at + 20]
        return HsparseError(f"The answer is not the expected JSON, at {here!r}: check which server answers.")
