"""The handler of a dataset's shape. Clients that follow a measurement can wait until a dataset grows (long polling)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context as Variables
from typing import Any

from aiohttp import web

from hsparse.concurrency.single_flight import SingleFlight
from hsparse.errors import BadRequest
from hsparse.model.acl import Right
from hsparse.model.dataspace import (
    Shape,
    dims_of,
    lower_of,
    shape_json,
)
from hsparse.model.file_backed import SERVED
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.http.response import hrefs
from hsparse.sn.request import Request, respond
from hsparse.sn.service import Service
from hsparse.wire.message import Record

POLL_SECONDS = 0.2
"""Seconds between two reads of a dataset's record while requests wait for its extent to change."""


class ExtentLooks:
    """Reads dataset records for requests that wait for a change, once in `POLL_SECONDS` for all requests together."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._looks: SingleFlight[str, Record] = SingleFlight(_in_new_context)

    @classmethod
    def of(cls, service: Service) -> ExtentLooks:
        """Make the component of a service."""
        return cls(service.owners)

    async def next(self, id: str) -> Record:
        """Wait for the next read of a dataset's record, at most about `POLL_SECONDS`, and return the record."""
        return await self._looks.run(id, lambda: self._look(id))

    async def _look(self, id: str) -> Record:
        await asyncio.sleep(POLL_SECONDS)
        return await self._owners.record(id)


def _in_new_context(work: Coroutine[Any, Any, Record]) -> asyncio.Task[Record]:
    """Start a task that does not inherit the deadline of the request that starts it."""
    return asyncio.create_task(work, context=Variables())


async def changed_record(request: Request) -> Record:
    """Return the dataset's record; with `wait` seconds, wait at most that long until its bounds differ from `expect`.

    Raises `BadRequest` if the wait is too long or `expect` is missing, `Conflict` if the dataset's served file changes.
    """
    record = await request.record("datasets")
    seconds = request.wait_seconds()
    if not seconds:
        return record
    known = _known_bounds(request)
    request.leave_place()
    id, looks = request.object_id("datasets"), request.service.component(ExtentLooks)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while _has_bounds(record["shape"], *known) and (left := until - loop.time()) > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                record = await request.current(await looks.next(id))
                if request.domain.record.get(SERVED):  # a changed file has other ids
                    # The domain is found in a new context, because this request's context sees one state of each file.
                    finding = request.find(request.domain.path, Right.READ)
                    request.found = await loop.create_task(finding, context=Variables())
                    request.object_id("datasets")
    return record


def _known_bounds(request: Request) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a pair: the parameter `expect`, and the parameter `expect_lower`, or () if it is missing."""
    extent, lower = request.arg("expect"), request.arg("expect_lower")
    known = _integers(extent, "[0-9]{1,19}", "the known extent if you use wait: expect=[10,20]")
    if lower is None:
        return known, ()
    return known, _integers(lower, "-?[0-9]{1,19}", "the lower bounds that are known: expect_lower=[-5,0]")


def _integers(text: str | None, pattern: str, what: str) -> tuple[int, ...]:
    parts = (text or "").strip().removeprefix("[").removesuffix("]").split(",")
    if not all(re.fullmatch(pattern, part) for part in parts):
        raise BadRequest(f"Name {what}.")
    return tuple(map(int, parts))


def _has_bounds(shape: Shape, extent: tuple[int, ...], lower: tuple[int, ...]) -> bool:
    """Return whether a dataspace has this extent and, unless `lower` is (), these lower bounds."""
    return dims_of(shape) == extent and lower in ((), lower_of(shape) or (0,) * len(extent))


async def get_shape(request: Request) -> web.StreamResponse:
    """Answer with a dataset's dataspace; with `wait` seconds, when it has changed or the seconds have passed."""
    record = await changed_record(request)
    own = f"/datasets/{record['id']}"
    answer = {
        "shape": shape_json(record["shape"]),
        "created": record["created"],
        "lastModified": record["lastModified"],
    }
    links = hrefs(request, self=f"{own}/shape", owner=own, root=f"/groups/{record['root']}")
    return respond(answer | {"hrefs": links})
