"""What HSDS keeps of a domain's objects, removed before the first change of one here.

HSDS 1.0 answers who opens a domain from the `.summary.json` of its last scan, however old: what was changed here
in the meantime it would not show.
"""

from __future__ import annotations

from collections import OrderedDict

from hsparse.model.objid import domain_prefix, is_root
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.message import Change, CreateObject

NAME = ".summary.json"
LIMIT = 100_000
"""Domains that are remembered as without one; of one that was forgotten it is removed once more."""


class ForeignSummaries:
    """The summaries of the domains whose objects a data node changes."""

    def __init__(self, store: ObjectStore, limit: int = LIMIT) -> None:
        self._store = store
        self._limit = limit
        self._none: OrderedDict[str, None] = OrderedDict()

    async def remove(self, change: Change) -> None:
        """Return when the domain of what is changed has no summary; most often that is known."""
        if change.id[1] != "-" or change.id[0] == "s":  # a domain's path, or a summary of our own
            return
        prefix = domain_prefix(change.id)
        if prefix in self._none:
            return
        if not (isinstance(change, CreateObject) and is_root(change.id)):
            await self._store.delete(prefix + NAME)
        self._none[prefix] = None
        if len(self._none) > self._limit:
            self._none.popitem(last=False)
