"""The stored bytes of many chunks in one answer, for clients that decode them.

The answer has a frame for each chunk, in the order in which they are named: the length of the chunk's object in
bytes, u64 little-endian, then the bytes. The length `CHANGED`, without bytes, says that the object is gone or has
another etag.

The groups and datasets of a domain by path, as maps list them, and a check that references can describe them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hsparse.errors import MISSING_KINDS, BadRequest, ErrorKind, Moved, TooLarge, Unsupported
from hsparse.format.buffer import Buffer, byte_view
from hsparse.model.ids import collection_of
from hsparse.sn.chunks.handlers import MAX_LIMIT
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.http.request import BINARY_TYPE, read_json_object, text_list
from hsparse.sn.http.stream import respond_stream
from hsparse.sn.records.dataset import ATTEMPTS, Dataset, load_dataset
from hsparse.sn.records.object_path import join_path, object_links, read_each, walk_groups
from hsparse.sn.records.stored_chunks import parse_chunk_name
from hsparse.sn.request import Request
from hsparse.wire.chunk_info_message import ReadObjectBytes
from hsparse.wire.message import Record

LENGTH = Struct("<Q")
CHANGED = LENGTH.pack(2**64 - 1)
PAGE = 4 << 20
"""Bytes of the chunks that are asked for together, one message to each owner; a larger chunk is asked for alone."""
PIECE = 1 << 20
"""Bytes that are sent together: many small frames, or a large one."""
MAX_ETAG = 1024


@dataclass(frozen=True, slots=True, eq=False)
class NamedChunks:
    """The chunks of a request: `scaled: (n, rank) uint64`, the etags of their objects, and their sizes, (n,) uint64."""

    scaled: NDArray[np.uint64]
    etags: tuple[str, ...]
    sizes: NDArray[np.uint64]

    @classmethod
    def parse(cls, body: dict[str, Any], dataset: Dataset, largest: int) -> NamedChunks:
        """Return the chunks of `{"chunks": ["0_3"], "etags": ["..."], "sizes": [4711]}`; else `BadRequest`.

        `TooLarge` for more than `MAX_LIMIT` chunks, or one of more than `largest` bytes.
        """
        names, etags, sizes = text_list(body, "chunks"), text_list(body, "etags"), body.get("sizes")
        if names is None or etags is None or not isinstance(sizes, list):
            raise BadRequest("The body must have chunks, etags and sizes: three lists, as the map has them.")
        if not len(names) == len(etags) == len(sizes):
            raise BadRequest(
                f"There are {len(names)} chunks, {len(etags)} etags and {len(sizes)} sizes: each chunk has one of each."
            )
        if len(names) > MAX_LIMIT:
            raise TooLarge(f"The request names {len(names)} chunks; the limit is {MAX_LIMIT}.")
        if not all(type(size) is int and size > 0 for size in sizes):
            raise BadRequest("sizes must be numbers of bytes, 1 or more.")
        if max(sizes, default=0) > largest:
            raise TooLarge(
                f"A chunk has {max(sizes)} bytes; the limit is {largest} (max_request_size): read values."
            )
        if any(len(etag) > MAX_ETAG for etag in etags):
            raise BadRequest(f"An etag has at most {MAX_ETAG} characters.")
        scaled = [parse_chunk_name(name, dataset) for name in names]
        rows = np.array(scaled, np.uint64).reshape(len(scaled), len(dataset.extent))
        return cls(rows, tuple(etags), np.array(sizes, np.uint64))

    def pages(self) -> Iterator[NamedChunks]:
        """Yield the chunks in order, about `PAGE` bytes at a time."""
        first, room = 0, 0
        for place, size in enumerate(self.sizes.tolist()):
            if place > first and size > room:
                yield self._between(first, place)
                first = place
            room = (PAGE if place == first else room) - size
        if len(self.sizes):
            yield self._between(first, len(self.sizes))

    @property
    def memory(self) -> int:
        """About the most bytes that are in memory at a time: a page is sent while the next one is read."""
        largest = max(PAGE, int(self.sizes.max(initial=0)))
        return 2 * min(2 * largest, int(self.sizes.sum()))

    def take(self, places: NDArray[np.intp]) -> NamedChunks:
        """Return the chunks at these places."""
        return NamedChunks(self.scaled[places], tuple(self.etags[at] for at in places), self.sizes[places])

    def _between(self, first: int, last: int) -> NamedChunks:
        return NamedChunks(self.scaled[first:last], self.etags[first:last], self.sizes[first:last])


async def post_chunk_values(request: Request) -> web.StreamResponse:
    """`POST /datasets/{id}/chunks/values`: the objects of many chunks as they are stored, one after the other."""
    dataset = await load_dataset(request)
    if dataset.elsewhere:
        raise Unsupported(
            f"{dataset.id} has no chunk objects, its data is in a file or in other datasets: read values."
        )
    body = await read_json_object(request)
    named = NamedChunks.parse(body, dataset, request.service.settings.max_request_size)
    async with request.service.answers.hold(named.memory):
        return await respond_stream(request, BINARY_TYPE, _frames(request, dataset, named))


async def _frames(request: Request, dataset: Dataset, named: NamedChunks) -> AsyncGenerator[bytes, None]:
    """Yield the answer in pieces of about `PIECE` bytes; a first one always, however empty."""
    piece: list[Buffer] = []
    nbytes = 0
    for page in named.pages():
        dataset, objects = await _read(request, dataset, page)
        for found in objects:
            piece += (CHANGED,) if found is None else (LENGTH.pack(len(found)), byte_view(found))
            nbytes += 0 if found is None else len(found)
            if nbytes >= PIECE:
                yield b"".join(piece)
                piece, nbytes = [], 0
    yield b"".join(piece)


async def _read(
    request: Request, dataset: Dataset, page: NamedChunks
) -> tuple[Dataset, list[NDArray[np.uint8] | None]]:
    """Return the objects of a page, and the dataset as it is by then: a shrink does not break the answer off."""

    def message(some: list[int]) -> ReadObjectBytes:
        part = page.take(np.array(some, np.intp))
        return ReadObjectBytes(dataset.spec, part.scaled, part.etags, part.sizes)

    keys = [dataset.spec.key(scaled) for scaled in page.scaled.tolist()]
    for _ in range(ATTEMPTS - 1):
        try:
            return dataset, await request.service.owners.gather(range(len(keys)), keys.__getitem__, message)
        except Moved:  # the places of the chunks stay those that were named
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
"""Errors of a dataset that a domain's map reports in its place."""


