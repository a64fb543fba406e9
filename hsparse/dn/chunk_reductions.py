"""Reductions of the chunks that a data node owns: each chunk is reduced in a thread, and results are merged in order.

Chunks are merged in the order of the message, so repeating a request gives bit-identical floating-point sums.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from hsparse.compute import compute
from hsparse.concurrency.gathering import gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.dn.chunks import Chunks
from hsparse.format.kinds.chunk_kind import ChunkKind
from hsparse.format.kinds.registry import kind_of
from hsparse.format.reductions.partials import Partials, reduction_bytes
from hsparse.format.selections.points import Orthogonal, Selection
from hsparse.wire.chunk_message import ReduceChunks

REDUCTIONS_AT_ONCE = 128 * 1024 * 1024
"""The memory budget of concurrent reductions, in bytes, without the chunks and the results."""
WAVE_BYTES = 64 * 1024 * 1024
"""The most bytes of partial results of chunks that wait to be merged."""
PLACE_BYTES = 64
"""The most bytes that partial results take for one element of the result (a place), including its index."""


class ChunkReductions:
    """Reduces the selected elements of chunks, for the message `ReduceChunks`."""

    def __init__(self, chunks: Chunks, pending: MemoryBudget) -> None:
        self._chunks = chunks
        self._pending = pending
        self._working = MemoryBudget(REDUCTIONS_AT_ONCE)

    async def reduce(self, message: ReduceChunks) -> Partials:
        """Return the merged partial results of the message's chunks."""
        reduction, kind = message.reduction, kind_of(message.spec)
        dtype = message.spec.dtype
        dtype = dtype[reduction.field] if reduction.field else dtype
        async with self._pending.hold(reduction.places * PLACE_BYTES):
            result = Partials.empty(reduction.places, dtype, reduction.columns)
            count, wave = len(message.selections), _wave(message, kind)
            for first in range(0, count, wave):
                numbers = range(first, min(first + wave, count))
                at_once = _at_once(message, kind, wave)
                parts = await gather_each(
                    lambda number: self._reduce(message, kind, number), numbers, at_once
                )
                there = [part for part in parts if part is not None]
                del parts
                await compute(sum(part.nbytes for part in there), result.merge_all, there)
            return result.compact()

    async def _reduce(self, message: ReduceChunks, kind: ChunkKind[Any], number: int) -> Partials | None:
        """Return the partial results of one chunk, indexed in the whole result, or None if the chunk is missing."""
        reduce = partial(_reduce_chunk, message, kind, number)
        return await self._chunks.reduce(kind, message.selections[number], self._working, reduce)


def _wave(message: ReduceChunks, kind: ChunkKind[Any]) -> int:
    """Return the number of chunks to reduce before their results are merged."""
    reduction = message.reduction
    nbytes = 16 + 8 * len(reduction.columns) + (8 if "total" in reduction.columns else 0)
    places = prod(reduction.box_shape(tuple(message.spec.dims)))
    return max(1, min(kind.chunks_at_once, WAVE_BYTES // (places * nbytes or 1)))


def _at_once(message: ReduceChunks, kind: ChunkKind[Any], wave: int) -> int:
    """Return the number of chunks to reduce concurrently; more large chunks would only wait for memory."""
    largest = max((at.selection for at in message.selections), key=lambda selection: selection.size)
    loaded = kind.load_bound(largest)
    if not loaded:  # few elements of a sparse chunk are defined
        return wave
    return max(1, min(wave, REDUCTIONS_AT_ONCE // (loaded + reduction_bytes(largest.size))))


def _reduce_chunk(
    message: ReduceChunks, kind: ChunkKind[Any], number: int, chunk: Any, selection: Selection
) -> Partials:
    reduction, origin = message.reduction, message.origins[number].tolist()
    assert isinstance(selection, Orthogonal)
    codes = None
    if message.codes is not None:
        first = origin[reduction.grouped] - message.first_code
        codes = message.codes[first : first + selection.shape[reduction.grouped]]
    found = kind.reduce(chunk, selection, reduction, codes)
    return found.placed(reduction, selection.shape, origin)
