"""Messages about the elements of chunks. Selections are in the chunk's own coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.selections.selection import Selection
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.variable_array import VariableArray
from hsparse.wire.message import Message


@dataclass(frozen=True, slots=True)
class Part:
    """One chunk's share of an operation: its scaled coordinates and a selection inside it.

    `full` says that the selection covers every element of the chunk that lies inside the extent.
    """

    scaled: tuple[int, ...]
    selection: Selection
    full: bool = False


@dataclass(frozen=True, slots=True)
class SparseValues:
    """Defined elements of one chunk: row-major `offsets: (n,)` in the chunk, ascending, and values."""

    offsets: NDArray[np.uint32]
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class SparseVariableValues:
    """The same of a variable-length type: `values` has shape (n,)."""

    offsets: NDArray[np.uint32]
    values: VariableArray

    @property
    def nbytes(self) -> int:
        """The bytes of the places and of the values' heap."""
        return self.offsets.nbytes + len(self.values.heap)


@dataclass(frozen=True, slots=True)
class ReadChunks(Message[tuple[NDArray[Any] | None, ...]]):
    """Read values: for each part an array of the selection's shape, None where all is fill value.

    With `fields` the elements have those alone, packed, in that order.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadVariable(Message[tuple[VariableArray | int | None, ...]]):
    """Read values of a variable-length type: for each part an array of the selection's shape.

    None where all is fill value. Where the parts together would have more than `limit` bytes, some are only
    their number of bytes, 0 of those that were not looked at any more: they are to be asked for in pieces.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class ReadSparse(Message[tuple[SparseValues | None, ...]]):
    """Read the defined elements of sparse chunks inside each part's selection.

    With `places_only`, which alone there is for variable-length types, the values are empty.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    places_only: bool = False


@dataclass(frozen=True, slots=True)
class ReadSparseVariable(Message[tuple[SparseVariableValues | int | None, ...]]):
    """Read the defined elements of sparse chunks of a variable-length type inside each part's selection.

    Where the parts together would have more than `limit` bytes, places and values, some are only their number of
    bytes, as `ReadVariable` has it; but a single element of a single part comes whatever it has.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class CountDefined(Message[tuple[int, ...]]):
    """Count the defined elements inside each part's selection."""

    spec: ChunkSpec
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class WriteChunks(Message[None]):
    """Write values, one array a part in the selection's order; durable when answered.

    A part's array has the selection's shape, or one element for all. A point given twice: the last
    wins. With `drop_fill` (sparse only) elements equal to the fill value are left as they are. With
    `fields` the values have those alone, packed, in that order, and the others stay: the fill value's where
    nothing was written.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    values: tuple[NDArray[Any] | VariableArray, ...]
    drop_fill: bool = False
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """Elements of one part that answer a query.

    `positions: (n,) uint32`, ascending, are places in the iteration of the part's selection; `values: (n,)`.
    """

    positions: NDArray[np.uint32]
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class FindElements(Message[tuple[Found | None, ...]]):
    """Find the elements that answer a query, see `format.query`; None where all of a part is fill value.

    The selections meet each element once, in row-major order. With `limit` a part has at most so many, the
    first ones; `in_order` says that the parts' elements follow one another, so that parts behind those that
    have `limit` together may be answered as having none. `fields` are as for `ReadChunks`; with `places_only`
    the values are empty.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    query: str
    limit: int = 0
    in_order: bool = False
    fields: tuple[str, ...] = ()
    places_only: bool = False


@dataclass(frozen=True, slots=True)
class UpdateElements(Message[tuple[Found, ...]]):
    """Change the elements that answer a query, at the moment of the change; durable when answered.

    `value` is one element of `fields` alone, packed, or without them a whole one. The reply has what was
    changed, as it is now. A chunk is changed at once or not at all. Selections are as for `FindElements`.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    query: str
    value: NDArray[Any]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EraseChunks(Message[None]):
    """Make elements undefined (sparse only); durable when answered."""

    spec: ChunkSpec
    parts: tuple[Part, ...]


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
class Bury(Message[None]):
    """Refuse, as `Gone`, chunk operations of a deleted dataset from now on.

    The data node answers when those it had accepted are durable: then the chunks can be deleted, and none
    comes after.
    """

    dataset: str
