"""The beginning of what a client sent, for sentences of errors: what was sent may be as long as a body."""

from __future__ import annotations

import reprlib
from itertools import islice
from typing import Any

LENGTH = 80
"""Characters, at most."""
ITEMS = 12
"""The items of a list or dict that are looked at, and the lists in each other: `ITEMS` to the power of `LEVELS`."""
LEVELS = 3


class _Beginning(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = LEVELS
        self.maxlist = self.maxtuple = self.maxdict = ITEMS
        self.maxstring = self.maxother = 2 * LENGTH

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Return the first items in their order; `reprlib` would sort all of them."""
        if level <= 0:
            return "{...}"
        items = islice(x.items(), self.maxdict)
        pieces = [f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}" for key, value in items]
        return "{" + ", ".join([*pieces, "..."] if len(x) > self.maxdict else pieces) + "}"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x[: self.maxstring])


_BEGINNING = _Beginning()


def shorten(text: str, length: int = LENGTH) -> str:
    """Return a text or, of a longer one, its beginning and three dots, `length` characters in all."""
    return text if len(text) <= length else text[: length - 3] + "..."


def short_repr(value: Any) -> str:
    """Return the `repr` of a value, of a long one the beginning; it takes as long for any value."""
    if isinstance(value, str):
        return shorten(repr(value[: 2 * LENGTH]))
    return shorten(_BEGINNING.repr(value))
