"""What a data node that serves files has instead of its store and its ownership; cheap to import where none does."""

from __future__ import annotations

from hsparse.config import Settings, cache_directory
from hsparse.dn.membership.ownership import Ownership, PartlyTrusted
from hsparse.optional_module import OptionalModule
from hsparse.storage.object_store import ObjectStore

STORE = OptionalModule("hsparse.hdf5.served.store")


def wrapped(settings: Settings, store: ObjectStore, ownership: Ownership) -> tuple[ObjectStore, Ownership]:
    """Return the store and the ownership of a data node that serves files, too, if the settings name any."""
    if not settings.data.files:
        return store, ownership
    cache = settings.data.files_cache
    if cache is None and not settings.store.read_only:
        cache = cache_directory()
    files = STORE.load().served_files(store, settings.data.files, settings.store, cache)
    return files, PartlyTrusted(ownership, files.trusts)
