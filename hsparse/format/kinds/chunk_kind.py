"""The kind of a chunk as a type: what is done with chunks, whatever their elements are made of.

A kind has two properties: whether chunks are sparse (some elements are undefined) and whether elements have a fixed
size. There is one module for each of the four, and `hsparse.format.kinds.registry` says which one a dataset has.
Whoever loads, changes and stores chunks asks the kind and never its name.

A chunk in memory is a value of type `V`, never modified once it is committed; None stands for a chunk that was never
written. A `ChunkChange` is a pure function of the chunk, so that it can be applied again after another writer's put.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.format.buffer import Buffer
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.fields import pick_fields
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.query import Query
from hsparse.format.selections.selection import Selection
from hsparse.model.json_values import Values

V = TypeVar("V")
T = TypeVar("T")

ChunkChange: TypeAlias = Callable[[V | None], tuple[V | None, T]]
"""Takes a chunk (None: there is none) and returns the new one (None: delete it; the same: unchanged) and a result."""


@dataclass(frozen=True, slots=True)
class DefinedElements:
    """Defined elements of one chunk: `offsets: (n,) uint32`, row-major in the chunk, ascending; `values` (n,).

    `values` is empty where only the places were asked for.
    """

    offsets: NDArray[np.uint32]
    values: Values


@dataclass(frozen=True, slots=True)
class FoundElements:
    """Elements of a chunk selection that a query finds.

    `positions: (n,) uint32`, ascending, count in the selection's order; `values: (n,)`.
    """

    positions: NDArray[np.uint32]
    values: NDArray[Any]

    @classmethod
    def none(cls, dtype: np.dtype[Any]) -> FoundElements:
        """Return what is found where no element answers the query."""
        return cls(np.zeros(0, np.uint32), np.zeros(0, dtype))


@dataclass(frozen=True, slots=True)
class Search:
    """A query, bound to the elements' type, and what is wanted of the elements that it finds.

    At most `limit` a chunk (0: all); of compounds `fields` alone, packed; with `places_only` no values.
    """

    query: Query
    limit: int = 0
    fields: tuple[str, ...] = ()
    places_only: bool = False

    def among(self, values: NDArray[Any]) -> FoundElements:
        """Return what is found among the values of one selection."""
        flat = values.reshape(-1)
        positions = np.flatnonzero(self.query.mask(flat)).astype(np.uint32)
        return self.wanted(positions, flat[positions])

    def wanted(self, positions: NDArray[np.uint32], rows: NDArray[Any]) -> FoundElements:
        """Return the answer, given the positions of all that is found and the elements there."""
        if self.limit:
            positions, rows = positions[: self.limit], rows[: self.limit]
        return FoundElements(positions, rows[:0] if self.places_only else pick_fields(rows, self.fields))


@dataclass(frozen=True, slots=True, eq=False)
class DirectWrite(Generic[V]):
    """A chunk that a client encoded itself, decoded, and the object that holds these very bytes.

    `data` is None where the object has no place for what the bytes need: the chunk is encoded again then.
    """

    chunk: V
    data: Buffer | None


class ChunkKind(Protocol[V]):
    """What is done with the chunks of one dataset. Selections are in the chunk's own coordinates.

    `limit` of `read` and `defined` is in bytes: where an answer has more, the number of its bytes is returned in its
    place. Elements of a fixed size need no limit, since the asker knows their size, and ignore it.
    """

    spec: ChunkSpec
    chunks_at_once: int
    """How many chunks of one message are worked on at a time: bounds memory and open store requests."""

    # --- bytes --------------------------------------------------------------------------------------

    def decode(self, data: bytes) -> V:
        """Return the chunk that an object holds; `Corrupt` when it does not decode to one."""
        ...

    def encode(self, chunk: V) -> Buffer:
        """Return the object of a chunk, which must not change any more; `BadRequest` when a filter fails."""
        ...

    def open_direct(
        self, data: bytes, sections: NDArray[np.uint64], scaled: tuple[int, ...], stop: tuple[int, ...]
    ) -> DirectWrite[V]:
        """Check a chunk's bytes as a client sent them; `sections: (k, 3)` as in `ChunkRows`.

        `stop` are the dimensions of what lies inside the extent. `BadRequest` or `Corrupt` says what is wrong.
        """
        ...

    # --- reading ------------------------------------------------------------------------------------

    def missing(self, scaled: tuple[int, ...]) -> V | None:
        """Return what stands for a chunk that was never written, None for nothing but the fill value."""
        ...

    def read(
        self, chunk: V, selection: Selection, fields: tuple[str, ...], limit: int
    ) -> Values | int | None:
        """Return the selected values in the selection's shape, None where all are the fill value.

        With `fields` the elements have those alone, packed, in that order.
        """
        ...

    def defined(
        self, chunk: V, selection: Selection, places_only: bool, limit: int, alone: bool
    ) -> DefinedElements | int | None:
        """Return the defined elements inside the selection, None where there are none.

        With `alone` a single element has no limit.
        """
        ...

    def count(self, chunk: V, selection: Selection) -> int:
        """Return how many of the selected elements are defined."""
        ...

    def find(self, chunk: V, selection: Selection, search: Search) -> FoundElements:
        """Return what a query finds; `Unsupported` where elements have no fixed size."""
        ...

    # --- changing -----------------------------------------------------------------------------------

    def write(
        self, at: ChunkSelection, values: Values, fields: tuple[str, ...], drop_fill: bool
    ) -> ChunkChange[V, None]:
        """Return the change that defines the selected elements.

        `values` are one each, in the selection's order, or one for all. With `fields` they have those alone, packed,
        and the others stay. With `drop_fill` (sparse) elements equal to the fill value are left as they are.
        """
        ...

    def replaces(self, at: ChunkSelection, values: Values) -> bool:
        """Say whether writing whole elements everywhere in a chunk never fails: no need to know the old chunk."""
        ...

    def update(
        self, at: ChunkSelection, search: Search, value: NDArray[Any]
    ) -> ChunkChange[V, FoundElements]:
        """Return the change that sets the search's fields of what it finds to `value`, one element of these.

        Its result is what was changed, as it is now.
        """
        ...

    def erase(self, selection: Selection) -> ChunkChange[V, None]:
        """Return the change that makes the selected elements undefined; of dense chunks there is none."""
        ...

    def trim(self, scaled: tuple[int, ...], stop: tuple[int, ...]) -> ChunkChange[V, None]:
        """Return the change that drops what lies at or beyond `stop` in any dimension."""
        ...

    # --- bounds of memory, in bytes ------------------------------------------------------------------

    def nbytes(self, chunk: V) -> int:
        """Return what a chunk takes."""
        ...

    def answer_bytes(self, values: Values) -> int:
        """Return what values count of the `limit` of an answer: the bytes of their elements."""
        ...

    def load_bound(self, selection: Selection) -> int:
        """Return about what loading a chunk to read a selection may take, 0 where nothing is known before."""
        ...

    def change_bound(self, selection: Selection) -> int:
        """Return about what changing the selected elements may take."""
        ...

    def read_work(self, chunk: V, selection: Selection, fields: tuple[str, ...]) -> int:
        """Return how many bytes `read` works on: whether it is worth a thread."""
        ...

    def direct_bound(self, sections: NDArray[np.uint64]) -> int:
        """Return what decoding a directly written chunk may take besides its bytes."""
        ...
