"""The chunk map of a dataset in the client: cached, and revalidated by its etag at each read (304 if unchanged)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.integrations.direct.object_reader import ObjectPlace, ReadStatistics
from hsparse.clock import Clock, SystemClock
from hsparse.errors import HsparseError, Unsupported
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.chunk_kind import ChunkKind
from hsparse.format.kinds.registry import kind_of
from hsparse.format.selections.points import Selection
from hsparse.format.selections.select_syntax import format_select
from hsparse.model.layout import SPARSE_DATA
from hsparse.model.stripes import Stripes, parse_stripes

MAP_VERSION = 1


@dataclass(frozen=True)
class DatasetMap:
    """The stored chunks of a dataset with this `extent`: all chunks, or the chunks that a selection touches.

    `scaled: (n, rank) uint64`, `defined: (n,) int64` (0 for dense chunks), `sizes: (n,) int64` (bytes), `etags` (n) and
    `urls` (n, or empty) describe the chunks' objects. `directory` is the store's directory, if the server names it.
    """

    extent: tuple[int, ...]
    spec: ChunkSpec
    scaled: NDArray[np.uint64]
    defined: NDArray[np.int64]
    sizes: NDArray[np.int64]
    etags: tuple[str, ...]
    urls: tuple[str, ...]
    directory: str | None

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements as they are stored."""
        return self.spec.dtype

    @cached_property
    def kind(self) -> ChunkKind[Any]:
        """The chunk kind that decodes the chunks."""
        return kind_of(self.spec)

    @cached_property
    def rows(self) -> dict[tuple[int, ...], int]:
        """Maps the scaled coordinates of each chunk to its row in the arrays."""
        return {tuple(scaled): row for row, scaled in enumerate(self.scaled.tolist())}

    def place(self, row: int) -> ObjectPlace:
        """Return the key, etag, URL and size of a chunk's object; the client, not the server, makes the key."""
        key = self.spec.key(self.scaled[row].tolist())
        url = self.urls[row] if self.urls else None
        return ObjectPlace(key, self.etags[row], url, int(self.sizes[row]))


