"""The bytes of a planned file, range by range: what is in the plan, and chunks as they are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import TypeVar

import numpy as np

from hsparse.concurrency.gather import gather_all
from hsparse.errors import Moved, PreconditionFailed, Unsupported
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.filters.hsds import is_hsds_frame
from hsparse.format.hdf5.plan.domain_plan import DomainPlan
from hsparse.format.hdf5.plan.file_plan import FilePiece
from hsparse.format.hdf5.plan.planned_chunks import ChunkForm, ChunkRegion
from hsparse.format.hdf5.plan.transcoded_chunk import (
    encode_defined_set,
    transcode_chunk,
    transcode_sections,
    transcode_unwritten,
)
from hsparse.sn.data_nodes import Owners
from hsparse.sn.files.chunk_reads import read_direct_chunk, read_planned, row_batches
from hsparse.sn.files.file_backed_pieces import check_piece, read_piece
from hsparse.sn.files.matrix_pieces import BandCache, MatrixPieces

Made = TypeVar("Made")
PART = 256 * 1024
"""Bytes that small pieces are put together to."""
INLINE = 64 * 1024
"""Bytes that are made on the event loop; more are made in a thread."""


class FilePieces:
    """The bytes of one planned file; about `page` bytes of chunks are read at once, `bands` has those of matrices."""

    def __init__(self, owners: Owners, plan: DomainPlan, page: int, bands: BandCache) -> None:
        self._owners = owners
        self._plan = plan
        self._page = page
        self._matrices = MatrixPieces(owners, page, bands)

    def memory(self, start: int, stop: int) -> int:
        """Return how many bytes reading a range may take."""
        largest = together = bands = 0
        for address, piece in self._plan.file.pieces_in(start, stop):
            region, column = self._plan.regions.get(piece.key), self._plan.columns.get(piece.key)
            if column is not None:
                entries = column.span(max(0, start - address), min(piece.size, stop - address))
                bands = max(bands, column.bands.memory(column.part, *entries, self._page))
            elif region is None:
                largest = max(largest, piece.size)
            else:
                weights = region.weights(region.rows(max(0, start - address), stop - address))
                largest = max(largest, int(weights.max(initial=0)))
                together = max(together, int(weights.sum(dtype=np.uint64)))
        return bands + 2 * (largest + min(self._page, max(together, stop - start)) + PART)

    async def read(self, start: int, stop: int) -> AsyncGenerator[Buffer, None]:
        """Yield the bytes from `start` to before `stop`.

        `PreconditionFailed` when a chunk there is not in the planned state any more.
        """
        pieces = self._read(start, stop)
        pending = bytearray()
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if len(piece) >= PART and not pending:
                        yield piece
                        continue
                    pending += piece
                    if len(pending) >= PART:
                        yield pending
                        pending = bytearray()
        except Moved as error:
            raise PreconditionFailed(f"{error.message} Ask for the file again.") from error
        if pending:
            yield pending

    async def _read(self, start: int, stop: int) -> AsyncGenerator[Buffer, None]:
        at = start
        for address, piece in self._plan.file.pieces_in(start, stop):
            if at < address:
                yield bytes(address - at)
            first, last = max(at, address), min(stop, address + piece.size)
            parts = self._brought(piece, address, first - address, last - address)
            if parts is None:
                yield memoryview(await self._made(piece))[first - address : last - address]
            else:
                async with aclosing(parts):
                    async for part in parts:
                        yield part
            at = last
        if at < stop:
            yield bytes(stop - at)

    def _brought(
        self, piece: FilePiece, address: int, start: int, stop: int
    ) -> AsyncGenerator[Buffer, None] | None:
        """Return the parts of a piece that is made of stored chunks, None of one that is in the plan."""
        column, region = self._plan.columns.get(piece.key), self._plan.regions.get(piece.key)
        if column is not None:
            return self._matrices.read(column, start, stop)
        return None if region is None else self._chunks(region, address, start, stop)

    async def _made(self, piece: FilePiece) -> bytes:
        if piece.size <= INLINE:
            return self._plan.file.bytes_of(piece)
        return await asyncio.to_thread(self._plan.file.bytes_of, piece)

    async def _chunks(
        self, region: ChunkRegion, address: int, start: int, stop: int
    ) -> AsyncGenerator[Buffer, None]:
        """Yield a region's bytes from `start` to before `stop`, offsets in it."""
        at = start
        wanted = region.rows(start, stop)
        for rows in row_batches(region.weights(wanted), wanted, self._page):
            found = await gather_all([self._chunk(region, row, address) for row in rows])
            for row, data in zip(rows, found, strict=True):
                begin = int(region.starts[row])
                if at < begin:
                    yield bytes(begin - at)
                    at = begin
                part = memoryview(data)[at - begin : stop - begin]
                at += len(part)
                yield part
        if at < stop:
            yield bytes(stop - at)

    async def _chunk(self, region: ChunkRegion, row: int, address: int) -> Buffer:
        """Return a chunk's bytes in the file, whose region is at `address`."""
        spec, chunks, plan = region.spec, region.chunks, self._plan
        size, place = int(chunks.size[row]), address + int(region.starts[row])
        weight = int(region.weights(range(row, row + 1))[0])
        if not chunks.stored[row]:
            scaled = tuple(chunks.scaled[row].tolist())
            make = partial(transcode_unwritten, spec, scaled, place, plan.file.address_of, plan.key_of)
            return await self._run(size, make)
        if region.form is ChunkForm.FILE_BACKED:
            piece = await read_piece(self._owners, chunks, row)
            await self._run(weight, partial(check_piece, chunks, row, piece))
            return piece
        if region.form is ChunkForm.TRANSCODED_SECTIONS:
            return await self._converted(region, row, weight)
        data = await read_planned(self._owners, spec, chunks, row)
        if region.form is ChunkForm.STORED:
            if not spec.sparse and is_hsds_frame(data, spec.filters[0]):
                raise Unsupported(
                    f"HSDS compressed some chunks of {spec.dataset} in a form that no HDF5 file has, and others were "
                    "written since: write the first one anew, or all."
                )
            made: Buffer = data
        elif region.form is ChunkForm.DEFINED:
            made = await self._run(weight, partial(encode_defined_set, spec, data, chunks.sections[row]))
        else:
            make = partial(
                transcode_chunk, spec, data, chunks.sections[row], place, plan.file.address_of, plan.key_of
            )
            made = await self._run(size, make)
        if len(made) != size:
            raise AssertionError(f"A chunk of {spec.dataset} has {len(made)} bytes, {size} were planned.")
        return made

    async def _converted(self, region: ChunkRegion, row: int, weight: int) -> bytes:
        spec, plan = region.spec, self._plan
        found = await read_direct_chunk(self._owners, spec, region.chunks, row)

        def make() -> bytes:
            data, sections = byte_view(found.data), found.row.sections[0]
            _, made = transcode_sections(spec, data, sections, region.revision, plan.key_of)
            if len(made.data) != region.chunks.size[row]:
                # Another service node may have planned it, whose filters make other bytes of the same.
                raise Moved(f"A chunk of {spec.dataset} has another size than was planned.")
            return made.filled(plan.file.address_of)

        return await self._run(weight, make)

    async def _run(self, nbytes: int, make: Callable[[], Made]) -> Made:
        """Make something of `nbytes` bytes, here if they are few."""
        return make() if nbytes <= INLINE // 4 else await asyncio.to_thread(make)
