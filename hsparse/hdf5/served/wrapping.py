"""What a data node that serves files has instead of its store and its ownership; cheap to import where none does."""

from __future__ import annotations

from typing import Any

from hsparse.config import Settings, cache_directory
from hsparse.dn.membership.ownership import Ownership
from hsparse.optional_module import OptionalModule
from hsparse.storage.object_store import ObjectStore

STORE = OptionalModule("hsparse.hdf5.served.store")


class ServedOwnership:
    """An `Ownership` that does not trust what is known of files, which others change."""

    always = False

    def __init__(self, base: Ownership, files: Any) -> None:
        self._base, self._files = base, files

    @property
    def shared(self) -> bool:
        return self._base.shared

    @property
    def hears_all(self) -> bool:
        return self._base.hears_all

    @property
    def term(self) -> int:
        return self._base.term

    def trusts(self, name: str) -> bool:
        return self._base.trusts(name) and self._files.trusts(name)

    def may_change(self, term: int) -> bool:
        return self._base.may_change(term)


def wrapped(settings: Settings, store: ObjectStore, ownership: Ownership) -> tuple[ObjectStore, Ownership]:
    """Return the store and the ownership of a data node that serves files, too, if the settings name any."""
    if not settings.data.files:
        return store, ownership
    cache = settings.data.files_cache
    if cache is None and not settings.store.read_only:
        cache = cache_directory()
    files = STORE.load().served_files(store, settings.data.files, settings.store, cache)
    return files, ServedOwnership(ownership, files)
