"""The state of an interrupted export to S3, stored as an object next to its target.

The object's key is the target's key with the file's etag and `.part`, like the name of an unfinished export to a disk.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import sha256

from hsparse.errors import BadRequest, NotFound
from hsparse.hdf5.exporter.multipart_upload import S3Upload
from hsparse.hdf5.exporter.part_plan import FilePart
from hsparse.storage.s3.s3_store import S3Store

SUFFIX = ".part"
KIND = "hsparse-export"


@dataclass(frozen=True, slots=True)
class PendingExport:
    """A pending upload `id`; `digest` is the digest of its parts' bounds, `copied`: the service copies chunks."""

    id: str
    digest: str
    copied: bool

    @classmethod
    async def load(cls, store: S3Store, key: str, etag: str) -> PendingExport | None:
        """Return the pending export of the file with this etag, None if there is none.

        Pending exports of other states of the file are aborted and deleted.
        """
        found = None
        names = re.compile(re.escape(key) + r"\.[\w-]{1,100}" + re.escape(SUFFIX))
        async for page in store.list(f"{key}."):
            for entry in page.entries:
                if not names.fullmatch(entry.key):
                    continue
                pending = await cls._read(store, entry.key)
                if pending is None:
                    continue
                if entry.key == _name(key, etag):
                    found = pending
                else:
                    await S3Upload(store, key, pending.id).abort()
                    await store.delete(entry.key)
        return found

    @classmethod
    async def _read(cls, store: S3Store, name: str) -> PendingExport | None:
        try:
            found = json.loads((await store.get_range(name, 0, 4096)).data)
            return cls(found["id"], found["digest"], found["copied"]) if found["kind"] == KIND else None
        except (NotFound, BadRequest, ValueError, KeyError, TypeError):
            return None  # an object of another program, empty, or just deleted

    async def save(self, store: S3Store, key: str, etag: str) -> None:
        state = {"kind": KIND, "id": self.id, "digest": self.digest, "copied": self.copied}
        await store.put(_name(key, etag), json.dumps(state).encode())


async def forget(store: S3Store, key: str, etag: str) -> None:
    """Delete the stored state of an export."""
    await store.delete(_name(key, etag))


def plan_digest(parts: tuple[FilePart, ...]) -> str:
    """Return a digest of the parts' bounds."""
    return sha256(repr([part.stop for part in parts]).encode()).hexdigest()


def _name(key: str, etag: str) -> str:
    return f"{key}.{etag}{SUFFIX}"
