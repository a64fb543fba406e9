"""Wrap the store and the ownership of a data node that serves files. Other nodes do not import the other modules."""

from __future__ import annotations

from hsparse.config import Settings, cache_directory
from hsparse.dn.membership.ownership import Ownership, PartlyTrusted
from hsparse.optional_module import OptionalModule
from hsparse.storage.object_store import ObjectStore

STORE = OptionalModule("hsparse.hdf5.in_place.store")
RIGHTS = OptionalModule("hsparse.hdf5.in_place.place_rights")
PLACES = OptionalModule("hsparse.hdf5.in_place.places")


async def check(settings: Settings, store: ObjectStore) -> None:
    """Raise `Misconfigured` if a place in the settings would hide keys of the store."""
    if settings.data.files:
        await RIGHTS.load().check_names(store, PLACES.load().names_of(settings.data.files))


def wrapped(settings: Settings, store: ObjectStore, ownership: Ownership) -> tuple[ObjectStore, Ownership]:
    """Return a pair: the store and the ownership of a data node, wrapped to serve files if the settings name places."""
    if not settings.data.files:
        return store, ownership
    cache = settings.data.files_cache
    if cache is None and not settings.store.read_only:
        cache = cache_directory()
    most = settings.data.chunk_bytes()
    files = STORE.load().served_files(store, settings.data.files, settings.store, cache, most)
    return files, PartlyTrusted(ownership, files.trusts)