@dataclass(frozen=True, slots=True)
class MappedObject:
    """A group or dataset at a path; `first` is the first path of the object."""

    path: str
    record: Record
    first: str

    @property
    def is_dataset(self) -> bool:
        return collection_of(self.record["id"]) == "datasets"


async def mapped_objects(owners: Owners, root: str) -> AsyncGenerator[MappedObject, None]:
    """Yield the groups reached by hard links, each once and before its datasets, and the datasets of each link.

    Soft links to datasets of the domain count, too; external ones are not followed.
    """
    first: dict[str, str] = {}
    groups = walk_groups(owners, root)
    async with aclosing(groups):
        async for path, record in groups:
            yield MappedObject(path, record, path)
            datasets = datasets_of_group(owners, record)
            async with aclosing(datasets):
                async for title, dataset in datasets:
                    here = join_path(path, title)
                    yield MappedObject(here, dataset, first.setdefault(dataset["id"], here))


async def nested_groups(owners: Owners, root: str) -> AsyncGenerator[MappedObject, None]:
    """Yield the groups of `mapped_objects`, each before the groups inside it."""
    found: dict[tuple[str, ...], str] = {}
    groups = walk_groups(owners, root)
    async with aclosing(groups):
        async for path, record in groups:
            found[path_components(path)] = record["id"]
    places = [("/" + "/".join(parts), found[parts]) for parts in sorted(found)]
    async with aclosing(read_each(owners, places)) as read:
        async for path, outcome in read:
            if outcome.failure is None or outcome.failure.kind not in MISSING_KINDS:
                yield MappedObject(path, outcome.unwrap(), path)


async def datasets_of_group(owners: Owners, group: Record) -> AsyncGenerator[tuple[str, Record], None]:
    """Yield titles and records of the datasets that a group's hard and soft links lead to."""
    links = [link for link in await object_links(owners, group) if collection_of(link[1]) == "datasets"]
    async with aclosing(read_each(owners, links)) as read:
        async for title, outcome in read:
            if outcome.failure is None or outcome.failure.kind not in MISSING_KINDS:
                yield title, outcome.unwrap()


def path_components(path: str) -> tuple[str, ...]:
    """Return the names in a path, none for the root."""
    return tuple(part for part in path.split("/") if part)
