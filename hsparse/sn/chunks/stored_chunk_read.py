"""The stored bytes of many chunks in one answer, for clients that decode chunks themselves.

The answer has a frame for each chunk, in the order of the request. A frame is the length of the chunk's object in
bytes, as a little-endian u64, followed by the object's bytes. If the object was deleted or has another etag than the
request names, the length is `CHANGED` and no bytes follow.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hsparse.attempts import MAX_READ_ATTEMPTS
from hsparse.errors import BadRequest, ErrorKind, Moved, TooLarge, Unsupported
from hsparse.format.buffer import Buffer, byte_view
from hsparse.sn.chunks.handlers import MAX_LIMIT
from hsparse.sn.http.request import BINARY_TYPE, read_json_object, text_list
from hsparse.sn.http.stream import respond_stream
from hsparse.sn.records.dataset import StoredDataset, load_dataset
from hsparse.sn.records.stored_chunks import parse_chunk_name
from hsparse.sn.request import Request
from hsparse.wire.chunk_info_message import ReadObjectBytes

LENGTH = Struct("<Q")
CHANGED = LENGTH.pack(2**64 - 1)
PAGE_BYTES = 4 << 20
"""The bytes of chunks that are read at a time, with one message to each owner. A larger chunk is read alone."""
MIN_PIECE_BYTES = 1 << 20
"""The minimum size of a piece of the answer. A piece has several small frames or one large frame."""
MAX_ETAG = 1024


@dataclass(frozen=True, slots=True, eq=False)
class NamedChunks:
    """The chunks that a request names: `scaled: (n, rank) uint64`, and each object's etag and size in bytes."""

    scaled: NDArray[np.uint64]
    etags: tuple[str, ...]
    sizes: NDArray[np.uint64]

    @classmethod
    def parse(cls, body: dict[str, Any], dataset: StoredDataset, largest: int) -> NamedChunks:
        """Parse a body `{"chunks": ["0_3"], "etags": ["..."], "sizes": [4711]}`; raise `BadRequest` or `TooLarge`."""
        names, etags, sizes = text_list(body, "chunks"), text_list(body, "etags"), body.get("sizes")
        if names is None or etags is None or not isinstance(sizes, list):
            raise BadRequest("The body must have chunks, etags and sizes: three lists, as in the chunk map.")
        if not len(names) == len(etags) == len(sizes):
            raise BadRequest(
                f"There are {len(names)} chunks, {len(etags)} etags and {len(sizes)} sizes: the counts must be equal."
            )
        if len(names) > MAX_LIMIT:
            raise TooLarge(f"The request names {len(names)} chunks; the limit is {MAX_LIMIT}: name fewer.")
        if not all(type(size) is int and size > 0 for size in sizes):
            raise BadRequest("sizes must be numbers of bytes, 1 or more.")
        if max(sizes, default=0) > largest:
            raise TooLarge(
                f"A chunk has {max(sizes)} bytes; the limit is {largest} (max_request_size): read its values instead."
            )
        if any(len(etag) > MAX_ETAG for etag in etags):
            raise BadRequest(f"An etag has at most {MAX_ETAG} characters; send the etags of the chunk map.")
        scaled = [parse_chunk_name(name, dataset) for name in names]
        rows = np.array(scaled, np.uint64).reshape(len(scaled), len(dataset.extent))
        return cls(rows, tuple(etags), np.array(sizes, np.uint64))

    def pages(self) -> Iterator[NamedChunks]:
        """Yield the chunks in order, about `PAGE_BYTES` bytes at a time."""
        first, room = 0, 0
        for place, size in enumerate(self.sizes.tolist()):
            if place > first and size > room:
                yield self._between(first, place)
                first = place
            room = (PAGE_BYTES if place == first else room) - size
        if len(self.sizes):
            yield self._between(first, len(self.sizes))

    @property
    def memory(self) -> int:
        """The approximate maximum of bytes in memory at a time: a page is sent while the next page is read."""
        largest = max(PAGE_BYTES, int(self.sizes.max(initial=0)))
        return 2 * min(2 * largest, int(self.sizes.sum()))

    def take(self, places: NDArray[np.intp]) -> NamedChunks:
        """Return the chunks at the indices `places`."""
        return NamedChunks(self.scaled[places], tuple(self.etags[at] for at in places), self.sizes[places])

    def _between(self, first: int, last: int) -> NamedChunks:
        return NamedChunks(self.scaled[first:last], self.etags[first:last], self.sizes[first:last])


async def post_chunk_values(request: Request) -> web.StreamResponse:
    """`POST /datasets/{id}/chunks/values`: the bytes of many chunk objects as they are stored, in frames."""
    dataset = await load_dataset(request)
    if dataset.elsewhere:
        raise Unsupported(
            f"{dataset.id} has no chunk objects, because its data is in a file or in other datasets: read values."
        )
    body = await read_json_object(request)
    named = NamedChunks.parse(body, dataset, request.service.settings.max_request_size)
    async with request.service.answers.hold(named.memory):
        return await respond_stream(request, BINARY_TYPE, _frames(request, dataset, named))


async def _frames(
    request: Request, dataset: StoredDataset, named: NamedChunks
) -> AsyncGenerator[bytes, None]:
    """Yield the answer in pieces of about `MIN_PIECE_BYTES` bytes; there is always one piece, which may be empty."""
    piece: list[Buffer] = []
    nbytes = 0
    for page in named.pages():
        dataset, objects = await _read(request, dataset, page)
        for found in objects:
            piece += (CHANGED,) if found is None else (LENGTH.pack(len(found)), byte_view(found))
            nbytes += 0 if found is None else len(found)
            if nbytes >= MIN_PIECE_BYTES:
                yield b"".join(piece)
                piece, nbytes = [], 0
    yield b"".join(piece)


async def _read(
    request: Request, dataset: StoredDataset, page: NamedChunks
) -> tuple[StoredDataset, list[NDArray[np.uint8] | None]]:
    """Return a pair: the dataset, with its newest generation, and each object's bytes, or None if it was changed."""

    def message(some: list[int]) -> ReadObjectBytes:
        part = page.take(np.array(some, np.intp))
        return ReadObjectBytes(dataset.spec, part.scaled, part.etags, part.sizes)

    keys = [dataset.spec.key(scaled) for scaled in page.scaled.tolist()]
    for _ in range(MAX_READ_ATTEMPTS - 1):
        try:
            return dataset, await request.service.owners.gather(range(len(keys)), keys.__getitem__, message)
        except Moved:  # the request names chunks by coordinates, which stay valid
            generation = (await load_dataset(request)).spec.generation
            dataset = replace(dataset, spec=replace(dataset.spec, generation=generation))
    return dataset, await request.service.owners.gather(range(len(keys)), keys.__getitem__, message)


REPORTED_KINDS = (
    ErrorKind.BAD_REQUEST,
    ErrorKind.OUT_OF_RANGE,
    ErrorKind.FORBIDDEN,
    ErrorKind.NOT_FOUND,
    ErrorKind.GONE,
    ErrorKind.CONFLICT,
    ErrorKind.TOO_LARGE,
    ErrorKind.UNSUPPORTED,
)
"""The kinds of errors that a domain's chunk map reports as the entry of the dataset that has the error."""
