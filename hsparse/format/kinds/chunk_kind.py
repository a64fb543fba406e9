"""The protocol of the four kinds of chunk: sparse or dense, with elements of fixed size or of variable length.

Each kind is one module of this package; `hsparse.format.kinds.registry` chooses the kind of a dataset. Code that loads,
changes and stores chunks uses the protocol and does not distinguish kinds.

A chunk in memory is a value of type `V` that is never modified after it is committed. A chunk that was never written is
represented by None. A `ChunkChange` depends only on the chunk and does not modify it. If another writer replaces the
chunk's object at the same time, the change can therefore be applied again to the new chunk.

The module also checks chunks that a client encoded itself (H5Dwrite_chunk, H5Dwrite_struct_chunk).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_map import MASK, SIZE, UNFILTERED, sections_of
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.fields import pick_fields
from hsparse.format.ordering import Ordering
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.query import Query, bind_query
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Selection
from hsparse.format.structured.container import Section
from hsparse.model.json_values import Values

V = TypeVar("V")
T = TypeVar("T")

ChunkChange: TypeAlias = Callable[[V | None], tuple[V | None, T]]
"""A function that takes a chunk, or None if it was never written, and returns the new chunk and a result.

The new chunk is None to delete the chunk, or the same object to leave the chunk unchanged.
"""


@dataclass(frozen=True, slots=True)
class DefinedElements:
    """Defined elements of one chunk: their row-major `offsets: (n,) uint32` in the chunk, ascending, and `values` (n,).

    `values` is empty if only the offsets were requested.
    """

    offsets: NDArray[np.uint32]
    values: Values


@dataclass(frozen=True, slots=True)
class FoundElements:
    """Elements of a chunk selection that match a query.

    `positions: (n,) uint32`, ascending, are positions in the selection's iteration order; `values: (n,)`.
    """

    positions: NDArray[np.uint32]
    values: NDArray[Any]

    @classmethod
    def none(cls, dtype: np.dtype[Any]) -> FoundElements:
        """Return a result without elements."""
        return cls(np.zeros(0, np.uint32), np.zeros(0, dtype))


@dataclass(frozen=True, slots=True)
class Search:
    """A query bound to the elements' dtype, and the form of its result.

    The result has the first `limit` elements of each chunk (0: all), in the order `ordering` or else by position.
    With `fields` the elements are packed and have only these fields. With `places_only` the result has no values.
    """

    query: Query
    limit: int = 0
    fields: tuple[str, ...] = ()
    places_only: bool = False
    ordering: Ordering | None = None

    def among(self, values: NDArray[Any]) -> FoundElements:
        """Return the elements that match the query, given the values of a selection in its shape."""
        flat = values.reshape(-1)
        positions = np.flatnonzero(self.query.mask(flat)).astype(np.uint32)
        return self.result(positions, flat[positions])

    def result(self, positions: NDArray[np.uint32], rows: NDArray[Any]) -> FoundElements:
        """Return the result, given the positions and the values of all elements that match the query."""
        if self.limit and self.ordering is not None:
            kept = np.sort(self.ordering.first(rows, self.limit))
            positions, rows = positions[kept], rows[kept]
        elif self.limit:
            # Copies, because views would keep all matches in memory.
            positions, rows = positions[: self.limit].copy(), rows[: self.limit].copy()
        if self.places_only:
            return FoundElements(positions, np.empty((0, *rows.shape[1:]), rows.dtype))
        return FoundElements(positions, pick_fields(rows, self.fields))


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A query (`hsparse.format.query`) of chunk selections, and the form of its result, as sent between nodes.

    The result has at most the first `limit` matches of each selection (0: all), in the order `order_by` or else by
    position. With `in_order`, the selections' elements follow each other in order, and once
    `limit` matches are found, the reply may omit the matches of later selections.
    """

    query: str
    limit: int = 0
    in_order: bool = False
    fields: tuple[str, ...] = ()
    places_only: bool = False
    order_by: str = ""

    def bound(self, dtype: np.dtype[Any]) -> Search:
        """Return the search for elements of a type; raise `BadRequest` if the query does not fit the type."""
        ordering = Ordering.parse(self.order_by, dtype) if self.order_by else None
        return Search(bind_query(self.query, dtype), self.limit, self.fields, self.places_only, ordering)


