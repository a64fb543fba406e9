"""Stored chunks, each with a URL by which anybody can read its object, or the file it is in, for some time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hsparse.format.selections.selection import Selection
from hsparse.sn.chunks.stored_chunks import Json, Scaled, StoredChunks, Wanted
from hsparse.sn.linked.file_rights import FileRights
from hsparse.sn.owners import Owners
from hsparse.wire.chunk_info_message import SignKeys


class SignedChunks:
    """The chunks of another `StoredChunks`, with `url`, good for so many seconds.

    Of chunks in files, `rights` are the asker's: `Forbidden` where they do not have the file itself read.
    """

    def __init__(
        self, chunks: StoredChunks, owners: Owners, seconds: int, rights: FileRights | None = None
    ) -> None:
        self._chunks = chunks
        self._owners = owners
        self._seconds = seconds
        self._rights = rights
        self.grid = chunks.grid

    async def page(self, wanted: Wanted) -> tuple[list[Json], Scaled]:
        rows, marker = await self._chunks.page(wanted)
        return await self._signed(rows), marker

    async def count(self, selection: Selection | None) -> int:
        return await self._chunks.count(selection)

    async def find(self, scaled: Scaled) -> Json | None:
        found = await self._chunks.find(scaled)
        return None if found is None else (await self._signed([found]))[0]

    async def scaled(self) -> NDArray[np.uint64]:
        return await self._chunks.scaled()

    async def _signed(self, rows: list[Json]) -> list[Json]:
        keys = tuple(dict.fromkeys(row["key"] for row in rows))
        if self._rights is not None:
            await self._rights.require(*(f"s3://{self._rights.bucket}/{key}" for key in keys))
        signed = await self._owners.ask_any(SignKeys(keys, self._seconds))
        urls = dict(zip(keys, signed, strict=True))
        return [{**row, "url": urls[row["key"]]} for row in rows]
