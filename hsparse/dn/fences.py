"""Fences: refuse chunk operations that were planned before a shrink of the extent, or whose dataset was deleted.

Each shrink raises the *generation* in the dataset's record. A chunk operation carries the generation that its sender
read (`ChunkSpec.generation`), and is refused if a newer one is known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hsparse.bounded_cache import BoundedCache
from hsparse.errors import Gone, Moved
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.model.ids import (
    ID_DOMAIN,
    is_root,
)

MAX_FENCES = 100_000
"""The most datasets that are remembered. A forgotten dataset's generation is learned again from its record.

A deleted dataset has no record. If it was forgotten, an operation planned before its deletion is carried out, and the
chunks stay until a sweep. A missing record refuses nothing, because a chunk may be written without a record.
"""


class Fences:
    """The fencing token of each dataset: the newest generation seen, or None if the dataset was deleted.

    A deleted domain has one entry for all of its datasets, under the part that the ids of its objects share.

    `generation_of` reads a dataset's generation from its stored record, so a restarted node refuses the same operations
    as before. If `hears_all()` is False, the node may miss a shrink, so it reads the record before each change.
    """

    def __init__(
        self,
        generation_of: Callable[[str], Awaitable[int]],
        limit: int = MAX_FENCES,
        hears_all: Callable[[], bool] = lambda: True,
    ) -> None:
        self._generation_of = generation_of
        self._hears_all = hears_all
        self._newest: BoundedCache[str, int | None] = BoundedCache.of_entries(
            limit, lambda dataset, _: self._unread.discard(dataset)
        )
        self._unread: set[str] = set()
        """Datasets whose generation is known from a message but was not read from the record."""

    async def learn(self, dataset: str) -> None:
        """Learn the dataset's generation before its chunks are changed; raise what `generation_of` raises."""
        if dataset not in self._newest or dataset in self._unread or not self._hears_all():
            generation = await self._generation_of(dataset)
            self._raise(dataset, generation)
            self._unread.discard(dataset)

    def check(self, spec: ChunkSpec) -> None:
        """Raise `Moved` if the generation of `spec` is older than the newest, and `Gone` for a deleted dataset."""
        newest = self._newest.get(spec.dataset, 0)
        if newest is None or spec.dataset[ID_DOMAIN] in self._newest:
            raise Gone(f"The dataset {spec.dataset} was deleted.")
        if spec.generation < newest:
            raise Moved(f"The extent of {spec.dataset} was shrunk in the meantime; try again.")
        if spec.generation > newest:
            if spec.dataset not in self._newest:
                self._unread.add(spec.dataset)
            self._raise(spec.dataset, spec.generation)

    def forget(self) -> None:
        """Forget all datasets: this node was no member for a while and may have missed shrinks and deletions."""
        self._newest.clear()
        self._unread.clear()

    async def guard(self, answer: Callable[[Any], Awaitable[Any]], message: Any) -> Any:
        """Return `await answer(message)`; raise the error of `check` if the dataset was deleted or shrunk by then."""
        self.check(message.spec)
        reply = await answer(message)
        self.check(message.spec)
        return reply

    def refuse_deleted(self, id: str) -> None:
        """Refuse all operations on a deleted dataset, or on all datasets of a deleted root group, from now on."""
        self._newest.keep(id[ID_DOMAIN] if is_root(id) else id, None)
        self._unread.discard(id)

    def allow(self, root: str) -> None:
        """Allow operations below a root group again, because it belongs to a new domain."""
        self._newest.forget(root[ID_DOMAIN])

    def _raise(self, dataset: str, generation: int) -> None:
        """Remember a generation, unless a newer one, or the dataset's deletion, is known already."""
        known = self._newest.get(dataset, 0)
        self._newest.keep(dataset, None if known is None else max(known, generation))
