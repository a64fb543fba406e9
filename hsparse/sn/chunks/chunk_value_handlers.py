"""Handlers of a chunk's stored bytes: H5Dread_chunk, H5Dwrite_chunk, and their structured forms."""

from __future__ import annotations

from math import prod

import numpy as np
from aiohttp import hdrs, web
from numpy.typing import NDArray

from hsparse.errors import BadRequest, NotFound, TooLarge
from hsparse.format.chunk_map import MASK, SIZE, UNFILTERED
from hsparse.model.ids import chunk_name
from hsparse.sn.chunks.handlers import requested_chunk, stored_chunks
from hsparse.sn.file_backed.chunk_locator import FileBackedChunkInfo
from hsparse.sn.http.request import BINARY_TYPE
from hsparse.sn.http.response import respond
from hsparse.sn.records.dataset import Dataset, until_current
from hsparse.sn.request import Request
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect, WriteDirect

FILTER_MASK = "X-Hdf-filter-mask"
SECTION_SIZE = "X-Hdf-section-size"
UNFILTERED_SIZE = "X-Hdf-section-unfiltered-size"


async def get_chunk_value(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/chunks/{chunk}/value`: the stored bytes of a chunk; sections and masks in headers."""

    async def read(dataset: Dataset) -> web.StreamResponse:
        chunks = stored_chunks(request, dataset)
        scaled = requested_chunk(request, dataset, chunks.grid)
        if isinstance(chunks, FileBackedChunkInfo):
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
    """`PUT /datasets/{id}/chunks/{chunk}/value`: store a chunk's bytes as they are; durable when answered."""
    masks, sizes = _numbers(request, "filter_mask"), _numbers(request, "section_size")
    unfiltered = _numbers(request, "section_unfiltered_size")
    data = await request.body()

    async def write(dataset: Dataset) -> None:
        dataset.require_writable()
        scaled = requested_chunk(request, dataset, dataset.grid)
        sections = _sections(dataset, masks, sizes, unfiltered, len(data))
        message = WriteDirect(dataset.spec, dataset.extent, scaled, np.frombuffer(data, np.uint8), sections)
        await request.service.owners.ask_owner(dataset.spec.key(scaled), message)

    await until_current(request, write)
    return respond({})


async def _answer_piece(
    request: Request, chunks: FileBackedChunkInfo, dataset: Dataset, scaled: tuple[int, ...]
) -> web.StreamResponse:
    """Answer with the bytes of a chunk in a backing file."""
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


def _absent(dataset: Dataset, scaled: tuple[int, ...]) -> NotFound:
    return NotFound(
        f"The chunk {chunk_name(scaled)} of {dataset.id} is not stored: nothing was written there."
    )


def _headers(found: DirectChunk) -> dict[str, str]:
    sections = found.row.sections[0]
    headers = {hdrs.ETAG: f'"{found.row.etags[0]}"'}
    if not len(sections):
        return headers | {FILTER_MASK: "0"}
    names = {FILTER_MASK: MASK, SECTION_SIZE: SIZE, UNFILTERED_SIZE: UNFILTERED}
    return headers | {name: ",".join(map(str, sections[:, at].tolist())) for name, at in names.items()}


def _numbers(request: Request, name: str) -> list[int]:
    """Return the numbers of a parameter, one for each section; none without it."""
    text = request.arg(name)
    if not text:
        return []
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts) or len(parts) > 3:
        raise BadRequest(f"{name} must be non-negative integers, one a section, not {text[:40]!r}.")
    return list(map(int, parts))


def _sections(
    dataset: Dataset, masks: list[int], sizes: list[int], unfiltered: list[int], nbytes: int
) -> NDArray[np.uint64]:
    """Return the table of sections from the parameters, (k, 3) uint64; `BadRequest` if one is missing."""
    if not dataset.spec.sparse:
        if sizes or unfiltered or len(masks) > 1:
            raise BadRequest(f"{dataset.id} is dense: a chunk has one filter_mask and no sections.")
        return np.array([[nbytes, 0, masks[0] if masks else 0]], np.uint64)
    count = len(dataset.spec.filters)
    masks = masks or [0] * count
    if not len(masks) == len(sizes) == len(unfiltered) == count:
        raise BadRequest(
            f"A chunk of {dataset.id} has {count} sections: give section_size and section_unfiltered_size of each, "
            "and filter_mask where filters were skipped."
        )
    return np.array([sizes, unfiltered, masks], np.uint64).T.copy()
