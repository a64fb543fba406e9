"""What HSDS keeps of a domain's objects, removed before the first change of one here.

HSDS 1.0 answers who opens a domain from the `.summary.json` of its last scan, however old, with the values of small
datasets too: what was changed here in the meantime it would not show.
"""

from __future__ import annotations

from collections import OrderedDict

from hsparse.model.ids import domain_prefix
from hsparse.storage.object_store import ObjectStore

NAME = ".summary.json"
LIMIT = 100_000
"""Domains that are remembered as without one; of one that was forgotten it is removed once more."""


class HsdsSummaries:
    """The summaries of the domains whose objects a data node changes."""

    def __init__(self, store: ObjectStore, limit: int = LIMIT) -> None:
        self._store = store
        self._limit = limit
        self._none: OrderedDict[str, None] = OrderedDict()

    async def remove(self, id: str) -> None:
        """Return when the domain of an object has no summary; most often that is known."""
        prefix = domain_prefix(id)
        if prefix not in self._none:
            await self._store.delete(prefix + NAME)
            self.know_none(id)

    def know_none(self, id: str) -> None:
        """Remember that an object's domain has no summary."""
        self._none[domain_prefix(id)] = None
        if len(self._none) > self._limit:
            self._none.popitem(last=False)
