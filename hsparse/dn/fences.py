"""Fences refuse chunk operations with a stale plan: planned before a shrink of the extent, or for a deleted dataset.

Deleted names are remembered for a while, so that they are answered with 410 (`Gone`) and not with 404 (`NotFound`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from hsparse.errors import Gone, HsparseError, Moved, NotFound
from hsparse.format.chunk_spec import ChunkSpec

MAX_FENCES = 100_000
"""The most datasets that are remembered. The generation of a forgotten one is learnt again from its record.

A deleted one has none: what was planned before its deletion, and comes after 100,000 others, is carried out again, and
the chunks stay until a sweep. A chunk may be written without a record, so a missing one refuses nothing.
"""


class Fences:
    """The fencing token of each dataset: the newest generation seen, None when it was deleted.

    `generation_of` reads a dataset's generation from its stored record, so that a restarted node accepts no operation
    that it had refused before. A node that does not hear of all shrinks reads it each time.
    """

    def __init__(
        self,
        generation_of: Callable[[str], Awaitable[int]],
        limit: int = MAX_FENCES,
        hears_all: Callable[[], bool] = lambda: True,
    ) -> None:
        self._generation_of = generation_of
        self._limit = limit
        self._hears_all = hears_all
        self._newest: OrderedDict[str, int | None] = OrderedDict()
        self._unread: set[str] = set()
        """Datasets whose generation a message has told, and whose record was not read."""

    async def learn(self, dataset: str) -> None:
        """Learn the dataset's generation; to be awaited before its chunks are changed.

        Raises what `generation_of` raises, each time: the record forbids changes.
        """
        if dataset not in self._newest or dataset in self._unread or not self._hears_all():
            generation = await self._generation_of(dataset)
            self._raise(dataset, generation)
            self._unread.discard(dataset)

    def check(self, spec: ChunkSpec) -> None:
        """Raise `Moved` for an older generation than the newest, `Gone` for a deleted dataset."""
        newest = self._newest.get(spec.dataset, 0)
        if newest is None:
            raise Gone(f"{spec.dataset} was deleted.")
        if spec.generation < newest:
            raise Moved(f"The extent of {spec.dataset} was shrunk in the meantime.")
        if spec.generation > newest:
            if spec.dataset not in self._newest:
                self._unread.add(spec.dataset)
            self._raise(spec.dataset, spec.generation)

    def forget(self) -> None:
        """Forget all fences: this node was no member for a while, and was not told of some."""
        self._newest.clear()
        self._unread.clear()

    def refuse_deleted(self, dataset: str) -> None:
        """Refuse everything about a deleted dataset from now on."""
        self._remember(dataset, None)
        self._unread.discard(dataset)

    def _raise(self, dataset: str, generation: int) -> None:
        """Remember a generation, unless a newer one, or the dataset's deletion, was seen meanwhile."""
        known = self._newest.get(dataset, 0)
        self._remember(dataset, None if known is None else max(known, generation))

    def _remember(self, dataset: str, generation: int | None) -> None:
        self._newest[dataset] = generation
        self._newest.move_to_end(dataset)
        if len(self._newest) > self._limit:
            forgotten, _ = self._newest.popitem(last=False)
            self._unread.discard(forgotten)


MAX_NAMES = 100_000


class DeletedNames:
    """Names of deleted objects, attributes and links; the oldest are forgotten first.

    Hashes are kept in their place, as names may be long: if two are the same, a `NotFound` becomes a `Gone`.
    """

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._names: OrderedDict[int, None] = OrderedDict()

    def add(self, *name: str) -> None:
        """Remember a deleted name."""
        self._names[hash(name)] = None
        if len(self._names) > self._limit:
            self._names.popitem(last=False)

    def remove(self, *name: str) -> None:
        """Forget a name that exists again."""
        self._names.pop(hash(name), None)

    def missing(self, sentence: str, *name: str) -> HsparseError:
        """Return the error for a missing name, the subject `sentence`: `Gone` when it was deleted, else `NotFound`."""
        return (
            Gone(f"{sentence} was deleted.")
            if hash(name) in self._names
            else NotFound(f"{sentence} does not exist.")
        )
