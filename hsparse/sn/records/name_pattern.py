"""Match names with `*`, `?` and `[a-z]`, as `fnmatch` does, in time proportional to the name's length.

A pattern is split at its stars into parts of fixed length. The first part must begin the name and the last must end it.
Each other part is searched after the match of the previous part. Its first match is taken, without backtracking.
"""

from __future__ import annotations

import re
from fnmatch import translate

ELEMENT = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
"""An element of a pattern: a set in brackets, or one character."""
SPECIAL = re.compile(r"[?\[]")
END = re.compile(r"\\[zZ]$")
"""The anchor at the end of the regular expressions that `fnmatch.translate` returns."""
MAX_BIT_ELEMENTS = 32
"""The most different elements of a part that is searched with bit masks. Other parts are searched with a regular
expression, which would be slow for a few elements that are repeated often."""


class NamePattern:
    """A compiled pattern; the constructor raises `re.error` if a set in brackets is invalid."""

    def __init__(self, pattern: str) -> None:
        parts: list[list[str]] = [[]]
        for element in ELEMENT.findall(pattern):
            if element == "*":
                parts.append([])
            else:
                parts[-1].append(element)
        self._first, *others = [_Part(part) for part in parts]
        self._last = others.pop() if others else None
        self._middle = others
        self._shortest = sum(map(len, parts))

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        if len(name) < self._shortest or not self._first.is_at(name, 0):
            return False
        if self._last is None:
            return len(name) == self._first.length
        end = len(name) - self._last.length
        if not self._last.is_at(name, end):
            return False
        at = self._first.length
        for part in self._middle:
            found = part.find(name, at, end)
            if found < 0:
                return False
            at = found + part.length
        return True


class _Part:
    """A part of a pattern between stars: literal text, or a regular expression for a fixed number of characters."""

    def __init__(self, elements: list[str]) -> None:
        text = "".join(elements)
        self.length = len(elements)
        self._text = None if SPECIAL.search(text) else text
        self._expression = _expression(text)
        self._elements = [_Bits(element) for element in dict.fromkeys(elements)]
        order = {one.element: place for place, one in enumerate(self._elements)}
        self._order = [order[element] for element in elements]

    def is_at(self, name: str, at: int) -> bool:
        if self._text is not None:
            return name.startswith(self._text, at)
        return self._expression.match(name, at) is not None

    def find(self, name: str, start: int, end: int) -> int:
        """Return the start of the first match within `start` to `end`, or -1 if there is none."""
        if self._text is not None:
            return name.find(self._text, start, end)
        if len(self._elements) > MAX_BIT_ELEMENTS:
            found = self._expression.search(name, start, end)
            return -1 if found is None else found.start()
        return self._find_by_bits(name, start, end)

    def _find_by_bits(self, name: str, start: int, end: int) -> int:
        """Return what `find` returns, by bit operations: each element has a bit mask of the characters it matches."""
        text = name[start:end][::-1]
        if len(text) < self.length:
            return -1
        bits = [one.places(text) for one in self._elements]
        found = -1
        for place, which in enumerate(self._order):
            found &= bits[which] >> place
        return start + (found & -found).bit_length() - 1 if found else -1


class _Bits(dict[int, str]):
    """A translation table that maps characters to "1" if an element of a pattern matches them, else to "0"."""

    def __init__(self, element: str) -> None:
        self.element = element
        self._expression = _expression(element)

    def __missing__(self, code: int) -> str:
        self[code] = "0" if self._expression.fullmatch(chr(code)) is None else "1"
        return self[code]

    def places(self, text: str) -> int:
        """Return a bit mask of the characters that the element matches; the last character has the lowest bit."""
        return int(text.translate(self), 2)


def _expression(text: str) -> re.Pattern[str]:
    return re.compile(END.sub("", translate(text)))
