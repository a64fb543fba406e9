"""Handler of `/datasets/{id}/density`: what a picture of a sparse dataset needs, see `hsparse.sn.values.density`."""

from __future__ import annotations

from typing import Any

import numpy as np
from aiohttp import hdrs, web
from numpy.typing import NDArray

from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest
from hsparse.model.ids import chunk_name, map_key
from hsparse.sn.http.json_pieces import encode_nulls, items_of, respond_pieces
from hsparse.sn.http.request import BINARY_TYPE, named_types
from hsparse.sn.records.dataset import Dataset, until_current
from hsparse.sn.records.stored_chunks import parse_chunk_name
from hsparse.sn.request import Request
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.defined_read import DefinedRead
from hsparse.sn.values.density import (
    SPREAD_BYTES,
    Bins,
    ChunkCounts,
    Density,
    parse_reduction,
    spread_size,
)
from hsparse.wire.chunk_info_message import ListChunks

CHUNKS_AT_ONCE = 10_000
"""The most chunks that a data node is asked about at a time."""
MARKER = "X-Hdf-marker"
"""The header of a binary answer that says after which chunk the next page begins."""
BIN_BYTES = 32
"""Bytes of memory of a bin while its elements are counted."""


async def get_density(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/density`: the defined elements in each bin of a box, and their values reduced."""

    async def read(dataset: Dataset) -> web.StreamResponse:
        dataset.require_sparse()
        bins = Bins.parse(request.arg("select"), request.arg("bin"), dataset.extent)
        reduction = parse_reduction(request.arg("reduce"), dataset)
        if not request.flag("approximate") and (request.arg("Limit") or request.arg("Marker")):
            raise BadRequest("Limit and Marker are for an approximate density, of chunks: leave them out.")
        if request.flag("approximate") and reduction:
            raise BadRequest("An approximate density has no values: leave out reduce or approximate.")
        spread = spread_size(bins, dataset.grid.chunk) if request.flag("approximate") and bins.size else 0
        async with request.service.answers.hold(BIN_BYTES * bins.size + SPREAD_BYTES * spread):
            if request.flag("approximate"):
                counts, marker = await _approximate(request, dataset, bins)
                return await _answer(request, bins, counts, None, marker)
            density = await _exact(request, dataset, bins, reduction)
            return await _answer(request, bins, density.counts, density.values() if reduction else None)

    return await until_current(request, read)


async def _exact(request: Request, dataset: Dataset, bins: Bins, reduction: str | None) -> Density:
    density = Density(bins, reduction)
    if not bins.size:
        return density
    chunks = ChunkFanout(request.service.owners, dataset)
    page_size = request.service.settings.page_size
    elements = DefinedRead(dataset, chunks, page_size, places_only=reduction is None)
    async for columns, values in elements.pieces(bins.selection(dataset.extent)):
        numbers = values if isinstance(values, np.ndarray) and reduction else None
        await offload(8 * (len(columns[0]) + bins.size), density.add, columns, numbers)
    return density


async def _approximate(request: Request, dataset: Dataset, bins: Bins) -> tuple[NDArray[np.float64], str]:
    """Return the counts of a page of chunks, all without `Limit`, and the name of its last chunk if there are more."""
    limit, after = request.number("Limit") or None, request.arg("Marker")
    marker = parse_chunk_name(after, dataset) if after else ()
    if not bins.size:
        return np.zeros(0), ""
    counts = ChunkCounts(bins, dataset.grid.chunk, dataset.extent)
    box, asked = bins.selection(dataset.extent), 0
    while limit is None or asked < limit:
        most = CHUNKS_AT_ONCE if limit is None else min(CHUNKS_AT_ONCE, limit - asked)
        message = ListChunks(dataset.spec, dataset.extent, box, False, marker, 0, most)
        page = await request.service.owners.ask_owner(map_key(dataset.id), message)
        await offload(8 * (len(page.rows) + bins.size), counts.add, page.rows.scaled, page.rows.defined)
        asked, marker = asked + most, page.marker
        if not marker:
            break
    size = 8 * bins.size + spread_size(bins, dataset.grid.chunk)
    return await offload(size, counts.counts), chunk_name(marker) if marker else ""


async def _answer(
    request: Request,
    bins: Bins,
    counts: NDArray[np.float64],
    values: NDArray[np.float64] | None,
    marker: str = "",
) -> web.StreamResponse:
    """Answer in binary, 32-bit floats, the counts and then the values; or in JSON."""
    if BINARY_TYPE in named_types(request.http, hdrs.ACCEPT):
        parts = [counts] if values is None else [counts, values]
        with np.errstate(over="ignore"):
            body = np.concatenate(parts).astype("<f4").tobytes()
        return web.Response(body=body, content_type=BINARY_TYPE, headers={MARKER: marker} if marker else None)
    answer: dict[str, Any] = {
        "shape": list(bins.shape),
        "bin": list(bins.width),
        "count": counts.reshape(bins.shape),
    }
    if values is not None:
        answer["value"] = values.reshape(bins.shape)
    if marker:
        answer["marker"] = marker
    return await respond_pieces(2 * items_of(bins.shape), answer, encode_nulls)
