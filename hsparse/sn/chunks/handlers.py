"""Handlers of chunk queries (RFC "Chunk query functionality in HDF5", 2018) and of the stored bytes of chunks.

The handlers correspond to H5Dget_num_chunks, H5Dget_chunk_info, H5Dchunk_iter, H5Dget_chunk_info_by_coord,
H5Dget_chunk_selection, H5Dread_chunk, H5Dwrite_chunk, and their forms for structured chunks.
"""

from __future__ import annotations

import math
from math import prod

import numpy as np
from aiohttp import hdrs, web
from numpy.typing import NDArray

from hsparse.errors import BadRequest, NotFound, OutOfRange, TooLarge, Unsupported
from hsparse.format.chunk_map import MASK, SIZE, UNFILTERED
from hsparse.format.chunk_spec import chunk_name
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Points, Selection
from hsparse.format.selections.selection_encoding import merge, row_runs
from hsparse.format.selections.selection_json import places_json
from hsparse.format.selections.signed_extent import SignedExtent, first_of
from hsparse.model.file_backed import SERVED
from hsparse.sn.http.request import BINARY_TYPE, MAX_JSON
from hsparse.sn.records.dataset import StoredDataset, until_current
from hsparse.sn.records.stored_chunks import (
    ChunkObjectInfo,
    ChunkOrder,
    ChunkQuery,
    Json,
    Scaled,
    SignedChunks,
    StoredChunks,
    chunk_place,
    parse_chunk_name,
    stored_name,
)
from hsparse.sn.request import Request, respond
from hsparse.sn.values.chunk_fanout import table_reader
from hsparse.sn.values.file_data import ChunkLocations, other_data
from hsparse.sn.values.url_selection import selected_if_named
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect, WriteDirect

DEFAULT_LIMIT = 1000
MAX_LIMIT = 10_000
"""The maximum number of chunks in an answer; without the parameter `limit` it is `DEFAULT_LIMIT`."""
MAX_URL_SECONDS = 7 * 24 * 3600
"""The maximum number of seconds for which a presigned URL may be valid: S3's limit."""
MAX_NUMBERED_CHUNKS = 2**32
"""In a grid of at least this many chunks, adjacent chunks are not joined: their row-major numbers exceed 32 bits."""


def listed_chunks(request: Request, dataset: StoredDataset) -> StoredChunks:
    """Return the stored chunks of a dataset; if the request has the parameter `urls`, with presigned URLs."""
    chunks = stored_chunks(request, dataset)
    seconds = url_seconds(request)
    if seconds is None:
        return chunks
    if not dataset.elsewhere:
        check_own_objects(request)
    # A URL gives access to the whole file, but the right to read the domain gives access to its datasets only.
    rights = request.file_rights() if dataset.elsewhere else None
    return SignedChunks(chunks, request.service.owners, seconds, rights)


def stored_chunks(request: Request, dataset: StoredDataset) -> ChunkObjectInfo | ChunkLocations:
    """Return the stored chunks of a dataset, in chunk objects or in files, without presigned URLs."""
    owners, bucket = request.service.owners, request.service.settings.bucket
    dataset.require_places()
    if dataset.elsewhere:
        return other_data(dataset.elsewhere).chunks(owners, dataset, bucket, table_reader(owners))
    return ChunkObjectInfo(owners, dataset, None if has_others(request) else bucket)


def has_others(request: Request) -> bool:
    """Return whether the domain is a snapshot, a clone or a served file, so that its chunks may have no own objects."""
    return "head" in request.domain.record or SERVED in request.domain.record


def check_own_objects(request: Request) -> None:
    """Raise `Unsupported` if chunks may have no own keys; readers would take the missing keys for fill values."""
    if has_others(request) and request.arg("addresses") != "file":
        raise Unsupported(
            f"Chunks of {request.domain.path} have no keys of their own: export it, or map it with addresses=file."
        )


def url_seconds(request: Request) -> int | None:
    """Return the seconds in the parameter `urls`, or None if it is missing; raise `BadRequest` if out of range."""
    seconds = request.number("urls")
    if seconds is not None and not 0 < seconds <= MAX_URL_SECONDS:
        raise BadRequest(f"urls must be a number of seconds, 1 to {MAX_URL_SECONDS}, not {seconds}.")
    return seconds


