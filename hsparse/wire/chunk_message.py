"""Messages about the elements of chunks. Selections are in the chunk's own coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.chunk_kind import FoundElements
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.model.json_values import Values
from hsparse.wire.message import Message

NO_LIMIT = 2**63 - 1
"""As a limit in bytes: whatever an answer has."""


@dataclass(frozen=True, slots=True)
class ReadChunks(Message[tuple[Any, ...]]):
    """Read values: for each part `Values` of the selection's shape, None where all is fill value.

    With `fields` the elements have those alone, packed, in that order. Where variable-length parts together would have
    more than `limit` bytes, some are only their number of bytes, 0 of those that were not looked at any more: ask for
    these again, in pieces.
    """

    spec: ChunkSpec
    parts: tuple[ChunkSelection, ...]
    fields: tuple[str, ...] = ()
    limit: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class ReadDefined(Message[tuple[Any, ...]]):
    """Read `DefinedElements` of sparse chunks inside each part's selection, None where there are none.

    With `places_only` without their values. `limit` is as for `ReadChunks`, places and values counted; but a single
    element of a single part comes whatever it has.
    """

    spec: ChunkSpec
    parts: tuple[ChunkSelection, ...]
    places_only: bool = False
    limit: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class CountDefined(Message[tuple[int, ...]]):
    """Count the defined elements inside each part's selection."""

    spec: ChunkSpec
    parts: tuple[ChunkSelection, ...]


@dataclass(frozen=True, slots=True)
class WriteChunks(Message[None]):
    """Write values, one array a part in the selection's order; durable when answered.

    A part's array has the selection's shape, or one element for all. A point given twice: the last
    wins. With `drop_fill` (sparse only) elements equal to the fill value are left as they are. With
    `fields` the values have those alone, packed, in that order, and the others stay: the fill value's where
    nothing was written.
    """

    spec: ChunkSpec
    parts: tuple[ChunkSelection, ...]
    values: tuple[Values, ...]
    drop_fill: bool = False
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FindElements(Message[tuple[FoundElements | None, ...]]):
    """Find the elements that answer a query, see `format.query`; None where all of a part is fill value.

    The selections meet each element once, in row-major order. With `limit` a part has at most so many, the
    first ones; `in_order` says that the parts' elements follow one another, so that parts behind those that
    have `limit` together may be answered as having none. `fields` are as for `ReadChunks`; with `places_only`
    the values are empty.
    """

    spec: ChunkSpec
    parts: tuple[ChunkSelection, ...]
    query: str
    limit: int = 0
    in_order: bool = False
    fields: tuple[str, ...] = ()
    places_only: bool = False


@dataclass(frozen=True, slots=True)
class UpdateElements(Message[tuple[FoundElements, ...]]):
    """Change the elements that answer a query, at the moment of the change; durable when answered.

    `value` is one element of `fields` alone, packed, or without them a whole one. The reply has what was
    changed, as it is now. A chunk is changed at once or not at all. Selections are as for `FindElements`.
    """

    spec: ChunkSpec
    parts: tuple[ChunkSelection, ...]
    query: str
    value: NDArray[Any]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EraseChunks(Message[None]):
    """Make elements undefined (sparse only); durable when answered."""

    spec: ChunkSpec
    parts: tuple[ChunkSelection, ...]


@dataclass(frozen=True, slots=True)
class TrimChunks(Message[None]):
    """Drop what lies outside `extent` in the chunks at `scaled`: undefined, or the fill value if dense.

    From then on the data node refuses, as `Moved`, chunk operations planned for an older generation of
    the dataset than `spec.generation`, as it does after any chunk message of a newer one; it answers when
    those it had accepted are durable. With no chunks named, that is all it does: a fence.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    scaled: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class FenceDeleted(Message[None]):
    """Refuse, as `Gone`, chunk operations of a deleted dataset from now on.

    The data node answers when those it had accepted are durable: then the chunks can be deleted, and none
    comes after.
    """

    dataset: str
