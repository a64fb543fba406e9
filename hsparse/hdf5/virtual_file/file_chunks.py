"""Add the addresses in a domain's file to lists of chunks, and divide chunks into batches for reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import HsparseError
from hsparse.format.chunk_map import digests, row_names
from hsparse.format.chunk_spec import chunk_name
from hsparse.hdf5.format.file_fields import Key
from hsparse.hdf5.format.plan.domain_plan import DomainPlan
from hsparse.hdf5.format.plan.planned_chunks import (
    ChunkForm,
    ChunkRegion,
    Uint64Column,
)
from hsparse.hdf5.virtual_file.sized_chunks import CHUNKS_AT_ONCE
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.records.stored_chunks import ROWS_AT_ONCE, ChunkPages, ChunkQuery, Json, Scaled, chunk_place


class FileChunkPages:
    """A `ChunkPages` that adds `file` to each chunk of another `ChunkPages`. It supports one pass over all pages.

    `file` has the chunk's `address` and `size` in the file, in bytes. `stored` is true if the file has the bytes of the
    stored object; otherwise the file has the chunk's unfiltered elements and the heap collections to which they
    refer. In the stock layout, `file` also has `defined_set`, the address and size of a sparse chunk's booleans. Chunks
    without an object come last, without a key. A sparse chunk without defined elements has no `file`.

    Pages raise the error that `changed` returns if a chunk has changed since the plan.
    """

    def __init__(
        self,
        dataset: StoredDataset,
        chunks: ChunkPages,
        plan: DomainPlan,
        changed: Callable[[str], HsparseError],
    ) -> None:
        self._dataset = dataset
        self._chunks = chunks
        self._changed = changed
        self._values = _Places.of(plan, (dataset.id, "chunks"))
        self._defined = _Places.of(plan, ((dataset.id, "defined"), "chunks"))
        self._located = 0
        self.grid = chunks.grid

    async def page(self, wanted: ChunkQuery) -> tuple[list[Json], Scaled]:
        rows, marker = await self._chunks.page(wanted)
        found: list[Json] = []
        for first in range(0, len(rows), ROWS_AT_ONCE):
            found += self._placed(rows[first : first + ROWS_AT_ONCE])
            await asyncio.sleep(0)
        return (found if marker else found + await self._rest()), marker

    def _placed(self, rows: list[Json]) -> list[Json]:
        """Add `file` to rows; rows of chunks that are not in the file do not change."""
        inside = [number for number, row in enumerate(rows) if row.get("defined", 1)]
        if not inside:
            return rows
        named = np.array([rows[number]["scaled"] for number in inside], np.int64)
        scaled = (named - np.array(self._dataset.spec.base or 0, np.int64)).astype(np.uint64)
        places = self._locate(scaled.reshape(len(inside), -1), [rows[number]["etag"] for number in inside])
        for number, place in zip(inside, places, strict=True):
            rows[number] = {**rows[number], "file": place}
        self._located += len(inside)
        return rows

    def _locate(self, scaled: NDArray[np.uint64], etags: list[str]) -> list[Json]:
        if self._values is None:
            raise self._changed(self._name(scaled[0]))
        names = row_names(scaled)
        places = self._values.find(names)
        chunks = self._values.region.chunks
        wrong = (
            (places < 0) | (chunks.digest[places] != digests(tuple(etags))) | ~chunks.stored[places]
        ).nonzero()[0]
        if len(wrong):
            raise self._changed(self._name(scaled[wrong[0]]))
        stored = self._values.region.form is ChunkForm.STORED
        found: list[Json] = [one | {"stored": stored} for one in self._values.to_json(places)]
        if self._defined is not None:
            for one, defined in zip(found, self._defined.to_json(self._defined.find(names)), strict=True):
                one["defined_set"] = defined
        return found

    async def _rest(self) -> list[Json]:
        """Return the rows of the file's chunks that have no stored object. These rows follow all other rows."""
        if self._values is None:
            return []
        chunks = self._values.region.chunks
        if int(chunks.stored.sum()) != self._located:
            raise self._changed(self._dataset.id)
        made = np.flatnonzero(~chunks.stored)
        found: list[Json] = []
        for first in range(0, len(made), ROWS_AT_ONCE):
            some = made[first : first + ROWS_AT_ONCE]
            pairs = zip(chunks.scaled[some].tolist(), self._values.to_json(some), strict=True)
            found += [
                chunk_place(self.grid, scaled, self._dataset.spec.base) | {"file": place | {"stored": False}}
                for scaled, place in pairs
            ]
            await asyncio.sleep(0)
        return found

    def _name(self, scaled: NDArray[np.uint64]) -> str:
        return f"The chunk {chunk_name(scaled.tolist())} of {self._dataset.id}"


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """A region of chunks at `address` in its file, and the sorted names of the chunks (`row_names`)."""

    region: ChunkRegion
    address: int
    names: NDArray[np.bytes_]

    @classmethod
    def of(cls, plan: DomainPlan, key: Key) -> _Places | None:
        """Return the plan's region with this key and its address, or None if the file has no such chunks."""
        region = plan.regions.get(key)
        if region is None:
            return None
        return cls(region, plan.file.base + plan.file.address_of(key), row_names(region.chunks.scaled))

    def find(self, names: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """Return the row of each name, or -1 for an unknown name."""
        rows = np.minimum(np.searchsorted(self.names, names), len(self.names) - 1)
        return np.where(self.names[rows] == names, rows, -1).astype(np.intp)

    def to_json(self, rows: NDArray[np.intp]) -> list[Json]:
        """Return the address and size in the file of the chunks in these rows."""
        addresses = (self.region.starts[rows] + np.uint64(self.address)).tolist()
        sizes = self.region.chunks.size[rows].tolist()
        return [{"address": address, "size": size} for address, size in zip(addresses, sizes, strict=True)]


def row_batches(sizes: Uint64Column, rows: range, page: int) -> Iterator[range]:
    """Yield batches of `rows` of at most `page` bytes (or one larger row); `sizes: (len(rows),)` has rows' bytes.

    A batch has at most `CHUNKS_AT_ONCE` rows.
    """
    first = 0
    while first < len(rows):
        last = first + 1
        room = page - int(sizes[first])
        while last < min(len(rows), first + CHUNKS_AT_ONCE) and int(sizes[last]) <= room:
            room -= int(sizes[last])
            last += 1
        yield rows[first:last]
        first = last


T = TypeVar("T")
