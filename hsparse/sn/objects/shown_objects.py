"""Whole objects as answers show them, in JSON: made once for each record, for opening a domain asks for all of them."""

from __future__ import annotations

from collections import OrderedDict

from hsparse.sn.json_text import encode_floats
from hsparse.sn.objects.shown import shown_object
from hsparse.wire.message import Record

BUDGET = 32 << 20
"""Bytes of memory that are kept."""
RECORD = 8
"""Bytes of memory of a record for each byte of its JSON, about."""


class ShownObjects:
    """Objects with their links and attributes, the least recently used out first.

    What is kept is of one record, never of another with the same id: records are not modified, a changed object
    has a new one. Records that came over the wire are new each time, and made anew.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._made: OrderedDict[tuple[str, bool], tuple[Record, bytes]] = OrderedDict()
        self._nbytes = 0

    def whole(self, record: Record, *, ignore_nan: bool = False) -> bytes:
        """Return an object's JSON."""
        key = record["id"], ignore_nan
        made = self._made.get(key)
        if made is not None and made[0] is record:
            self._made.move_to_end(key)
            return made[1]
        data = encode_floats(shown_object(record, links=True, attributes=True, ignore_nan=ignore_nan))
        self._keep(key, record, data)
        return data

    def _keep(self, key: tuple[str, bool], record: Record, data: bytes) -> None:
        self._drop(self._made.pop(key, None))
        self._made[key] = record, data
        self._nbytes += _weight(data)
        while self._nbytes > self._budget:
            self._drop(self._made.popitem(last=False)[1])

    def _drop(self, made: tuple[Record, bytes] | None) -> None:
        if made is not None:
            self._nbytes -= _weight(made[1])


def _weight(data: bytes) -> int:
    return (1 + RECORD) * len(data)