async def get_chunks(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/chunks`: a page of stored chunks, their count, or the chunk with an index, in a selection."""
    order = _order(request)
    limit, index = request.number("limit"), request.number("index")
    limit = DEFAULT_LIMIT if limit is None else limit
    if not 0 < limit <= MAX_LIMIT:
        raise BadRequest(f"limit must be 1 to {MAX_LIMIT}, not {limit}.")

    async def read(dataset: StoredDataset) -> web.StreamResponse:
        async with selected_if_named(request, dataset.extent) as selection:
            return await answer(dataset, selection)

    async def answer(dataset: StoredDataset, selection: Selection | None) -> web.StreamResponse:
        chunks, marker = listed_chunks(request, dataset), request.arg("marker")
        if request.flag("count_only"):
            return respond({"count": await chunks.count(selection)})
        after = parse_chunk_name(marker, dataset) if marker else ()
        if index is not None:
            rows, _ = await chunks.page(ChunkQuery(selection, order, after, index, 1))
            if not rows:
                raise NotFound(f"There is no stored chunk of {dataset.id} with index {index}.")
            return respond(rows[0])
        if marker and not after:
            return respond({"dims": [], "chunks": []})  # a scalar dataset has only one chunk
        rows, following = await chunks.page(ChunkQuery(selection, order, after, 0, limit))
        found: Json = {"dims": list(chunks.grid.chunk), "chunks": rows}
        if following:
            found["marker"] = stored_name(following, dataset)
        return respond(found)

    return await until_current(request, read)


async def get_chunk(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/chunks/{chunk}`: one chunk by its scaled coordinates; its size is 0 if it is not stored."""

    async def read(dataset: StoredDataset) -> web.StreamResponse:
        chunks = listed_chunks(request, dataset)
        scaled = requested_chunk(request, dataset, chunks.grid)
        found = await chunks.find(scaled)
        place = chunk_place(chunks.grid, scaled, dataset.spec.base)
        return respond(place | {"size": 0, "address": None} if found is None else found)

    return await until_current(request, read)


async def get_chunk_selection(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/chunks/selection`: all elements in stored chunks, as a selection of hyperslabs."""

    async def read(dataset: StoredDataset) -> web.StreamResponse:
        chunks = listed_chunks(request, dataset)
        selection = covered_selection(chunks.grid, await chunks.scaled())
        if isinstance(dataset.extent, SignedExtent):
            selection = selection.clip(dataset.extent.first, dataset.extent)
        if isinstance(selection, Boxes):
            check_json(request, selection.starts.nbytes + selection.stops.nbytes)
        return respond({"selection": places_json(selection, dataset.extent)})

    return await until_current(request, read)


def check_json(request: Request, nbytes: int) -> None:
    """Raise `TooLarge` if coordinates of `nbytes` bytes exceed the limit of a JSON answer."""
    limit = min(request.service.settings.max_request_size, MAX_JSON)
    if nbytes > limit:
        raise TooLarge(
            f"The blocks of stored chunks have coordinates of {nbytes} bytes, more than an answer in JSON may have "
            f"({limit}, of max_request_size): ask for pages of chunks."
        )


def requested_chunk(request: Request, dataset: StoredDataset, grid: Grid) -> Scaled:
    """Return the scaled coordinates of the URL's chunk; if outside the extent, raise `BadRequest` or `OutOfRange`."""
    scaled = parse_chunk_name(request.params["chunk"], dataset)
    if not grid.holds(scaled):
        name, base = request.params["chunk"], dataset.spec.base
        if base:
            last = [first + count - 1 for first, count in zip(base, grid.counts, strict=True)]
            raise OutOfRange(f"There is no chunk {name} among {chunk_name(base)} to {chunk_name(last)}.")
        raise BadRequest(
            f"There is no chunk {name}: the extent {list(grid.extent)} has {list(grid.counts)} chunks, numbered from 0."
        )
    return scaled


def covered_selection(grid: Grid, scaled: NDArray[np.uint64]) -> Selection:
    """Return a selection of all elements in the chunks at `scaled`, (n, rank) uint64; adjacent chunks are joined."""
    if not grid.chunk:
        return Orthogonal.all(()) if len(scaled) else Points((), np.zeros((0, 0), np.uint64))
    if not len(scaled):
        return Orthogonal.none(grid.extent)
    counts = grid.counts
    if math.prod(counts) < MAX_NUMBERED_CHUNKS:
        numbers = np.unique(np.ravel_multi_index(tuple(scaled.astype(np.int64).T), counts))
        starts, stops = merge(row_runs(numbers.astype(np.uint32), counts[-1]), counts)
    else:
        starts = scaled[np.lexsort(scaled.T[::-1])]
        stops = starts + np.uint64(1)
    chunk, extent = np.array(grid.chunk, np.uint64), np.array(grid.extent, np.uint64)
    return Boxes.trusted(grid.extent, starts * chunk, np.minimum(stops * chunk, extent))


def _order(request: Request) -> ChunkOrder:
    name = request.arg("order") or ChunkOrder.NATIVE.value
    try:
        return ChunkOrder(name)
    except ValueError:
        raise BadRequest(f"order must be one of {', '.join(ChunkOrder)}, not {name[:40]!r}.") from None


FILTER_MASK = "X-Hdf-filter-mask"
SECTION_SIZE = "X-Hdf-section-size"
UNFILTERED_SIZE = "X-Hdf-section-unfiltered-size"


async def get_chunk_value(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/chunks/{chunk}/value`: the stored bytes of a chunk; headers have its sections and masks."""

    async def read(dataset: StoredDataset) -> web.StreamResponse:
        chunks = stored_chunks(request, dataset)
        scaled = requested_chunk(request, dataset, chunks.grid)
        if not isinstance(chunks, ChunkObjectInfo):
            return await _answer_piece(request, chunks, dataset, scaled)
        guessed = prod(dataset.spec.dims) * dataset.spec.datatype.guessed_size
        async with request.service.answers.hold(min(guessed, request.service.settings.max_request_size)):
            key = dataset.spec.key(scaled)
            found = await request.service.owners.ask_owner(key, ReadDirect(dataset.spec, scaled))
            if found is None:
                raise _absent(dataset, scaled)
            return web.Response(body=found.data.tobytes(), content_type=BINARY_TYPE, headers=_headers(found))

    return await until_current(request, read)


async def put_chunk_value(request: Request) -> web.StreamResponse:
    """`PUT /datasets/{id}/chunks/{chunk}/value`: store the body as a chunk's filtered bytes; durable when answered."""
    masks, sizes = _numbers(request, "filter_mask"), _numbers(request, "section_size")
    unfiltered = _numbers(request, "section_unfiltered_size")
    data = await request.body()

    async def write(dataset: StoredDataset) -> None:
        dataset.require_writable()
        scaled = requested_chunk(request, dataset, dataset.grid)
        if any(map(int.__lt__, dataset.grid.origin(scaled), first_of(dataset.extent))):
            raise BadRequest(
                f"The chunk {request.params['chunk']} has elements below the lower bound: write its values instead."
            )
        sections = _sections(dataset, masks, sizes, unfiltered, len(data))
        message = WriteDirect(dataset.spec, dataset.extent, scaled, np.frombuffer(data, np.uint8), sections)
        await request.service.owners.ask_owner(dataset.spec.key(scaled), message)

    await until_current(request, write)
    return respond({})


async def _answer_piece(
    request: Request, chunks: ChunkLocations, dataset: StoredDataset, scaled: tuple[int, ...]
) -> web.StreamResponse:
    """Answer with the stored bytes of a file-backed dataset's chunk."""
    found = await chunks.locate(scaled)
    if found is None:
        raise _absent(dataset, scaled)
    file, offset, size, mask = found
    limit = request.service.settings.max_request_size
    if size > limit:
        raise TooLarge(f"The chunk has {size} bytes; the limit is {limit} (max_request_size): read values.")
    async with request.service.answers.hold(size):
        data = await chunks.stored_bytes(file, offset, size)
        return web.Response(body=data.tobytes(), content_type=BINARY_TYPE, headers={FILTER_MASK: str(mask)})


def _absent(dataset: StoredDataset, scaled: tuple[int, ...]) -> NotFound:
    return NotFound(
        f"The chunk {stored_name(scaled, dataset)} of {dataset.id} is not stored: its elements have the fill value."
    )


def _headers(found: DirectChunk) -> dict[str, str]:
    sections = found.row.sections[0]
    headers = {hdrs.ETAG: f'"{found.row.etags[0]}"'}
    if not len(sections):
        return headers | {FILTER_MASK: "0"}
    names = {FILTER_MASK: MASK, SECTION_SIZE: SIZE, UNFILTERED_SIZE: UNFILTERED}
    return headers | {name: ",".join(map(str, sections[:, at].tolist())) for name, at in names.items()}


def _numbers(request: Request, name: str) -> list[int]:
    """Return the numbers in a parameter, one for each section, or [] if the parameter is missing."""
    text = request.arg(name)
    if not text:
        return []
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts) or len(parts) > 3:
        raise BadRequest(f"{name} must be non-negative integers, one for each section, not {text[:40]!r}.")
    return list(map(int, parts))


def _sections(
    dataset: StoredDataset, masks: list[int], sizes: list[int], unfiltered: list[int], nbytes: int
) -> NDArray[np.uint64]:
    """Return each section's size, unfiltered size and mask, (k, 3) uint64; raise `BadRequest` for a wrong count."""
    if not dataset.spec.sparse:
        if sizes or unfiltered or len(masks) > 1:
            raise BadRequest(f"{dataset.id} is dense: give at most one filter_mask, and no section sizes.")
        return np.array([[nbytes, 0, masks[0] if masks else 0]], np.uint64)
    count = len(dataset.spec.filters)
    masks = masks or [0] * count
    if not len(masks) == len(sizes) == len(unfiltered) == count:
        raise BadRequest(
            f"A chunk of {dataset.id} has {count} sections: give section_size and section_unfiltered_size of each, "
            "and filter_mask where filters were skipped."
        )
    return np.array([sizes, unfiltered, masks], np.uint64).T.copy()
