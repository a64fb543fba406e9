"""Answers about any number of objects, in one request of bounded memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from aiohttp import web

from hsparse.sn.context import Context
from hsparse.sn.json_stream import enclosed, encode_floats, respond_parts
from hsparse.sn.reading import Records
from hsparse.wire.message import Record


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
            for name, record in batch:
                item = encode_floats(name) + b":" + encode_floats(show(name, record))
                size += len(item)
                yield item
            records.pace.weigh(size)
