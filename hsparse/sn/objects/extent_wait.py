"""Waiting for a dataset to grow: a long poll, for pages and programs that follow a measurement."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context as Variables

from hsparse.errors import BadRequest
from hsparse.model.dataspace import dims_of
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.object_path import requested, requested_id
from hsparse.sn.request import Request
from hsparse.sn.service import Service
from hsparse.wire.message import Record

INTERVAL = 0.2
"""Seconds between two looks at a record, which its owner has in memory, or confirms with the store."""


class ExtentLooks:
    """Looks at the records of datasets that are waited for: one each `INTERVAL`, however many wait."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._looks: dict[str, asyncio.Task[Record]] = {}

    @classmethod
    def of(cls, service: Service) -> ExtentLooks:
        """Make those of a service node."""
        return cls(service.owners)

    async def next(self, id: str) -> Record:
        """Return a dataset's record as it is within an interval from now."""
        look = self._looks.get(id)
        if look is None:
            # With variables of its own: it is no part of the request that begins it, whose deadline is not its.
            look = asyncio.get_running_loop().create_task(self._look(id), context=Variables())
            self._looks[id] = look
            look.add_done_callback(
                lambda done: self._looks.pop(id) and (done.cancelled() or done.exception())
            )
        try:
            return await asyncio.shield(look)
        finally:
            del look  # an error has this frame, and would have itself

    async def _look(self, id: str) -> Record:
        await asyncio.sleep(INTERVAL)
        return await self._owners.record(id)


async def changed_record(request: Request) -> Record:
    """Return the dataset's record; with `wait` only once its extent is no longer `expect`, or after these seconds.

    `BadRequest` for too long a wait, or one without `expect`.
    """
    record = await requested(request, "datasets")
    seconds = request.wait_seconds()
    if not seconds:
        return record
    known = _known_extent(request.arg("expect"))
    request.leave_place()
    id, looks = requested_id(request, "datasets"), request.service.component(ExtentLooks)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while tuple(dims_of(record["shape"]) or ()) == known and (left := until - loop.time()) > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                record = await looks.next(id)
    return record


def _known_extent(text: str | None) -> tuple[int, ...]:
    parts = (text or "").strip().removeprefix("[").removesuffix("]").split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 19 for part in parts):
        raise BadRequest("Name the extent that is known beside wait: expect=[10,20].")
    return tuple(map(int, parts))
