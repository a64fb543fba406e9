"""Messages about the elements of chunks, selected by chunk selections in each chunk's own coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.chunk_kind import FoundElements, QueryRequest
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Reduction
from hsparse.model.json_values import Values
from hsparse.wire.message import Message, ReadMessage

NO_LIMIT = 2**63 - 1
"""A limit in bytes that no reply reaches."""


@dataclass(frozen=True, slots=True)
class ReadChunks(ReadMessage[tuple[Any, ...]]):
    """Read values: for each chunk selection `Values` of its shape, or None if all its values are the fill value.

    With `fields` the elements have only these fields, packed, in that order. If variable-length values would exceed
    `limit` bytes in total, the reply has their number of bytes instead of some values, or 0 for a chunk not read.
    The sender must read these selections again, in smaller parts.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    fields: tuple[str, ...] = ()
    limit: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class ReadDefined(ReadMessage[tuple[Any, ...]]):
    """Read the `DefinedElements` of sparse chunks inside each chunk selection, or None if a selection has none.

    With `places_only` the values are omitted. `limit` is as in `ReadChunks` and includes the offsets; a single element
    of a single chunk selection has no limit.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    places_only: bool = False
    limit: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class CountDefined(ReadMessage[tuple[int, ...]]):
    """Count the defined elements inside each chunk selection."""

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]


@dataclass(frozen=True, slots=True)
class ReduceChunks(ReadMessage[Partials]):
    """Reduce the selected elements of chunks, or in sparse chunks the defined elements; each chunk is read atomically.

    Chunk selections are orthogonal and have each index once. `origins: (k, rank) int64` are the positions of their
    first elements in the whole selection. `codes` are the groups along the grouped axis from position `first_code` on.
    Places in the reply are indices of the whole result. A dense chunk that was never written has no elements.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    origins: NDArray[np.int64]
    reduction: Reduction
    codes: NDArray[np.int32] | None = None
    first_code: int = 0


@dataclass(frozen=True, slots=True)
class WriteChunks(Message[None]):
    """Write values, one array per chunk selection; durable when answered.

    An array has the chunk selection's shape, or one element to write at all points. A point's last value wins.
    With `drop_fill` (sparse only), values equal to the fill value are not written. With `fields`, the values have only
    these fields, packed, in that order; other fields are unchanged, or get the fill value in new elements. Chunks that
    begin outside `grown_from`, the extent before an append, most likely have no object yet.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    values: tuple[Values, ...]
    drop_fill: bool = False
    fields: tuple[str, ...] = ()
    grown_from: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FindElements(ReadMessage[tuple[FoundElements | None, ...]]):
    """Find the elements that match a query (`format.query`); the reply for a chunk that was never written is None.

    The selections have each element once, in row-major order; the reply is in the same order.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    wanted: QueryRequest


@dataclass(frozen=True, slots=True)
class UpdateElements(Message[tuple[FoundElements, ...]]):
    """Set the elements that match a query when the change is applied; durable when answered.

    `value` is one packed element of only the `fields`, or a whole element without `fields`. The reply has the changed
    elements with their new values. A chunk's change is atomic. Selections are as in `FindElements`.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    query: str
    value: NDArray[Any]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EraseChunks(Message[None]):
    """Make elements undefined (sparse only); durable when answered."""

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]


@dataclass(frozen=True, slots=True)
class TrimChunks(Message[None]):
    """Make elements outside `extent` undefined, or the fill value if dense, in the chunks at `scaled`.

    Elements below `first` (the lower bounds of a signed dataset) in any dimension are outside as well. The coordinates
    of chunks below the dataset's base are negative.

    From then on the data node refuses stale plans with `Moved`: chunk operations planned for an older generation of the
    dataset than `spec.generation`. (Every chunk message of a newer generation has this effect.) The node answers when
    the operations that it had accepted are durable. Without chunks the message is only a fence.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    scaled: tuple[tuple[int, ...], ...]
    first: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FenceDeleted(Message[None]):
    """Refuse with `Gone` all further operations on chunks of a deleted dataset, or of a deleted root group's datasets.

    The data node answers when the operations that it had accepted are durable: then the chunks can be deleted, and no
    chunk is written afterwards.
    """

    id: str