def parse_map(answer: Json) -> DatasetMap:
    """Parse the answer to `GET /datasets/{id}/map`.

    Raise `Unsupported` for data that only the server can read: vlen elements, data in files, an unknown version.
    """
    if answer.get("version") != MAP_VERSION or "dtype" not in answer:
        raise Unsupported("Direct reads need elements of a fixed size and a chunk map of version 1.")
    rows = answer["chunks"]
    extent = tuple(answer["shape"].get("dims") or ())
    layout = answer["layout"]
    sparse = SPARSE_DATA in (layout.get("flags") or ())
    if not all(isinstance(row.get("etag"), str) and not row.get("filter_mask") for row in rows):
        raise Unsupported("Data that stays in files is read by the server.")
    pipelines = tuple(
        tuple(Filter(one["id"], tuple(one["values"])) for one in pipeline["filters"])
        for pipeline in answer["pipelines"]
    )
    stripes = Stripes.of(parse_stripes(layout.get("stripes", 1)))
    if stripes is not None and stripes.places and not all("url" in row for row in rows):
        raise Unsupported("Chunks in several buckets can be read directly only by presigned URLs.")
    fill = base64.b64decode(answer["fillValue"])
    spec = ChunkSpec(
        answer["id"],
        answer["type"],
        tuple(layout["dims"]),
        sparse,
        fill,
        pipelines,
        stripes=stripes,
    )
    scaled = np.array([row["scaled"] for row in rows], np.uint64).reshape(len(rows), len(extent))
    return DatasetMap(
        extent,
        spec,
        scaled,
        np.array([row.get("defined", 0) for row in rows], np.int64),
        np.array([row["size"] for row in rows], np.int64),
        tuple(row["etag"] for row in rows),
        tuple(row["url"] for row in rows if "url" in row),
        _text(answer.get("directory")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


MAX_WHOLE_MAP_CHUNKS = 10_000
"""The largest grid, in chunks, whose whole map the first read requests; for a larger grid, a read requests a part."""
WHOLE_SIGNED = 1000
"""The same limit for maps with presigned URLs: the server takes half a millisecond to sign the URL of a chunk."""
MAX_PARTIAL_MAPS = 3
"""After this many partial maps of a grid the whole map is requested: the server lists all keys for any map."""
MAX_MAPPED_CHUNKS = 200_000
"""The largest grid, in chunks, whose map is cached: about 100 MB."""
URL_SECONDS = 3600
LONG_SELECT = 2048
"""The maximum number of characters of a `select` in a URL; the bounding box is sent instead of a longer `select`."""


@dataclass(frozen=True, slots=True)
class _Kept:
    map: DatasetMap
    etag: str
    until: float


class KeptMap:
    """The cached map of the dataset `id`, with presigned URLs if `signed` and the store has them; thread-safe.

    The first read requests the whole map of a grid of up to `whole` chunks, by default `MAX_WHOLE_MAP_CHUNKS`.

    A read that begins after an acknowledged write gets a map that has the write: `current` sends a request each time.
    """

    def __init__(
        self,
        connection: Connection,
        id: str,
        chunks: Sequence[int],
        statistics: ReadStatistics,
        *,
        signed: bool = False,
        whole: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._connection = connection
        self._path = f"/datasets/{id}/map"
        self.chunks = tuple(chunks)
        self._statistics = statistics
        self._signed = signed
        self._whole = MAX_WHOLE_MAP_CHUNKS if whole is None else whole
        self._clock = clock or SystemClock()
        self._kept: _Kept | None = None
        self._parts = 0

    def current(self, selection: Selection) -> DatasetMap:
        """Request the current map, or the part of it that the selection touches."""
        if self._is_asked_in_parts(selection.extent):
            self._parts += 1
            return self._ask(None, select=_select(selection))[0]
        kept = self._kept
        if kept is not None and kept.until < self._clock.now():
            kept = None
        found, etag = self._ask(kept)
        if etag is not None and (kept is None or found is not kept.map):
            self._kept = _Kept(
                found, etag, self._clock.now() + URL_SECONDS / 2 if self._signed else float("inf")
            )
        return found

    def is_whole(self, extent: Sequence[int]) -> bool:
        """Return whether the next call of `current` requests the map of the whole dataset, for any selection."""
        return not self._is_asked_in_parts(extent)

    def _is_asked_in_parts(self, extent: Sequence[int]) -> bool:
        count = prod(-(-length // step) for length, step in zip(extent, self.chunks, strict=True))
        if self._signed:
            return count > WHOLE_SIGNED
        return count > MAX_MAPPED_CHUNKS or (count > self._whole and self._parts < MAX_PARTIAL_MAPS)

    def _ask(self, kept: _Kept | None, **params: object) -> tuple[DatasetMap, str | None]:
        urls = URL_SECONDS if self._signed else None
        known = None if kept is None else kept.etag
        try:
            answer, etag = self._connection.json_if_changed(self._path, known, urls=urls, **params)
        except Unsupported:  # a store without URLs
            if not self._signed:
                raise
            self._signed = False
            return self._ask(kept, **params)
        self._statistics.add(maps=1, unchanged_maps=int(answer is None))
        if answer is None:
            assert kept is not None
            return kept.map, kept.etag
        try:
            return parse_map(answer), etag
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise HsparseError(f"{self._connection.url} sent no chunk map for {self._path}.") from error

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": None}


def _select(selection: Selection) -> str | None:
    """Return the `select` string of a selection, or of its bounding box if the string is long."""
    try:
        text = format_select(selection)
        if len(text) <= LONG_SELECT:
            return text
    except HsparseError:
        pass
    bounds = selection.bounds()
    if bounds is None or not selection.extent:
        return None
    return f"[{','.join(f'{low}:{high}' for low, high in zip(*bounds, strict=True))}]"
