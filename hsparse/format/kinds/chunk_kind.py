"""The protocol of the four kinds of chunk, sparse or dense, with elements of a fixed size or of variable length.

Each kind is one module beside this one; `hsparse.format.kinds.registry` says which one a dataset has. Code that loads,
changes and stores chunks uses the protocol and does not distinguish kinds.

A chunk in memory is a value of type `V`, never modified once it is committed; None stands for a chunk that was never
written. A `ChunkChange` depends on the chunk alone and does not modify it, so that it can be applied again after
another writer's put.

Chunks that a client encoded itself (H5Dwrite_chunk, H5Dwrite_struct_chunk), checked before they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_map import MASK, SIZE, UNFILTERED, sections_of
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.fields import pick_fields
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.query import Ordering, Query
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Selection
from hsparse.format.structured.container import Section, claimed_sizes
from hsparse.model.json_values import Values

V = TypeVar("V")
T = TypeVar("T")

ChunkChange: TypeAlias = Callable[[V | None], tuple[V | None, T]]
"""Takes a chunk (None: there is none), returns the new one (None: delete it; the same: unchanged) and a result."""


@dataclass(frozen=True, slots=True)
class DefinedElements:
    """Defined elements of one chunk: `offsets: (n,) uint32`, row-major in the chunk, ascending; `values` (n,).

    `values` is empty where only the offsets were requested.
    """

    offsets: NDArray[np.uint32]
    values: Values


@dataclass(frozen=True, slots=True)
class FoundElements:
    """Elements of a chunk selection that answer a query.

    `positions: (n,) uint32`, ascending, are places in the selection's iteration order; `values: (n,)`.
    """

    positions: NDArray[np.uint32]
    values: NDArray[Any]

    @classmethod
    def none(cls, dtype: np.dtype[Any]) -> FoundElements:
        """Return the result where no element answers the query."""
        return cls(np.zeros(0, np.uint32), np.zeros(0, dtype))


@dataclass(frozen=True, slots=True)
class Search:
    """A query, bound to the elements' type, and the form of its result.

    The result has at most `limit` elements a chunk (0: all), the first ones in the order of places or of `ordering`, of
    compounds `fields` alone, packed, and with `places_only` no values.
    """

    query: Query
    limit: int = 0
    fields: tuple[str, ...] = ()
    places_only: bool = False
    ordering: Ordering | None = None

    def among(self, values: NDArray[Any]) -> FoundElements:
        """Return the elements that answer the query, among the values of one selection."""
        flat = values.reshape(-1)
        positions = np.flatnonzero(self.query.mask(flat)).astype(np.uint32)
        return self.result(positions, flat[positions])

    def result(self, positions: NDArray[np.uint32], rows: NDArray[Any]) -> FoundElements:
        """Return the result, given the positions of all elements that answer the query, and these elements."""
        if self.limit and self.ordering is not None:
            kept = np.sort(self.ordering.first(rows, self.limit))
            positions, rows = positions[kept], rows[kept]
        elif self.limit:
            # Copies: a view would keep in memory all that was found.
            positions, rows = positions[: self.limit].copy(), rows[: self.limit].copy()
        if self.places_only:
            return FoundElements(positions, np.empty((0, *rows.shape[1:]), rows.dtype))
        return FoundElements(positions, pick_fields(rows, self.fields))


@dataclass(frozen=True, slots=True, eq=False)
class DirectWrite(Generic[V]):
    """A chunk that a client encoded itself: decoded, and its object with the client's bytes.

    `data` is None where the object has no place for the client's filter mask: the chunk is encoded again then.
    """

    chunk: V
    data: Buffer | None


class ChunkKind(Protocol[V]):
    """Reads and changes the chunks of one dataset. Selections are in the chunk's own coordinates.

    `limit` of `read` and `defined` is in bytes: where an answer has more, its number of bytes is returned instead.
    Kinds of a fixed size ignore it, since the caller knows the size of the answer.
    """

    spec: ChunkSpec
    chunks_at_once: int
    """How many chunks of one message are processed concurrently: bounds memory and open store requests."""

    # --- bytes --------------------------------------------------------------------------------------

    def decode(self, data: Buffer) -> V:
        """Return the chunk of an object; `Corrupt` when it does not decode to one."""
        ...

    def encode(self, chunk: V) -> Buffer:
        """Return the object of a chunk, which must not change any more; `BadRequest` when a filter fails."""
        ...

    def open_direct(
        self, data: bytes, sections: NDArray[np.uint64], scaled: tuple[int, ...], stop: tuple[int, ...]
    ) -> DirectWrite[V]:
        """Decode and check a chunk that a client encoded; `sections: (k, 3)` as in `ChunkRows`.

        `stop` are the dimensions of the part inside the extent. `BadRequest` or `Corrupt` says what is wrong.
        """
        ...

    # --- reading ------------------------------------------------------------------------------------

    def missing(self, scaled: tuple[int, ...]) -> V | None:
        """Return the chunk to read where none was written; None where it is all fill value."""
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
        """Return the elements that answer a query; `Unsupported` where elements have no fixed size."""
        ...

    def reduce(self, chunk: V, selection: Orthogonal, reduction: Reduction, codes: Codes | None) -> Partials:
        """Return what the selected elements reduce to, of sparse chunks the defined ones.

        Places are those in the result of the selection alone; `codes` are the groups of its positions along the grouped
        axis. `Unsupported` for numbers of elements that have no fixed size.
        """
        ...

    # --- changing -----------------------------------------------------------------------------------

    def write(
        self, at: ChunkSelection, values: Values, fields: tuple[str, ...], drop_fill: bool
    ) -> ChunkChange[V, None]:
        """Return the change that defines the selected elements.

        `values` are one each, in the selection's order, or one for all. With `fields` they have those alone, packed,
        and the others stay. With `drop_fill` (sparse) elements equal to the fill value are left as they are; with both
        `BadRequest`, see `check_drop_fill`.
        """
        ...

    def replaces(self, at: ChunkSelection, values: Values) -> bool:
        """Say whether writing whole elements everywhere in a chunk cannot fail: the old chunk is not needed then."""
        ...

    def update(
        self, at: ChunkSelection, search: Search, value: NDArray[Any]
    ) -> ChunkChange[V, FoundElements]:
        """Return the change that sets the search's fields of the elements it finds to `value`.

        `value` is one element of these fields. The result of the change has the changed elements with their new values.
        """
        ...

    def erase(self, selection: Selection) -> ChunkChange[V, None]:
        """Return the change that makes the selected elements undefined; `BadRequest` for dense chunks."""
        ...

    def trim(
        self, scaled: tuple[int, ...], stop: tuple[int, ...], start: tuple[int, ...] = ()
    ) -> ChunkChange[V, None]:
        """Return the change that drops elements at or beyond `stop`, or before `start`, in any dimension.

        They become undefined, or the fill value in dense chunks.
        """
        ...

    # --- bounds of memory, in bytes ------------------------------------------------------------------

    def nbytes(self, chunk: V) -> int:
        """Return the memory of a chunk."""
        ...

    def answer_bytes(self, values: Values) -> int:
        """Return the bytes of values' elements, which count towards the `limit` of an answer."""
        ...

    def decode_bound(self, data: Buffer) -> int:
        """Return about how much memory decoding an object may take, with the chunk; `Corrupt` where it has no size."""
        ...

    def encode_bound(self, chunk: V) -> int:
        """Return about how much memory changing a chunk and encoding it again may take besides the change."""
        ...

    def reduce_bound(self, chunk: V, selection: Orthogonal) -> int:
        """Return about how much memory reducing the selected elements may take besides the chunk and the result."""
        ...

    def load_bound(self, selection: Selection) -> int:
        """Return about how much memory reading a selection of a chunk that was never written may take."""
        ...

    def change_bound(self, selection: Selection) -> int:
        """Return about how much memory changing the selected elements may take."""
        ...

    def read_work(self, chunk: V, selection: Selection, fields: tuple[str, ...]) -> int:
        """Return how many bytes `read` works on, see `hsparse.compute`."""
        ...

    def defined_work(self, chunk: V, selection: Selection) -> int:
        """Return how many bytes `defined` works on, see `hsparse.compute`."""
        ...

    def direct_bound(self, sections: NDArray[np.uint64]) -> int:
        """Return how much memory decoding a directly written chunk may take besides its bytes."""
        ...


