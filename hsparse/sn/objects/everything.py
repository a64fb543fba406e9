"""Answers about any number of objects, in one request of bounded memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from aiohttp import web

from hsparse.sn.context import Context
from hsparse.sn.json_stream import enclosed, respond_parts
from hsparse.sn.json_text import encode_members
from hsparse.sn.objects.reading import Records
from hsparse.wire.message import Record

AT_ONCE = 64
"""Records encoded in one go."""


async def respond_everything(
    context: Context, name: str, records: Records, show: Callable[[str, Record], Any], around: Record
) -> web.StreamResponse:
    """Answer with `around` and, as `name`, an object with what `show` makes of each record and its name."""
    return await respond_parts(context, enclosed(name, _shown(records, show), around))


async def _shown(records: Records, show: Callable[[str, Record], Any]) -> AsyncGenerator[bytes, None]:
    batches = records.batches()
    async with aclosing(batches):
        async for batch in batches:
            size = 0
            for first in range(0, len(batch), AT_ONCE):
                some = batch[first : first + AT_ONCE]
                members = encode_members({name: show(name, record) for name, record in some})
                size += len(members)
                yield members
            records.pace.weigh(size)
