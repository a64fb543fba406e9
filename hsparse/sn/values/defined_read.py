"""Reading all defined elements of a selection at once, for answers that are not streamed, and counting them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hsparse.errors import TooLarge
from hsparse.format.plan.chunk_plan import chunk_selections, count_chunks
from hsparse.format.selections.points import Orthogonal, Points, Selection
from hsparse.model.json_values import Values
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.http.request import ARROW_TYPE
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values.chunk_fanout import MANY_WHOLE, Array, ChunkFanout, DefinedRead
from hsparse.wire.chunk_message import CountDefined


async def read_whole(read: DefinedRead, selection: Selection, limit: int) -> tuple[Points, Values] | None:
    """Return all defined elements as points and values, or None if they have more than `limit` bytes in total."""
    extent, arrays = read.dataset.extent, read.dataset.arrays
    places: list[Array] = [np.zeros((0, len(extent)), np.uint64)]
    values: list[Values] = []
    total = 0
    async for columns, some in read.pieces(selection):
        count = len(columns[0]) if columns else some.size
        total += 8 * len(extent) * count + arrays.nbytes(some)
        if total > limit:
            return None
        rows = np.stack(columns, axis=1).astype(np.uint64) if columns else np.zeros((0, 0), np.uint64)
        places.append(rows)
        values.append(some)
    return Points(extent, np.concatenate(places)), arrays.join(values)


def whole_bound(
    dataset: StoredDataset, selection: Selection, limit: int, *, places_only: bool = False
) -> int:
    """Return the approximate maximum of bytes that `read_whole` returns; if `places_only`, only of coordinates."""
    places = 8 * len(dataset.extent) * selection.size
    values = 0 if places_only else dataset.arrays.expected(selection.size)
    return min(limit, places + values)


def defined_too_large(limit: int) -> TooLarge:
    """Return the error for an answer of defined elements that has more than `limit` bytes."""
    return TooLarge(
        f"The answer has more than {limit} bytes (max_request_size): select less, or ask for {ARROW_TYPE}, which "
        "is not limited."
    )


def places_too_large(limit: int) -> TooLarge:
    """Return the error for too many coordinates; it suggests `/value`, because coordinates alone have no Arrow form."""
    return TooLarge(
        f"The answer has more than {limit} bytes (max_request_size): select less, or read /value with sparse=1 "
        f"as {ARROW_TYPE}, which has the coordinates too and is not limited."
    )


async def count_defined(owners: Owners, dataset: StoredDataset, selection: Selection) -> int:
    """Return the number of selected elements that are defined; many whole chunks are counted from their footers."""
    chunks, spec = ChunkFanout(owners, dataset), dataset.spec
    if dataset.elsewhere and (known := await chunks.source.count_defined(selection)) is not None:
        return known
    is_all = isinstance(selection, Orthogonal) and selection.is_all
    if is_all and count_chunks(selection, dataset.grid) >= MANY_WHOLE:
        # The footers in the chunk listing give the counts: no chunk is planned or read.
        return sum([int(rows.defined.sum()) async for rows in chunks.listed(selection)])
    total: int = 0
    whole: list[tuple[int, ...]] = []
    async for planned in chunks.batches(selection):
        full = [chunk.scaled for chunk in planned if chunk.full]
        if len(full) < MANY_WHOLE:
            full = []
        parts = [chunk for chunk in planned if not (full and chunk.full)]
        whole += full
        counts: list[int] = await owners.gather(
            parts, chunks.key, lambda some: CountDefined(spec, chunk_selections(some))
        )
        total += sum(counts)
    return total + (await _count_whole(chunks, selection, whole) if whole else 0)


async def _count_whole(chunks: ChunkFanout, selection: Selection, whole: Sequence[tuple[int, ...]]) -> int:
    """Return the number of defined elements in the chunks `whole`, from the footers in the chunk listing."""
    wanted = set(whole)
    total: int = 0
    async for rows in chunks.listed(selection):
        pairs = zip(rows.scaled.tolist(), rows.defined.tolist(), strict=True)
        total += sum(defined for scaled, defined in pairs if tuple(scaled) in wanted)
    return total
