"""A request's selection in a dataset's extent, made in a thread if it takes long, in memory that is reserved.

Tests: tests/sn/values/test_selected.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.offload import offload
from hsparse.format.selections.select_syntax import (
    COORDINATE_BYTES,
    MAX_PAIRED_BYTES,
    paired_bytes,
    parse_select,
)
from hsparse.format.selections.selection import Selection
from hsparse.sn.context import Context
from hsparse.sn.service import Service
from hsparse.sn.values.request_selection import Resolve, paired_select, selection_work


class SelectionMemory:
    """The memory of a node for the points of paired lists, of which a short request can name many."""

    def __init__(self) -> None:
        self.budget = MemoryBudget(MAX_PAIRED_BYTES)

    @classmethod
    def of(cls, service: Service) -> Self:
        return cls()


@asynccontextmanager
async def selected(
    context: Context, extent: tuple[int, ...], body: Mapping[str, Any], resolve: Resolve, work: int = 0
) -> AsyncIterator[Selection]:
    """Have the selection that `resolve` makes of what a body names, or parameters in its form.

    Meanwhile its memory is held, if paired lists name many points. `work` is about how many numbers `resolve` looks
    at, 0 for as many as the body has. `TooLarge` for too many points.
    """
    work = work or selection_work(body)
    nbytes = await offload(work, points_bytes, body, extent)
    async with context.service.component(SelectionMemory).budget.hold(nbytes):
        yield await offload(work + nbytes // COORDINATE_BYTES, resolve, extent)


def selected_in_url(context: Context, extent: tuple[int, ...]) -> AbstractAsyncContextManager[Selection]:
    """Have the selection of the `select` parameter."""
    select = context.arg("select")
    return selected(context, extent, {"select": select}, lambda extent: parse_select(select, extent))


def points_bytes(body: Mapping[str, Any], extent: tuple[int, ...]) -> int:
    """Return the bytes of the points of paired lists in a body, 0 without; `TooLarge` beyond `MAX_PAIRED_BYTES`."""
    select = paired_select(body)
    return 0 if select is None else paired_bytes(select, extent)
