"""HSDS's summary of a domain's objects, deleted before the first change of one here.

HSDS 1.0 answers a client that opens a domain from the `.summary.json` of its last scan, however old, and with values
of small datasets: without the deletion it would miss the changes made here.
"""

from __future__ import annotations

from collections import OrderedDict

from hsparse.model.ids import ID_DOMAIN, domain_prefix
from hsparse.storage.object_store import ObjectStore

NAME = ".summary.json"
MAX_DOMAINS = 100_000
"""The most domains that are remembered as having no summary; a forgotten one has it deleted once more."""


class HsdsSummaries:
    """HSDS's summaries of the domains whose objects a data node changes."""

    def __init__(self, store: ObjectStore, limit: int = MAX_DOMAINS) -> None:
        self._store = store
        self._limit = limit
        self._none: OrderedDict[str, None] = OrderedDict()

    async def remove(self, id: str) -> None:
        """Delete the summary of an object's domain, unless it is known that there is none."""
        if id[ID_DOMAIN] not in self._none:
            await self._store.delete(domain_prefix(id) + NAME)
            self.know_none(id)

    def know_none(self, id: str) -> None:
        """Remember that an object's domain has no summary."""
        self._none[id[ID_DOMAIN]] = None
        if len(self._none) > self._limit:
            self._none.popitem(last=False)
