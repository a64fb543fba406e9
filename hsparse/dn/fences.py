"""Which chunk operations come too late: planned before a shrink of the extent, or for a deleted dataset."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from hsparse.errors import Gone, Moved
from hsparse.model.chunk_spec import ChunkSpec

LIMIT = 100_000
"""How many datasets are remembered; one that is forgotten is learnt again from its record."""


class Fences:
    """By dataset, the newest generation heard of; None when it was deleted.

    `generation_of` reads a dataset's generation from its stored record: so a node that was restarted does
    not take an operation that it had refused before.
    """

    def __init__(self, generation_of: Callable[[str], Awaitable[int]], limit: int = LIMIT) -> None:
        self._generation_of = generation_of
        self._limit = limit
        self._newest: OrderedDict[str, int | None] = OrderedDict()

    async def learn(self, dataset: str) -> None:
        """Know the dataset's generation; to be awaited before its chunks are changed."""
        if dataset not in self._newest:
            generation = await self._generation_of(dataset)
            self._raise(dataset, generation)

    def check(self, spec: ChunkSpec) -> None:
        """Raise `Moved` for an older generation than the newest, `Gone` for a deleted dataset."""
        newest = self._newest.get(spec.dataset, 0)
        if newest is None:
            raise Gone(f"{spec.dataset} was deleted.")
        if spec.generation < newest:
            raise Moved(f"The extent of {spec.dataset} was shrunk in the meantime.")
        if spec.generation > newest:
            self._raise(spec.dataset, spec.generation)

    def bury(self, dataset: str) -> None:
        """Refuse everything about a dataset from now on."""
        self._newest[dataset] = None

    def _raise(self, dataset: str, generation: int) -> None:
        """Remember a generation, unless a newer one, or the dataset's deletion, was heard of meanwhile."""
        known = self._newest.get(dataset, 0)
        self._newest[dataset] = None if known is None else max(known, generation)
        self._newest.move_to_end(dataset)
        if len(self._newest) > self._limit:
            self._newest.popitem(last=False)
