"""Messages about the elements of chunks, by chunk selections, each in its chunk's own coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.chunk_kind import FoundElements
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Reduction
from hsparse.model.json_values import Values
from hsparse.wire.message import Message, ReadMessage

NO_LIMIT = 2**63 - 1
"""A limit in bytes that no answer reaches."""


@dataclass(frozen=True, slots=True)
class ReadChunks(ReadMessage[tuple[Any, ...]]):
    """Read values: for each chunk selection `Values` of its shape, None where all is fill value.

    With `fields` the elements have those alone, packed, in that order. Where values of variable length would have more
    than `limit` bytes together, some answers are a number of bytes instead, 0 where the chunk was not read any more:
    ask for these again, in pages.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    fields: tuple[str, ...] = ()
    limit: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class ReadDefined(ReadMessage[tuple[Any, ...]]):
    """Read `DefinedElements` of sparse chunks inside each chunk selection, None where there are none.

    With `places_only` without their values. `limit` is as for `ReadChunks` and includes the offsets; a single element
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
    """Reduce the elements inside the chunk selections, of sparse chunks the defined ones, each chunk at one time.

    The chunk selections are orthogonal, each index once. `origins: (k, rank)` int64 is where each begins in the whole
    selection, `codes` the groups of positions along the grouped axis from `first_code` on. The reply is about the
    places of the whole result. A dense chunk that was never written has no elements.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    origins: NDArray[np.int64]
    reduction: Reduction
    codes: NDArray[np.int32] | None = None
    first_code: int = 0


@dataclass(frozen=True, slots=True)
class WriteChunks(Message[None]):
    """Write values, one array a chunk selection; durable when answered.

    An array has the chunk selection's shape, or one element for all. Of a point given twice the last value wins. With
    `drop_fill` (sparse only) elements equal to the fill value are left as they are. With `fields` the values have
    those alone, packed, in that order, and the other fields stay, those of the fill value where nothing was written.
    Of chunks that begin outside `grown_from`, the extent before an append, there is most likely no object yet.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    values: tuple[Values, ...]
    drop_fill: bool = False
    fields: tuple[str, ...] = ()
    grown_from: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FindElements(ReadMessage[tuple[FoundElements | None, ...]]):
    """Find the elements that answer a query, see `format.query`; None where a chunk was never written.

    The selections have each element once, in row-major order. With `limit` a chunk selection has at most so many
    answers, the first ones; `in_order` says that the selections' elements follow one another, so that those after the
    ones that have `limit` answers together may be answered as having none. With `order_by`, see `Ordering`, the
    first ones are those in that order; they are answered in row-major order all the same. `fields` are as for
    `ReadChunks`; with `places_only` the values are empty.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    query: str
    limit: int = 0
    in_order: bool = False
    fields: tuple[str, ...] = ()
    places_only: bool = False
    order_by: str = ""


@dataclass(frozen=True, slots=True)
class UpdateElements(Message[tuple[FoundElements, ...]]):
    """Set the elements that answer a query when the change is applied; durable when answered.

    `value` is one element of `fields` alone, packed, or without them a whole one. The reply has the changed elements
    with their new values. A chunk's change is atomic. Selections are as for `FindElements`.
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

    Those before `first` in any dimension are outside, too: the lower bound of a signed dataset. The coordinates of
    chunks below its base are negative.

    From then on the data node refuses a stale plan, as `Moved`: chunk operations planned for an older generation of
    the dataset than `spec.generation`. So it does after any chunk message of a newer generation. It answers when the
    operations that it had accepted are durable. Without chunks the message is a fence alone.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    scaled: tuple[tuple[int, ...], ...]
    first: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FenceDeleted(Message[None]):
    """Refuse, as `Gone`, chunk operations of a deleted dataset from now on.

    The data node answers when the operations that it had accepted are durable: then the chunks can be deleted, and
    none is written afterwards.
    """

    dataset: str
