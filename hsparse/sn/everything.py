"""What is asked of a whole domain, or of all that is below a group, in one request of bounded memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from aiohttp import web

from hsparse.sn.context import Context
from hsparse.sn.crawl import Crawl
from hsparse.sn.json_stream import encode_floats, members, respond_parts
from hsparse.wire.message import Record


async def respond_everything(
    context: Context,
    starts: Sequence[str],
    name: str,
    show: Callable[[Record], Any],
    around: Record,
    *,
    leaves: bool = True,
) -> web.StreamResponse:
    """Answer with `around` and, as `name`, an object with what `show` makes of each object, by its id.

    They are `starts` and what is below these groups; datasets and committed types too with `leaves`.
    """

    async def parts() -> AsyncGenerator[bytes, None]:
        yield b"{"
        async for part in members(name, _shown(context, starts, show, leaves)):
            yield part
        rest = encode_floats(around)[1:]
        yield rest if rest == b"}" else b"," + rest

    return await respond_parts(context, parts())


async def _shown(
    context: Context, starts: Sequence[str], show: Callable[[Record], Any], leaves: bool
) -> AsyncGenerator[bytes, None]:
    crawl = Crawl(context.service.owners, *starts, leaves=leaves)
    batches = crawl.records()
    async with aclosing(batches):
        async for batch in batches:
            size = 0
            for record in batch:
                item = encode_floats(record["id"]) + b":" + encode_floats(show(record))
                size += len(item)
                yield item
            crawl.weigh(size)
