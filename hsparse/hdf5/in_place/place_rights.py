"""Access rights of served places: the ACLs of the folder that a place is served as, stored in the object store.

The ACLs apply to all files and folders of the place. The folder's record is stored when the ACLs are first changed;
by default every authenticated user may read.
"""

from __future__ import annotations

from collections.abc import Iterable

from hsparse.dn.record_form import RecordCodec
from hsparse.errors import Forbidden, Misconfigured, NotFound
from hsparse.model.acl import place_acls
from hsparse.model.file_backed import SERVED
from hsparse.storage.object_store import Buffer, ObjectStore, Stored
from hsparse.wire.message import Record

RECORD = ".domain.json"
OWNER = "admin"
NEW = "folder"
"""Etag of the default record of a place, which is not stored."""
KEPT = frozenset({"acls", "lastModified"})
"""Fields of a place's record that clients may change."""
TAKEN = {"db": "has the objects of domains", "home": "has the folders of users"}


class PlaceRights:
    """The folder records of places; a name is the name that a place is served as."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def get(self, name: str) -> Stored:
        """Return the encoded record of a place, with the stored ACLs or, if none are stored, the default ACLs."""
        key = _key(name)
        try:
            stored = await self._store.get(key)
        except NotFound:
            data = RecordCodec(key).encode(_new())
            return Stored(data, NEW, len(data))
        record = _new() | {
            one: x for one, x in RecordCodec(key).decode(bytes(stored.data)).items() if one in KEPT
        }
        data = RecordCodec(key).encode(record)
        return Stored(data, stored.etag, len(data))

    async def put(self, name: str, data: Buffer, etag: str) -> str:
        """Replace the record of a place by a conditional put; return the new etag.

        Raises `Forbidden` if `data`, the encoded record, changes a field other than `KEPT`.
        """
        key = _key(name)
        record = RecordCodec(key).decode(bytes(data))
        if {one: x for one, x in record.items() if one not in KEPT} != {
            one: x for one, x in _new().items() if one not in KEPT
        }:
            raise Forbidden(f"/{name} serves files read-only (--files): only its rights can be changed.")
        if etag == NEW:
            return await self._store.put_if_absent(key, data)
        return await self._store.put_if_match(key, data, etag)


async def check_names(store: ObjectStore, names: Iterable[str]) -> None:
    """Raise `Misconfigured` if a place's name would hide a domain, folder or other keys of the store."""
    for name in names:
        hidden = TAKEN.get(name) or ("exists in the store" if await _is_stored(store, name) else None)
        if hidden:
            raise Misconfigured(
                f"--files: the folder /{name} {hidden}; give the place another name (NAME=PLACE)."
            )


async def _is_stored(store: ObjectStore, name: str) -> bool:
    """Return whether a store has a domain or a folder of this name, or a key below it."""
    async for page in store.list(f"{name}/"):
        if any(entry.key != _key(name) for entry in page.entries):
            return True
    try:
        stored = await store.get(_key(name))
    except NotFound:
        return False
    return RecordCodec(_key(name)).decode(bytes(stored.data)).get(SERVED) is not True


def _new() -> Record:
    """Return the default record of a place."""
    return {"owner": OWNER, "acls": place_acls(), SERVED: True, "created": 0.0, "lastModified": 0.0}


def _key(name: str) -> str:
    return f"{name}/{RECORD}"
