"""The map of a dataset as a client keeps it: where the chunks are, and all that is needed to decode them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Json
from hsparse.client.integrations.direct.object_reader import ObjectPlace
from hsparse.errors import Unsupported
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.chunk_kind import ChunkKind
from hsparse.format.kinds.registry import kind_of
from hsparse.model.layout import SPARSE_DATA
from hsparse.model.stripes import Stripes

VERSION = 1


@dataclass(frozen=True)
class DatasetMap:
    """The stored chunks of a dataset of the extent `extent`, all or those that a selection meets.

    `scaled: (n, rank) uint64`, `defined: (n,) int64` (0 for dense chunks), `sizes: (n,) int64` (bytes of the chunks),
    `etags` and `urls` (n, or none) describe their objects. `directory` is that of the store, if the server says so.
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
        """What decodes the chunks."""
        return kind_of(self.spec)

    @cached_property
    def rows(self) -> dict[tuple[int, ...], int]:
        """The number of each chunk, by its scaled coordinates."""
        return {tuple(scaled): row for row, scaled in enumerate(self.scaled.tolist())}

    def place(self, row: int) -> ObjectPlace:
        """Return where the object of a chunk is. Its key follows from the dataset: the server cannot name another."""
        key = self.spec.key(self.scaled[row].tolist())
        url = self.urls[row] if self.urls else None
        return ObjectPlace(key, self.etags[row], url, int(self.sizes[row]))


def parse_map(answer: Json) -> DatasetMap:
    """Return the map in an answer to `GET /datasets/{id}/map`.

    `Unsupported` for data that only the server can read: variable-length elements, data in files, an unknown version.
    """
    if answer.get("version") != VERSION or "dtype" not in answer:
        raise Unsupported("Only elements of a fixed size can be read directly, by a map of version 1.")
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
    fill = base64.b64decode(answer["fillValue"])
    spec = ChunkSpec(
        answer["id"],
        answer["type"],
        tuple(layout["dims"]),
        sparse,
        fill,
        pipelines,
        stripes=Stripes.of(layout.get("stripes", 1)),
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
