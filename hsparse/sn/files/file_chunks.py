"""The chunks of a dataset with their addresses in the file of its domain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import HsparseError
from hsparse.format.chunk_map import digests
from hsparse.format.chunk_rows import row_names
from hsparse.format.hdf5.addressed import Key
from hsparse.format.hdf5.plan.domain_plan import DomainPlan
from hsparse.format.hdf5.plan.planned_chunks import ChunkForm, ChunkRegion
from hsparse.model.ids import chunk_name
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.stored_chunks import ROWS_AT_ONCE, ChunkPages, ChunkQuery, Json, Scaled, chunk_place


class FileChunks:
    """The chunks of another `ChunkPages`, each with `file`, for one pass over all pages.

    `file` has `address` and `size` in the file, in bytes, and `stored`, which says whether the bytes are those of the
    object. If not, they are the unfiltered elements of the chunk and the heap collections that these refer to. In the
    stock layout `defined_set` has the address and size of the booleans of a sparse chunk. Chunks without an object come
    last, without a key. A sparse chunk without defined elements has no `file`.

    The pages raise the error that `changed` returns if a chunk has changed since the plan.
    """

    def __init__(
        self,
        dataset: Dataset,
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
        """Return rows with their places in the file; rows of chunks that are not in the file stay as they are."""
        inside = [number for number, row in enumerate(rows) if row.get("defined", 1)]
        if not inside:
            return rows
        scaled = np.array([rows[number]["scaled"] for number in inside], np.uint64)
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
        """Return the chunks of the file without an object, after all chunks with one."""
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
                chunk_place(self.grid, scaled) | {"file": place | {"stored": False}}
                for scaled, place in pairs
            ]
            await asyncio.sleep(0)
        return found

    def _name(self, scaled: NDArray[np.uint64]) -> str:
        return f"The chunk {chunk_name(scaled.tolist())} of {self._dataset.id}"


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """A region of chunks at `address` in its file, and the chunks' names (`row_names`), which ascend."""

    region: ChunkRegion
    address: int
    names: NDArray[np.bytes_]

    @classmethod
    def of(cls, plan: DomainPlan, key: Key) -> _Places | None:
        """Return the places in a region of a plan; None without that region: there are no chunks."""
        region = plan.regions.get(key)
        if region is None:
            return None
        return cls(region, plan.file.base + plan.file.address_of(key), row_names(region.chunks.scaled))

    def find(self, names: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """Return the row of each name, -1 for an unknown one."""
        rows = np.minimum(np.searchsorted(self.names, names), len(self.names) - 1)
        return np.where(self.names[rows] == names, rows, -1).astype(np.intp)

    def to_json(self, rows: NDArray[np.intp]) -> list[Json]:
        """Return address and size in the file of the chunks in these rows."""
        addresses = (self.region.starts[rows] + np.uint64(self.address)).tolist()
        sizes = self.region.chunks.size[rows].tolist()
        return [{"address": address, "size": size} for address, size in zip(addresses, sizes, strict=True)]
