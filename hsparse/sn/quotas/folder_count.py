"""What the domains below a folder take in the store, counted from listings of keys.

It costs a listing of the names below the folder, a read of the record of each, and a listing for each domain.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from hsparse.concurrency.gather import gather_each
from hsparse.errors import MISSING_KINDS, UNREADABLE_KINDS
from hsparse.model.ids import domain_prefix
from hsparse.sn.data_nodes.key_pages import key_pages
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.request import OBJECT_BYTES
from hsparse.wire.message import Record

RECORD = "/.domain.json"
READS_AT_ONCE = 500
LISTINGS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Name:
    """A domain or folder, its record and how many bytes it counts; `unreadable` says why there is no record."""

    path: str
    nbytes: int
    record: Record
    unreadable: str = ""

    @property
    def root(self) -> str | None:
        root = self.record.get("root")
        return root if isinstance(root, str) else None


async def count_folder(owners: Owners, folder: str, tell: Callable[[Name], None]) -> int:
    """Return the bytes of all domains and folders below `folder`, and of their objects; each object counts once.

    `tell` is called with each name whose record cannot be read: it counts, and its objects do not.
    """
    total, roots = 0, set[str]()
    async for page in names_below(owners, folder):
        for name in page:
            total += name.nbytes
            if name.root is not None:
                roots.add(name.root)
            if name.unreadable:
                tell(name)

    sizes = await gather_each(lambda root: tree_bytes(owners, root), roots, LISTINGS_AT_ONCE)
    return total + sum(sizes)


async def names_below(owners: Owners, folder: str) -> AsyncIterator[list[Name]]:
    """Yield the domains and folders below `folder`. What is deleted meanwhile may be left out."""
    async for page in key_pages(owners, f"{folder[1:]}/"):
        sizes = {f"/{key.removesuffix(RECORD)}": size for key, size, _ in page if key.endswith(RECORD)}
        sizes.pop(folder, None)
        paths = list(sizes)
        for first in range(0, len(paths), READS_AT_ONCE):
            some = paths[first : first + READS_AT_ONCE]
            found: list[Name] = []
            for path, outcome in zip(some, await owners.read(*some), strict=True):
                failure, nbytes = outcome.failure, max(sizes[path], OBJECT_BYTES)
                if failure is not None and failure.kind in UNREADABLE_KINDS:
                    found.append(Name(path, nbytes, {}, failure.message))
                elif failure is None or failure.kind not in MISSING_KINDS:
                    found.append(Name(path, nbytes, outcome.unwrap()))
            yield found


async def tree_bytes(owners: Owners, root: str) -> int:
    """Return the bytes of all objects of a domain, and of its root group."""
    total = 0
    async for page in key_pages(owners, domain_prefix(root)):
        total += sum(max(size, OBJECT_BYTES) for _, size, _ in page)
    return total
