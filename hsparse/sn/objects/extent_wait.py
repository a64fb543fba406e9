"""Waiting for a dataset to grow: a long poll, for pages and programs that follow a measurement."""

from __future__ import annotations

import asyncio

from hsparse.errors import BadRequest
from hsparse.model.dataspace import dims_of
from hsparse.sn.context import Context
from hsparse.sn.http.request_admission import give_up_place
from hsparse.sn.records.object_path import requested
from hsparse.wire.message import Record

INTERVAL = 0.2
"""Seconds between two looks at the record, which its owner has in memory."""


async def changed_record(context: Context) -> Record:
    """Return the dataset's record; with `wait` only once its extent is no longer `expect`, or after these seconds.

    `BadRequest` for too long a wait, or one without `expect`.
    """
    record = await requested(context, "datasets")
    seconds = context.wait_seconds()
    if not seconds:
        return record
    known = _known_extent(context.arg("expect"))
    give_up_place(context.request)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while tuple(dims_of(record["shape"]) or ()) == known and (left := until - loop.time()) > 0:
        await asyncio.sleep(min(INTERVAL, left))
        record = await requested(context, "datasets")
    return record


def _known_extent(text: str | None) -> tuple[int, ...]:
    parts = (text or "").strip().removeprefix("[").removesuffix("]").split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 19 for part in parts):
        raise BadRequest("Name the extent that is known beside wait: expect=[10,20].")
    return tuple(map(int, parts))