@dataclass(frozen=True, slots=True, eq=False)
class DirectWrite(Generic[V]):
    """A chunk that a client encoded itself: the decoded chunk, and its object with the client's bytes.

    `data` is None if the object cannot store the client's filter mask; the chunk must then be encoded again.
    """

    chunk: V
    data: Buffer | None


class ChunkKind(Protocol[V]):
    """Operations on the chunks of one dataset. Selections are in the chunk's own coordinates.

    `limit` of `read` and `defined` is in bytes: if the result is larger, its size in bytes is returned instead. Kinds
    with fixed-size elements ignore `limit`, because the caller knows the size of the result.
    """

    spec: ChunkSpec
    chunks_at_once: int
    """How many chunks of one message are processed concurrently, which bounds memory and open store requests."""

    # --- bytes --------------------------------------------------------------------------------------

    def decode(self, data: Buffer) -> V:
        """Return the chunk in an object's bytes; raise `Corrupt` if they do not decode."""
        ...

    def encode(self, chunk: V) -> Buffer:
        """Return the object of a chunk that will not change any more; raise `BadRequest` if a filter fails."""
        ...

    def open_direct(
        self, data: bytes, sections: NDArray[np.uint64], scaled: tuple[int, ...], stop: tuple[int, ...]
    ) -> DirectWrite[V]:
        """Decode and check a chunk that a client encoded; `sections: (k, 3)` are as in `ChunkRows`.

        `stop` has the dimensions of the chunk's part inside the extent. Raises `BadRequest` or `Corrupt`.
        """
        ...

    # --- reading ------------------------------------------------------------------------------------

    def missing(self, scaled: tuple[int, ...]) -> V | None:
        """Return the chunk that stands for an unwritten chunk, or None if all its elements are the fill value."""
        ...

    def read(
        self, chunk: V, selection: Selection, fields: tuple[str, ...], limit: int
    ) -> Values | int | None:
        """Return the selected values in the selection's shape, or possibly None if all values are the fill value.

        With `fields` the elements are packed and have only these fields, in this order.
        """
        ...

    def defined(
        self, chunk: V, selection: Selection, places_only: bool, limit: int, alone: bool
    ) -> DefinedElements | int | None:
        """Return the defined elements inside the selection, or None if there are none.

        With `alone`, a single element is returned even if it exceeds `limit`.
        """
        ...

    def count(self, chunk: V, selection: Selection) -> int:
        """Return how many of the selected elements are defined."""
        ...

    def find(self, chunk: V, selection: Selection, search: Search) -> FoundElements:
        """Return the elements that match a query; raise `Unsupported` for variable-length elements."""
        ...

    def reduce(self, chunk: V, selection: Orthogonal, reduction: Reduction, codes: Codes | None) -> Partials:
        """Return the partial results of the selected elements; in a sparse chunk, only of defined elements.

        The places are the places of a reduction of this selection alone. `codes` has the group of each position along
        the grouped axis. Variable-length elements can only be counted; other reductions raise `Unsupported`.
        """
        ...

    # --- changing -----------------------------------------------------------------------------------

    def write(
        self, at: ChunkSelection, values: Values, fields: tuple[str, ...], drop_fill: bool
    ) -> ChunkChange[V, None]:
        """Return the change that defines the selected elements.

        `values` has one element per selected element, in the selection's order, or one for all. With `fields` the
        values are packed compounds of these fields, and the other fields keep their values. With `drop_fill` (sparse
        chunks) elements equal to the fill value are not written. `fields` and `drop_fill` together raise `BadRequest`.
        """
        ...

    def replaces(self, at: ChunkSelection, values: Values) -> bool:
        """Return whether a write of whole elements to all of a chunk cannot fail; the old chunk is then not loaded."""
        ...

    def update(
        self, at: ChunkSelection, search: Search, value: NDArray[Any]
    ) -> ChunkChange[V, FoundElements]:
        """Return the change that sets the fields `search.fields` of all elements that match the search to `value`.

        `value` is one packed element of these fields. The change's result has the changed elements with new values.
        """
        ...

    def erase(self, selection: Selection) -> ChunkChange[V, None]:
        """Return the change that makes the selected elements undefined; raise `BadRequest` for dense chunks."""
        ...

    def trim(
        self, scaled: tuple[int, ...], stop: tuple[int, ...], start: tuple[int, ...] = ()
    ) -> ChunkChange[V, None]:
        """Return the change that drops the elements at or beyond `stop`, or before `start`, in any dimension.

        Dropped elements become undefined in sparse chunks, and the fill value in dense chunks.
        """
        ...

    # --- bounds of memory, in bytes ------------------------------------------------------------------

    def nbytes(self, chunk: V) -> int:
        """Return the bytes of memory that a chunk takes."""
        ...

    def answer_bytes(self, values: Values) -> int:
        """Return the bytes of the elements of `values`, which count towards the `limit` of a result."""
        ...

    def decode_bound(self, data: Buffer) -> int:
        """Return the estimated memory to decode an object, including the chunk; raise `Corrupt` for a bad footer."""
        ...

    def encode_bound(self, chunk: V) -> int:
        """Return the estimated memory to change a chunk and encode the result, beyond `change_bound`."""
        ...

    def reduce_bound(self, chunk: V, selection: Orthogonal) -> int:
        """Return the estimated memory to reduce the selected elements, without the chunk and the result."""
        ...

    def load_bound(self, selection: Selection) -> int:
        """Return the estimated memory to load a chunk that was never written, for the given selection."""
        ...

    def change_bound(self, selection: Selection) -> int:
        """Return the estimated memory to change the selected elements."""
        ...

    def read_work(self, chunk: V, selection: Selection, fields: tuple[str, ...]) -> int:
        """Return the number of bytes that `read` processes, see `hsparse.compute`."""
        ...

    def defined_work(self, chunk: V, selection: Selection) -> int:
        """Return the number of bytes that `defined` processes, see `hsparse.compute`."""
        ...

    def direct_bound(self, sections: NDArray[np.uint64]) -> int:
        """Return the estimated memory to decode a directly written chunk, without its bytes."""
        ...


