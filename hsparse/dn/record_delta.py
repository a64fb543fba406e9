"""What a large record has that its stored base has not: the changes of its links, attributes and other fields.

A delta is JSON:

    {"base": token, "sealed": false, "written": 5120, "fields": {"removed": [...], "put": {...}},
     "links": {"removed": [...], "put": {...}}, "attributes": {"removed": [...], "put": {...}}}

Of each dict, the names in `removed` are taken away first, then the entries in `put` replace others or are added at the
end. `hsparse.dn.record_objects` says when it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from hsparse.dn.record_checksum import add_checksum, check_checksum
from hsparse.dn.record_codec import parse_json
from hsparse.errors import Corrupt
from hsparse.wire.message import Record

TABLES = ("links", "attributes")
"""The dicts of a record that may be long."""


@dataclass(frozen=True, slots=True)
class EntryChanges:
    """The changes of a dict."""

    removed: dict[str, None] = field(default_factory=dict)
    put: dict[str, Any] = field(default_factory=dict)

    def then(self, before: Record, after: Record, names: Iterable[str]) -> EntryChanges:
        """Return these changes with those of the entries `names` that lead from `before` to `after`."""
        removed, put = dict(self.removed), dict(self.put)
        for name in names:
            if name in after:
                put[name] = after[name]
            elif name in before:
                put.pop(name, None)
                removed[name] = None
        return EntryChanges(removed, put)

    def apply(self, entries: Record) -> None:
        """Change a dict in place."""
        for name in self.removed:
            entries.pop(name, None)
        entries.update(self.put)

    def to_json(self) -> Record:
        return {"removed": list(self.removed), "put": self.put}


@dataclass(frozen=True, slots=True)
class RecordDelta:
    """The changes of a record since the base with this `token` was stored; the base has `base_size` bytes.

    `size` is about how many bytes the delta has, `written` how many were written of all its states so far.
    """

    token: str
    base_size: int
    size: int = 0
    written: int = 0
    fields: EntryChanges = field(default_factory=EntryChanges)
    links: EntryChanges = field(default_factory=EntryChanges)
    attributes: EntryChanges = field(default_factory=EntryChanges)

    def then(self, before: Record, after: Record, table: str, names: Iterable[str]) -> RecordDelta | None:
        """Return the delta with a change from `before` to `after`, which share what is the same in both.

        `names` are the entries of `table` that may differ. None if the base is to be stored again: the next state
        would make what was written of deltas more than the base, or something else differs in a long dict.
        """
        names = tuple(names)
        changes = {"links": self.links, "attributes": self.attributes}
        for long in TABLES:
            if before.get(long) is after.get(long):
                continue
            if long != table or long not in after:
                return None
            changes[long] = changes[long].then(before.get(long) or {}, after[long], names)
        fields = [
            name
            for name in {**before, **after}
            if name not in TABLES and before.get(name, self) is not after.get(name, self)
        ]
        size = self.size + _size(after.get(table) or {}, names) + _size(after, fields)
        if self.written + size > self.base_size:
            return None
        return replace(
            self,
            size=size,
            fields=self.fields.then(before, after, fields),
            links=changes["links"],
            attributes=changes["attributes"],
        )

    def apply(self, record: Record) -> None:
        """Change a record in place from that of the base to the one that the delta was made for."""
        self.fields.apply(record)
        for table, changes in (("links", self.links), ("attributes", self.attributes)):
            if changes.removed or changes.put:
                if not isinstance(record.get(table), dict):
                    record[table] = {}
                changes.apply(record[table])

    def stored(self, nbytes: int) -> RecordDelta:
        """Return the delta after it was stored in `nbytes` bytes."""
        return replace(self, size=nbytes, written=self.written + nbytes)

    def encode(self, *, sealed: bool = False) -> bytes:
        """Return the delta's JSON."""
        data = orjson.dumps(
            {
                "base": self.token,
                "sealed": sealed,
                "written": self.written,
                "fields": self.fields.to_json(),
                "links": self.links.to_json(),
                "attributes": self.attributes.to_json(),
            }
        )
        return add_checksum(data)


def decode_delta(data: bytes, token: str, base_size: int, key: str) -> tuple[RecordDelta, bool]:
    """Return the delta in an object's bytes, and whether it is sealed; `Corrupt` if they are no delta of `token`."""
    check_checksum(data, key)
    try:
        found = parse_json(data)
        if found["base"] != token:
            raise Corrupt(f"The object {key} is of another record than its key; restore it from a copy.")
        sealed, written = found["sealed"], found["written"]
        tables = [_entry_changes(found[name]) for name in ("fields", *TABLES)]
        if not isinstance(sealed, bool) or not isinstance(written, int):
            raise ValueError("sealed or written")
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(
            f"The object {key} has no changes of a record: {error!r}; restore it from a copy."
        ) from error
    return RecordDelta(token, base_size, len(data), written + len(data), *tables), sealed


def _entry_changes(value: Any) -> EntryChanges:
    removed, put = value["removed"], value["put"]
    if not isinstance(removed, list) or not isinstance(put, dict):
        raise ValueError("removed or put")
    return EntryChanges(dict.fromkeys(removed), put)


def _size(entries: Record, names: Iterable[str]) -> int:
    """Return about how many bytes the entries of these names have as JSON."""
    return sum(len(name) + 4 + (len(orjson.dumps(entries[name])) if name in entries else 0) for name in names)
