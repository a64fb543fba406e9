"""Kerchunk references in JSON, read member by member as they come: a domain may have millions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hsparse.client.json_reader import JsonReader

REFS = "refs"


class ReferenceMembers:
    """The members of `refs` in JSON that comes in `blocks`; `others` are those beside it, once all were read.

    Iterating raises `HsparseError` for what is no such JSON, and for JSON that ends too early.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._json = JsonReader(iter(blocks))
        self.others: dict[str, Any] = {}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name in self._json.members():
            if name == REFS:
                for member in self._json.members():
                    yield member, self._json.value()
            else:
                self.others[name] = self._json.value()