def check_drop_fill(fields: Sequence[str]) -> None:
    """Raise `BadRequest` for a write of some fields, if any, that is to leave out elements equal to the fill value.

    Whether an element equals it depends on its other fields, those that are stored.
    """
    if fields:
        raise BadRequest("drop_fill is about whole elements; leave out fields.")


MAX_UNFILTERED = 512 * 1024 * 1024
"""The most unfiltered bytes of a section: memory of the size that a client claims is taken before it is checked."""


def open_direct_chunk(
    kind: ChunkKind[V],
    data: bytes,
    sections: NDArray[np.uint64],
    scaled: tuple[int, ...],
    stop: tuple[int, ...],
) -> DirectWrite[V]:
    """Decode and check a client's bytes.

    `sections: (k, 3)` are as in `ChunkRows`, of a dense chunk the mask alone. `stop` are the dimensions of
    the part inside the extent. `BadRequest` says what is wrong with the bytes.
    """
    spec = kind.spec
    count = len(spec.filters) if spec.sparse else 1
    if sections.shape != (count, 3) or int(sections[:, MASK].max()) >= 2**32:
        raise BadRequest(
            f"A chunk of {spec.dataset} has {count} sections, each with a filter mask of 32 bits."
        )
    try:
        return kind.open_direct(data, sections, scaled, stop)
    except Corrupt as error:
        raise BadRequest(f"The bytes are no chunk of {spec.dataset}: {error.message}") from error