def check_drop_fill(fields: Sequence[str]) -> None:
    """Raise `BadRequest` if a write with `drop_fill` names fields.

    Whether an element equals the fill value also depends on fields that the write does not have.
    """
    if fields:
        raise BadRequest("drop_fill needs whole elements: leave out fields, or drop_fill.")


MAX_UNFILTERED = 512 * 1024 * 1024
"""The most unfiltered bytes that a client may claim for a section; they are allocated before the section is checked."""


def open_direct_chunk(
    kind: ChunkKind[V],
    data: bytes,
    sections: NDArray[np.uint64],
    scaled: tuple[int, ...],
    stop: tuple[int, ...],
) -> DirectWrite[V]:
    """Decode and check a chunk that a client encoded; raise `BadRequest` if its bytes are invalid.

    `sections: (k, 3)` are as in `ChunkRows`; for a dense chunk only the filter mask is used. `stop` has the dimensions
    of the chunk's part inside the extent.
    """
    spec = kind.spec
    count = len(spec.filters) if spec.sparse else 1
    if sections.shape != (count, 3) or int(sections[:, MASK].max()) >= 2**32:
        raise BadRequest(
            f"A chunk of {spec.dataset} needs {count} sections, each with a filter mask of 32 bits."
        )
    try:
        return kind.open_direct(data, sections, scaled, stop)
    except Corrupt as error:
        raise BadRequest(f"The body is no chunk of {spec.dataset}: {error.message}") from error


def checked_sections(data: bytes, table: NDArray[np.uint64]) -> tuple[Section, ...]:
    """Return a client's sections; raise `BadRequest` for a wrong total size, `TooLarge` for a too large one."""
    sizes = table[:, SIZE].tolist()
    if sum(sizes) != len(data):
        raise BadRequest(f"The sections have {sizes} bytes in total; the body has {len(data)}.")
    if int(table[:, UNFILTERED].max()) > MAX_UNFILTERED:
        raise TooLarge(
            f"A section of {int(table[:, UNFILTERED].max())} bytes unfiltered is too large to be written directly; "
            f"the limit is {MAX_UNFILTERED}: write values."
        )
    return sections_of(table)
