"""Patterns of names with `*`, `?` and `[a-z]`, as `fnmatch` has them, in a time that follows the length of the name.

A pattern is parts between its stars, each of a fixed length: the first begins the name, the last ends it, and each of
the others is looked for behind the one before, where the first place is as good as any.
"""

from __future__ import annotations

import re
from fnmatch import translate

ELEMENT = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
"""A set in brackets, or one character."""
SPECIAL = re.compile(r"[?\[]")
END = re.compile(r"\\[zZ]$")
"""What `translate` ends an expression with."""
FEW = 32
"""Different elements of a part up to which places are found by bits: an expression tries each place by itself, which
takes long where a few elements come again and again."""


class NamePattern:
    """A pattern; `re.error` if a set of it is none."""

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
        """Say whether the whole name matches."""
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
    """A part of a pattern without stars: text, or an expression that matches as many characters as it has elements."""

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
        """Return the first place within `start` to `end`; -1 without one."""
        if self._text is not None:
            return name.find(self._text, start, end)
        if len(self._elements) > FEW:
            found = self._expression.search(name, start, end)
            return -1 if found is None else found.start()
        return self._find_by_bits(name, start, end)

    def _find_by_bits(self, name: str, start: int, end: int) -> int:
        """Return the place for all elements at once: each has a number whose bits are the places where it matches."""
        text = name[start:end][::-1]
        if len(text) < self.length:
            return -1
        bits = [one.places(text) for one in self._elements]
        found = -1
        for place, which in enumerate(self._order):
            found &= bits[which] >> place
        return start + (found & -found).bit_length() - 1 if found else -1


class _Bits(dict[int, str]):
    """The digits that characters become: "1" where an element of a pattern matches."""

    def __init__(self, element: str) -> None:
        self.element = element
        self._expression = _expression(element)

    def __missing__(self, code: int) -> str:
        self[code] = "0" if self._expression.fullmatch(chr(code)) is None else "1"
        return self[code]

    def places(self, text: str) -> int:
        """Return a number whose bits, the lowest for the last character, say where the element matches."""
        return int(text.translate(self), 2)


def _expression(text: str) -> re.Pattern[str]:
    return re.compile(END.sub("", translate(text)))
