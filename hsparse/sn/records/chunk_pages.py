"""All stored chunks of a dataset, page by page.

A page names the version of the chunks that the client's request began with, so that the data node lists them once for
all pages, and for all requests until a chunk is changed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from hashlib import blake2b

from hsparse.errors import StoreFailed
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.selections.selection import Selection
from hsparse.model.ids import map_key
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset
from hsparse.wire.chunk_info_message import GetChunkVersion, ListChunks

CHUNK_PAGE = 9999
"""Chunks asked for at a time where all are: one fewer than ten pages of a listing have, which spares one more."""


async def chunk_version(owners: Owners, dataset: str) -> str:
    """Return the version of a dataset's chunks at all data nodes; empty if one does not answer.

    It has to be asked for before the chunks are listed: then what is listed is of that state or a newer one.
    """
    try:
        versions = await owners.ask_all(GetChunkVersion(dataset))
    except StoreFailed:
        return ""
    return blake2b(json.dumps(versions).encode(), digest_size=16).hexdigest()


async def chunk_pages(
    owners: Owners, dataset: Dataset, selection: Selection | None = None
) -> AsyncGenerator[ChunkRows, None]:
    """Yield the stored chunks that a selection intersects, of sparse ones with what their footers say."""
    version = await chunk_version(owners, dataset.id)
    after: tuple[int, ...] = ()
    while True:
        message = ListChunks(
            dataset.spec, dataset.extent, selection, after=after, limit=CHUNK_PAGE, version=version
        )
        page = await owners.ask_owner(map_key(dataset.id), message)
        yield page.rows
        if not page.marker:
            return
        after = page.marker
