"""Differences between two snapshots of a domain, or between a snapshot and the domain as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hsparse.model.ids import is_delta_key
from hsparse.storage.object_store import Entry
from hsparse.versions.restoring import record_of
from hsparse.versions.version_keys import chunk_of

Json = dict[str, Any]


def differences(root: str, before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[Json]:
    """Return the created, deleted and changed objects and chunks, in key order.

    `before` and `after` map keys, without the domain's prefix, to the stored objects that are read for the keys. A key
    with the same stored object in both dicts has not changed. `root` is the root group.
    """
    found: dict[str, Json] = {}
    for rest in sorted({*before, *after}):
        old, new = before.get(rest), after.get(rest)
        if old is not None and new is not None and (old.key, old.etag) == (new.key, new.etag):
            continue
        record = record_of(rest)
        if record:
            change = _change(record in before, record in after)
            found[record] = {"id": _id(root, record), "chunk": None, "change": change, "marker": record}
        elif not is_delta_key(rest) and (chunk := chunk_of(rest)) is not None:
            change = _change(old is not None, new is not None)
            name = rest.rpartition("/")[2]
            found[rest] = {"id": _id(root, chunk[0]), "chunk": name, "change": change, "marker": rest}
    return [found[key] for key in sorted(found)]


def _id(root: str, record: str) -> str:
    """Return the id of an object, given its record's key without the domain's prefix."""
    folder = record.rpartition("/")[0]
    return f"{folder[0]}-{root[2:19]}-{folder[2:]}" if folder else root


def _change(was: bool, is_there: bool) -> str:
    return "changed" if was and is_there else "created" if is_there else "deleted"


def by_object(changes: list[Json]) -> dict[str, Json]:
    """Return a dict that maps each object's id to its kind of change and the number of its chunks that differ."""
    found: dict[str, Json] = {}
    for one in changes:
        known = found.setdefault(one["id"], {"id": one["id"], "change": "changed", "chunks": 0})
        if one["chunk"] is None:
            known["change"] = one["change"]
        else:
            known["chunks"] += 1
    return found
