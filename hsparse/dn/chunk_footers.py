"""The footers of a dataset's chunks, as columns: of those in memory, and read from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.concurrency.gather import gather_each
from hsparse.dn.cache import Cache
from hsparse.dn.cached_object import CachedObject
from hsparse.errors import BadRequest, Corrupt, NotFound, Unsupported
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.chunk_statistics import unknown_statistics
from hsparse.format.structured.footer import MAX_FOOTER, Footer, read_footer
from hsparse.storage.object_store import ObjectStore, Stored

FOOTERS_AT_ONCE = 32


class ChunkFooters:
    """The footers of chunks, over the node's store and cache."""

    def __init__(self, store: ObjectStore, cache: Cache) -> None:
        self._store = store
        self._cache = cache

    async def read(self, spec: ChunkSpec, rows: ChunkRows) -> tuple[NDArray[np.intp], ChunkRows]:
        """Return the places of the rows whose chunks still exist, and new rows of these.

        Of chunks that are in memory as they were listed, nothing is read.
        """
        keys = [spec.key(scaled) for scaled in rows.scaled.tolist()]

        async def read(listed: tuple[str, str]) -> Stored | None:
            key, etag = listed
            cached: CachedObject[Any] | None = self._cache.peek(key)
            if cached is not None and (tail := cached.tail(etag)) is not None:
                return tail
            return await read_tail(self._store, key, MAX_FOOTER)

        tails = await gather_each(read, list(zip(keys, rows.etags, strict=True)), FOOTERS_AT_ONCE)
        there = np.array([place for place, tail in enumerate(tails) if tail is not None], np.intp)
        found = [tail for tail in tails if tail is not None]
        footers = [
            read_chunk_footer(keys[place], tail, spec)
            for place, tail in zip(there.tolist(), found, strict=True)
        ]
        now = ChunkRows.of(
            rows.scaled[there].tolist(),
            len(spec.dims),
            [tail.size for tail in found],
            [tail.etag for tail in found],
        )
        return there, now.described(*footer_columns(footers, spec))


async def read_tail(store: ObjectStore, key: str, length: int) -> Stored | None:
    """Read the last bytes of a chunk's object, at most `length`; None where there is none, `Corrupt` if it is empty."""
    try:
        return await store.get_range(key, -length)
    except NotFound:
        return None
    except BadRequest as error:
        raise Corrupt(f"The chunk object {key} is corrupt: it is empty.") from error


def read_chunk_footer(key: str, tail: Stored, spec: ChunkSpec) -> Footer:
    """Return the footer at the end of a chunk's object; `Corrupt` names the object."""
    try:
        footer = read_footer(tail.data, tail.size)
        if len(footer.sections) != len(spec.filters):
            raise Corrupt(f"It has {len(footer.sections)} sections, not {len(spec.filters)}.")
    except Corrupt as error:
        raise Corrupt(f"The chunk object {key} is corrupt: {error.message}") from error
    except Unsupported as error:
        raise Unsupported(f"The chunk object {key} cannot be read: {error.message}") from error
    return footer


def footer_columns(
    footers: Sequence[Footer], spec: ChunkSpec
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the contents of footers as columns of `ChunkRows`: `sections`, `defined` and `statistics`."""
    sections, columns = len(spec.filters), len(spec.statistic_columns)
    statistics = unknown_statistics(len(footers), columns)
    for words, footer in zip(statistics, footers, strict=True):
        if len(footer.statistics) == words.nbytes:
            words[...] = np.frombuffer(footer.statistics, "<u8").reshape(words.shape)
    table = [[(one.size, one.unfiltered, one.mask) for one in footer.sections] for footer in footers]
    return (
        np.array(table, np.uint64).reshape(len(footers), sections, 3),
        np.array([footer.defined for footer in footers], np.uint64),
        statistics,
    )
