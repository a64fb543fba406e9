"""`delete_all` of a store that can only delete one object a request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hsparse.errors import PreconditionFailed
from hsparse.storage.object_store import Entry, ObjectStore

DELETES_AT_ONCE = 32


async def delete_each(store: ObjectStore, entries: Sequence[Entry]) -> list[bool]:
    """Answer `delete_all` by `delete_if_match` of each object, `DELETES_AT_ONCE` at a time.

    Once one fails no more are begun; when those under way are done, the error of the first failed one is raised.
    """
    deleted = [False] * len(entries)
    failed: dict[int, BaseException] = {}
    waiting = iter(range(len(entries)))

    async def work() -> None:
        for number in waiting:
            if failed:
                return
            try:
                await store.delete_if_match(entries[number].key, entries[number].etag)
            except PreconditionFailed:
                continue
            except BaseException as error:  # noqa: BLE001 - raised below
                failed[number] = error
                return
            deleted[number] = True

    try:
        await asyncio.gather(*(work() for _ in range(min(DELETES_AT_ONCE, len(entries)))))
        if failed:
            raise failed[min(failed)]
        return deleted
    finally:
        failed.clear()  # an error that its own traceback refers to stays until a collection