def checked_sections(data: bytes, table: NDArray[np.uint64]) -> tuple[Section, ...]:
    """Return the sections that a client claims; `BadRequest` or `TooLarge` where they are impossible."""
    sizes = table[:, SIZE].tolist()
    if sum(sizes) != len(data):
        raise BadRequest(f"The sections have {sizes} bytes, the body {len(data)}.")
    if int(table[:, UNFILTERED].max()) > MAX_UNFILTERED:
        raise TooLarge(
            f"A section of {int(table[:, UNFILTERED].max())} bytes unfiltered is too large to be written directly; "
            f"the limit is {MAX_UNFILTERED}: write values."
        )
    return sections_of(table)


class SparseColumns(Protocol):
    """A sparse chunk, as far as all its kinds are alike: the ascending offsets of its elements, (n,) uint32."""

    @property
    def offsets(self) -> NDArray[np.uint32]: ...

    @property
    def nbytes(self) -> int: ...

    def select(self, mask: NDArray[np.bool_]) -> Self:
        """Return the chunk with only the elements where `mask: (n,)` is set."""
        ...


Chunk = TypeVar("Chunk", bound=SparseColumns)


class SparseKind(Generic[Chunk]):
    """What is the same in each `ChunkKind` of sparse chunks."""

    spec: ChunkSpec

    def missing(self, scaled: tuple[int, ...]) -> None:
        return None

    def count(self, chunk: Chunk, selection: Selection) -> int:
        offsets = chunk.offsets
        return len(offsets) if selection.is_all else int(np.count_nonzero(selection.contains(offsets)))

    def erase(self, selection: Selection) -> ChunkChange[Chunk, None]:
        def change(chunk: Chunk | None) -> tuple[Chunk | None, None]:
            if chunk is None:
                return None, None
            gone = selection.contains(chunk.offsets)
            return (chunk.select(~gone) if gone.any() else chunk), None

        return change

    def trim(
        self, scaled: tuple[int, ...], stop: tuple[int, ...], start: tuple[int, ...] = ()
    ) -> ChunkChange[Chunk, None]:
        dims = self.spec.dims
        kept = Orthogonal.box(dims, start or (0,) * len(dims), tuple(map(min, stop, dims)))

        def change(chunk: Chunk | None) -> tuple[Chunk | None, None]:
            if chunk is None:
                return None, None
            keep = kept.contains(chunk.offsets)
            return (chunk if keep.all() else chunk.select(keep)), None

        return change

    def decode_bound(self, data: Buffer) -> int:
        return self.sections_bound(claimed_sizes(data))

    def direct_bound(self, sections: NDArray[np.uint64]) -> int:
        return self.sections_bound(sections[:, UNFILTERED].tolist())

    def sections_bound(self, sizes: Sequence[int]) -> int:
        """Return about how much memory decoding sections of these unfiltered sizes takes, with the chunk."""
        raise NotImplementedError

    def read_work(self, chunk: Chunk, selection: Selection, fields: tuple[str, ...]) -> int:
        return chunk.nbytes + selection.size
