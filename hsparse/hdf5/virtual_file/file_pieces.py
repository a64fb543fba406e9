"""Read byte ranges of a planned file: metadata comes from the plan, chunks come from the store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import TypeVar

import numpy as np

from hsparse.compute import compute
from hsparse.concurrency.gathering import gather_all
from hsparse.errors import Moved, PreconditionFailed, Unsupported
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.filters.filters_json import is_hsds_frame
from hsparse.hdf5.format.plan.domain_plan import DomainPlan
from hsparse.hdf5.format.plan.file_plan import FilePiece
from hsparse.hdf5.format.plan.matrix_plan import MatrixColumn
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm, ChunkRegion, ShiftedParts
from hsparse.hdf5.format.plan.shifted_chunks import shifted_chunk, shifted_defined_set
from hsparse.hdf5.format.plan.transcoded_chunk import (
    encode_defined_set,
    pack_chunk,
    pack_defined_set,
    transcode_chunk,
    transcode_sections,
    transcode_unwritten,
)
from hsparse.hdf5.virtual_dataset.copied_chunks import AsksOwners
from hsparse.hdf5.virtual_file.file_backed_pieces import check_piece, read_piece
from hsparse.hdf5.virtual_file.file_chunks import row_batches
from hsparse.hdf5.virtual_file.matrix_pieces import BandCache, MatrixPieces, chunk_memory, compressed_chunks
from hsparse.hdf5.virtual_file.sized_chunks import read_direct_chunk, read_planned

PART_BYTES = 256 * 1024
"""The least size in bytes of a part of a response (except the last part); smaller pieces are joined."""

Result = TypeVar("Result")


class FilePieces:
    """Reads one planned file, about `page` bytes of chunks at a time; `bands` caches sorted parts of matrices."""

    def __init__(self, owners: AsksOwners, plan: DomainPlan, page: int, bands: BandCache) -> None:
        self._owners = owners
        self._plan = plan
        self._page = page
        self._matrices = MatrixPieces(owners, page, bands)

    def memory(self, start: int, stop: int) -> int:
        """Return the maximum memory in bytes for reading the range from `start` to `stop` (exclusive)."""
        largest = together = bands = 0
        for address, piece in self._plan.file.pieces_in(start, stop):
            region, column = self._plan.regions.get(piece.key), self._plan.columns.get(piece.key)
            if column is not None:
                first, last = max(0, start - address), min(piece.size, stop - address)
                entries = column.span(first, last)
                if region is not None:
                    rows, step = region.rows(first, last), region.spec.dims[0]
                    entries = rows.start * step, min(rows.stop * step, column.entries)
                    largest = max(largest, chunk_memory(region.spec))
                bands = max(bands, column.bands.memory(column.part, *entries, self._page))
            elif region is None:
                largest = max(largest, piece.size)
            else:
                weights = region.weights(region.rows(max(0, start - address), stop - address))
                largest = max(largest, int(weights.max(initial=0)))
                together = max(together, int(weights.sum(dtype=np.uint64)))
        return bands + 2 * (largest + min(self._page, max(together, stop - start)) + PART_BYTES)

    async def read(self, start: int, stop: int) -> AsyncGenerator[Buffer, None]:
        """Yield the bytes from `start` to `stop` (exclusive).

        Raises `PreconditionFailed` if a chunk in the range has changed since the plan.
        """
        pieces = self._read(start, stop)
        pending = bytearray()
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if len(piece) >= PART_BYTES and not pending:
                        yield piece
                        continue
                    pending += piece
                    if len(pending) >= PART_BYTES:
                        yield pending
                        pending = bytearray()
        except Moved as error:
            raise PreconditionFailed(f"{error.message} Request the file again.") from error
        if pending:
            yield pending

    async def _read(self, start: int, stop: int) -> AsyncGenerator[Buffer, None]:
        at = start
        for address, piece in self._plan.file.pieces_in(start, stop):
            if at < address:
                yield bytes(address - at)
            first, last = max(at, address), min(stop, address + piece.size)
            parts = self._stored_parts(piece, address, first - address, last - address)
            if parts is None:
                yield memoryview(await self._encoded(piece))[first - address : last - address]
            else:
                async with aclosing(parts):
                    async for part in parts:
                        yield part
            at = last
        if at < stop:
            yield bytes(stop - at)

    def _stored_parts(
        self, piece: FilePiece, address: int, start: int, stop: int
    ) -> AsyncGenerator[Buffer, None] | None:
        """Return the parts of a piece whose data comes from stored chunks, or None for a piece of metadata."""
        column, region = self._plan.columns.get(piece.key), self._plan.regions.get(piece.key)
        if column is not None and region is not None:
            return self._compressed(column, region, start, stop)
        if column is not None:
            return self._matrices.read(column, start, stop)
        return None if region is None else self._chunks(region, address, start, stop)

    async def _encoded(self, piece: FilePiece) -> bytes:
        return await self._run(piece.size, partial(self._plan.file.bytes_of, piece))

    async def _chunks(
        self, region: ChunkRegion, address: int, start: int, stop: int
    ) -> AsyncGenerator[Buffer, None]:
        """Yield the bytes of a region from `start` to `stop` (exclusive), offsets in the region."""
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

    async def _compressed(
        self, column: MatrixColumn, region: ChunkRegion, start: int, stop: int
    ) -> AsyncGenerator[Buffer, None]:
        """Yield the bytes of a matrix's compressed chunks from `start` to `stop` (exclusive), offsets in the region."""
        rows = region.rows(start, stop)
        at = start
        parts = compressed_chunks(self._matrices, column, region.spec, rows)
        async with aclosing(parts):
            for row in rows:
                part = memoryview(await anext(parts))
                if len(part) != region.chunks.size[row]:
                    # Another service node may have planned it, with a codec that encodes equal values differently.
                    raise Moved(f"A chunk of {region.spec.dataset} has another size than was planned.")
                begin, end = int(region.starts[row]), int(region.starts[row + 1])
                padded = bytes(part) + bytes(end - begin - len(part))
                yield memoryview(padded)[at - begin : stop - begin]
                at = min(end, stop)

    async def _chunk(self, region: ChunkRegion, row: int, address: int) -> Buffer:
        """Return the bytes that a chunk has in the file; the chunk's region begins at `address`."""
        spec, chunks, plan = region.spec, region.chunks, self._plan
        # Addresses in a chunk are relative to the end of the user block.
        size, place = int(chunks.size[row]), address - plan.file.base + int(region.starts[row])
        weight = int(region.weights(range(row, row + 1))[0])
        if chunks.shifted is not None:
            return await self._shifted(region, chunks.shifted, row, weight)
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
                    f"HSDS compressed some chunks of {spec.dataset} in a form that HDF5 files cannot have, but not its "
                    "first chunk: write all chunks again."
                )
            encoded: Buffer = data
        elif region.form in (ChunkForm.PACKED, ChunkForm.PACKED_DEFINED):
            packed = (
                partial(pack_chunk, spec, data, chunks.sections[row], plan.key_of)
                if region.form is ChunkForm.PACKED
                else partial(pack_defined_set, spec, data, chunks.sections[row])
            )
            encoded = await self._run(weight, packed)
            if len(encoded) != size:
                # Another service node may have planned the file, with a codec that encodes equal values differently.
                raise Moved(f"A chunk of {spec.dataset} has another size than was planned.")
        elif region.form is ChunkForm.DEFINED:
            encoded = await self._run(weight, partial(encode_defined_set, spec, data, chunks.sections[row]))
        else:
            make = partial(
                transcode_chunk, spec, data, chunks.sections[row], place, plan.file.address_of, plan.key_of
            )
            encoded = await self._run(size, make)
        if len(encoded) != size:
            raise AssertionError(f"A chunk of {spec.dataset} has {len(encoded)} bytes, {size} were planned.")
        return encoded

    async def _shifted(self, region: ChunkRegion, shifted: ShiftedParts, row: int, weight: int) -> bytes:
        """Return a chunk of the file that is assembled from several stored chunks."""
        spec, source, plan = region.spec, shifted.source, self._plan
        rows = [
            (step, one) for step, one in zip(shifted.steps.tolist(), shifted.rows[row].tolist(), strict=True)
        ]
        rows = [(step, one) for step, one in rows if one >= 0]
        stored = await gather_all([read_planned(self._owners, spec, source, one) for _, one in rows])
        parts = [
            (tuple(step), data, source.sections[one]) for (step, one), data in zip(rows, stored, strict=True)
        ]
        if region.form is ChunkForm.DEFINED:
            return await self._run(weight, partial(shifted_defined_set, spec, shifted.first, parts))
        make = partial(shifted_chunk, spec, shifted.first, parts, plan.file.address_of, plan.key_of)
        return await self._run(weight, make)

    async def _converted(self, region: ChunkRegion, row: int, weight: int) -> bytes:
        spec, plan = region.spec, self._plan
        found = await read_direct_chunk(self._owners, spec, region.chunks, row)

        def make() -> bytes:
            data, sections = byte_view(found.data), found.row.sections[0]
            _, encoded = transcode_sections(spec, data, sections, region.revision, plan.key_of)
            if len(encoded.data) != region.chunks.size[row]:
                # Another service node may have planned the file, with a codec that encodes equal values differently.
                raise Moved(f"A chunk of {spec.dataset} has another size than was planned.")
            return encoded.filled(plan.file.address_of)

        return await self._run(weight, make)

    async def _run(self, nbytes: int, make: Callable[[], Result]) -> Result:
        """Return `make()`, which processes `nbytes` bytes; many bytes are offloaded to a thread."""
        return await compute(nbytes, make)
