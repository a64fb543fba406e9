"""Handler of `/datasets/{id}/density`: what a picture of a sparse dataset needs, see `hsparse.sn.values.density`.

Tests: tests/sn/values/test_density.py.
"""

from __future__ import annotations

import numpy as np
from aiohttp import hdrs, web
from numpy.typing import NDArray

from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.chunk_rows import ChunkRows
from hsparse.model.ids import map_key
from hsparse.sn.context import Context
from hsparse.sn.http.json_pieces import encode_nulls, items_of, respond_pieces
from hsparse.sn.http.request import BINARY_TYPE, named_types
from hsparse.sn.records.dataset import Dataset, until_current
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.defined_read import DefinedRead
from hsparse.sn.values.density import (
    SPREAD_BYTES,
    Bins,
    Density,
    chunk_density,
    parse_reduction,
    spread_size,
)
from hsparse.wire.chunk_info_message import ListChunks

CHUNKS_AT_ONCE = 10_000
MAX_CHUNKS = 1 << 18
"""The most chunks whose numbers of elements are read for an approximate density."""
BIN_BYTES = 32
"""Bytes of memory of a bin while its elements are counted."""


async def get_density(context: Context) -> web.StreamResponse:
    """`GET /datasets/{id}/density`: the defined elements in each bin of a box, and their values reduced."""

    async def read(dataset: Dataset) -> web.StreamResponse:
        dataset.require_sparse()
        bins = Bins.parse(context.arg("select"), context.arg("bin"), dataset.extent)
        reduction = parse_reduction(context.arg("reduce"), dataset)
        if context.flag("approximate") and reduction:
            raise BadRequest("An approximate density has no values: leave out reduce or approximate.")
        spread = spread_size(bins, dataset.grid.chunk) if context.flag("approximate") and bins.size else 0
        async with context.service.answers.hold(BIN_BYTES * bins.size + SPREAD_BYTES * spread):
            if context.flag("approximate"):
                return await _answer(context, bins, await _approximate(context, dataset, bins), None)
            density = await _exact(context, dataset, bins, reduction)
            return await _answer(context, bins, density.counts, density.values() if reduction else None)

    return await until_current(context, read)


async def _exact(context: Context, dataset: Dataset, bins: Bins, reduction: str | None) -> Density:
    density = Density(bins, reduction)
    if not bins.size:
        return density
    chunks = ChunkFanout(context.service.owners, dataset)
    page_size = context.service.settings.page_size
    elements = DefinedRead(dataset, chunks, page_size, places_only=reduction is None)
    async for columns, values in elements.pieces(bins.selection(dataset.extent)):
        numbers = values if isinstance(values, np.ndarray) and reduction else None
        await offload(8 * (len(columns[0]) + bins.size), density.add, columns, numbers)
    return density


async def _approximate(context: Context, dataset: Dataset, bins: Bins) -> NDArray[np.float64]:
    if not bins.size:
        return np.zeros(0)
    pages: list[ChunkRows] = []
    marker: tuple[int, ...] = ()
    while not pages or marker:
        message = ListChunks(
            dataset.spec, dataset.extent, bins.selection(dataset.extent), False, marker, 0, CHUNKS_AT_ONCE
        )
        page = await context.service.owners.ask_owner(map_key(dataset.id), message)
        pages.append(page.rows)
        marker = page.marker
        if len(pages) * CHUNKS_AT_ONCE > MAX_CHUNKS:
            raise TooLarge(f"The box has more than {MAX_CHUNKS} stored chunks: select less.")
    rows = ChunkRows.joined(pages, len(dataset.extent))
    grid = dataset.grid
    count = 8 * (len(rows) + bins.size) + spread_size(bins, grid.chunk)
    return await offload(count, chunk_density, bins, grid.chunk, grid.extent, rows.scaled, rows.defined)


async def _answer(
    context: Context, bins: Bins, counts: NDArray[np.float64], values: NDArray[np.float64] | None
) -> web.StreamResponse:
    """Answer in binary, 32-bit floats, the counts and then the values; or in JSON."""
    if BINARY_TYPE in named_types(context.request, hdrs.ACCEPT):
        parts = [counts] if values is None else [counts, values]
        with np.errstate(over="ignore"):
            body = np.concatenate(parts).astype("<f4").tobytes()
        return web.Response(body=body, content_type=BINARY_TYPE)
    answer = {"shape": list(bins.shape), "bin": list(bins.width), "count": counts.reshape(bins.shape)}
    if values is not None:
        answer["value"] = values.reshape(bins.shape)
    return await respond_pieces(2 * items_of(bins.shape), answer, encode_nulls)
