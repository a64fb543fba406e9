"""Shortened text of client input for error messages, because the input may be as long as a request body."""

from __future__ import annotations

import reprlib
from itertools import islice
from typing import Any

MAX_LENGTH = 80
"""The most characters of a shortened text."""
MAX_ITEMS = 12
"""The most items of each list or dict that are formatted: at most `MAX_ITEMS ** MAX_LEVELS` altogether."""
MAX_LEVELS = 3


class _Beginning(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = MAX_LEVELS
        self.maxlist = self.maxtuple = self.maxdict = MAX_ITEMS
        self.maxstring = self.maxother = 2 * MAX_LENGTH

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Return the `repr` of the first items in insertion order; `reprlib` would sort all items."""
        if level <= 0:
            return "{...}"
        items = islice(x.items(), self.maxdict)
        pieces = [f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}" for key, value in items]
        return "{" + ", ".join([*pieces, "..."] if len(x) > self.maxdict else pieces) + "}"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x[: self.maxstring])


_BEGINNING = _Beginning()


def shorten(text: str, length: int = MAX_LENGTH) -> str:
    """Return `text`, truncated to `length` characters including three dots if it is longer."""
    return text if len(text) <= length else text[: length - 3] + "..."


def short_repr(value: Any) -> str:
    """Return the `repr` of a value, truncated to `MAX_LENGTH` characters; large values take no more time."""
    if isinstance(value, str):
        return shorten(repr(value[: 2 * MAX_LENGTH]))
    return shorten(_BEGINNING.repr(value))
