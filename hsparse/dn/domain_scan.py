"""A scan of all domains in a store: which root groups they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hsparse.concurrency.gather import gather_each
from hsparse.dn.record_checksum import has_checksum
from hsparse.dn.record_codec import RecordCodec
from hsparse.errors import BadRequest, Corrupt, NotFound, Unsupported
from hsparse.model.ids import check_id, is_root
from hsparse.storage.object_store import Entry, ObjectStore
from hsparse.wire.message import Record

SUFFIX = "/.domain.json"
OBJECTS = "db/"
AFTER_OBJECTS = "db/~"
"""What sorts after all keys of objects, whose names are of digits and lower-case letters."""
READS_AT_ONCE = 32
FOLDER_KEYS = frozenset({"owner", "acls", "created", "lastModified", "quota", "schema"})
"""What a folder's record may have."""


@dataclass(frozen=True, slots=True)
class StoredDomain:
    """A domain that names a root group."""

    path: str
    root: str
    record: Record
    etag: str
    modified: float

    @property
    def is_final(self) -> bool:
        """Whether it was marked as dangling before, or must not be changed here."""
        return "deleted" in self.record or "schema" in self.record


def _is_root(root: Any) -> bool:
    try:
        return isinstance(root, str) and is_root(check_id(root))
    except (BadRequest, NotFound):
        return False


@dataclass(slots=True)
class DomainScan:
    """The domains of a store, folders excluded; `unreadable` are the paths of those whose root is not known.

    A record without `root` is a folder's only if it has a checksum, or all its keys are those of folders: else it may
    be a domain's, damaged.
    """

    store: ObjectStore
    named: list[StoredDomain] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    roots: set[str] = field(default_factory=set)

    async def read(self) -> DomainScan:
        """Read every domain; one that exists all the while is not missed."""
        async for page in self.store.list(""):
            await self._read_page([entry for entry in page.entries if entry.key < OBJECTS])
            if page.entries and page.entries[-1].key >= OBJECTS:
                break
        async for page in self.store.list("", start_after=AFTER_OBJECTS):
            await self._read_page(page.entries)
        return self

    async def _read_page(self, entries: Sequence[Entry]) -> None:
        await gather_each(
            self._read, [entry for entry in entries if entry.key.endswith(SUFFIX)], READS_AT_ONCE
        )

    async def _read(self, entry: Entry) -> None:
        path = f"/{entry.key.removesuffix(SUFFIX)}"
        try:
            stored = await self.store.get(entry.key)
            record = RecordCodec(entry.key).decode(stored.data)
        except NotFound:
            return  # deleted since it was listed
        except (Corrupt, Unsupported):
            self.unreadable.append(path)
            return
        root: Any = record.get("root")
        if "root" not in record and (has_checksum(stored.data) or record.keys() <= FOLDER_KEYS):
            return
        if not _is_root(root):
            self.unreadable.append(path)
            return
        self.roots.add(root)
        self.named.append(StoredDomain(path, root, record, stored.etag, entry.modified))
