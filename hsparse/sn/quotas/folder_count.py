"""What the domains below a folder take in the store, counted from listings of keys.

It costs a listing of the names below the folder, a read of the record of each, and a listing for each domain.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from hsparse.concurrency.gather import gather_each
from hsparse.errors import MISSING_KINDS
from hsparse.model.ids import domain_prefix
from hsparse.sn.data_nodes.key_pages import key_pages
from hsparse.sn.data_nodes.owners import Owners

OBJECT_BYTES = 4096
"""What an object counts at least: a file system gives it whole blocks, so that many small objects fill it, too."""
RECORD = "/.domain.json"
READS_AT_ONCE = 500
LISTINGS_AT_ONCE = 4


async def count_folder(owners: Owners, folder: str) -> int:
    """Return the bytes of all domains and folders below `folder`, and of their objects; each object counts once."""
    total, roots = 0, set[str]()
    async for page in names_below(owners, folder):
        for nbytes, _, root in page:
            total += nbytes
            if root is not None:
                roots.add(root)

    sizes = await gather_each(lambda root: tree_bytes(owners, root), roots, LISTINGS_AT_ONCE)
    return total + sum(sizes)


async def names_below(owners: Owners, folder: str) -> AsyncIterator[list[tuple[int, str, str | None]]]:
    """Yield the domains and folders below `folder`: the bytes of the record, the path, and the root (a folder's: None).

    What is deleted meanwhile may be left out.
    """
    async for page in key_pages(owners, f"{folder[1:]}/"):
        sizes = {f"/{key.removesuffix(RECORD)}": size for key, size, _ in page if key.endswith(RECORD)}
        sizes.pop(folder, None)
        paths = list(sizes)
        for first in range(0, len(paths), READS_AT_ONCE):
            some = paths[first : first + READS_AT_ONCE]
            found: list[tuple[int, str, str | None]] = []
            for path, outcome in zip(some, await owners.read(*some), strict=True):
                if outcome.failure is not None and outcome.failure.kind in MISSING_KINDS:
                    continue
                root = outcome.unwrap().get("root")
                nbytes = max(sizes[path], OBJECT_BYTES)
                found.append((nbytes, path, root if isinstance(root, str) else None))
            yield found


async def tree_bytes(owners: Owners, root: str) -> int:
    """Return the bytes of all objects of a domain, and of its root group."""
    total = 0
    async for page in key_pages(owners, domain_prefix(root)):
        total += sum(max(size, OBJECT_BYTES) for _, size, _ in page)
    return total
