"""A request's selection in a dataset's extent, made in a thread if it takes long, in memory that is reserved."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from hsparse.concurrency.offload import offload
from hsparse.format.selections.points import Selection
from hsparse.format.selections.select_syntax import COORDINATE_BYTES, paired_bytes
from hsparse.sn.http.stream import hold_until_sent
from hsparse.sn.request import Request
from hsparse.sn.values.request_selection import Resolve, paired_select, select_parameter, selection_work


@asynccontextmanager
async def selected(
    request: Request, extent: tuple[int, ...], body: Mapping[str, Any], resolve: Resolve, work: int = 0
) -> AsyncIterator[Selection]:
    """Have the selection that `resolve` makes of what a body names, or parameters in its form.

    Meanwhile its memory is held, if paired lists name many points. `work` is about how many numbers `resolve` looks
    at, 0 for as many as the body has. `TooLarge` for too many points.
    """
    work = work or selection_work(body)
    nbytes = await offload(work, points_bytes, body, extent)
    async with hold_points(request, nbytes):
        yield await offload(work + nbytes // COORDINATE_BYTES, resolve, extent)


def selected_in_url(request: Request, extent: tuple[int, ...]) -> AbstractAsyncContextManager[Selection]:
    """Have the selection of the `select` parameter, all elements without one."""
    return selected(request, extent, *select_parameter(request))


@asynccontextmanager
async def selected_if_named(request: Request, extent: tuple[int, ...]) -> AsyncIterator[Selection | None]:
    """Have the selection of the `select` parameter, None without one."""
    if not request.arg("select"):
        yield None
    else:
        async with selected_in_url(request, extent) as selection:
            yield selection


@asynccontextmanager
async def hold_points(request: Request, nbytes: int) -> AsyncIterator[None]:
    """Hold memory for the points of paired lists; who needs none waits for nobody."""
    if nbytes:
        async with hold_until_sent(request, request.service.selections, nbytes):
            yield
    else:
        yield


def points_bytes(body: Mapping[str, Any], extent: tuple[int, ...]) -> int:
    """Return the bytes of the points of paired lists in a body, 0 without; `TooLarge` beyond `MAX_PAIRED_BYTES`."""
    select = paired_select(body)
    return 0 if select is None else paired_bytes(select, extent)
