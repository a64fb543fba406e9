"""Resolve the selection of a body, or of the URL parameter `select`.

A selection is resolved in the extent that the dataset has when it is read or written. If resolving takes long, a worker
thread does it. Memory is reserved for the selection's points.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from hsparse.compute import compute
from hsparse.errors import TooLarge
from hsparse.format.selections.points import Selection
from hsparse.format.selections.select_syntax import (
    COORDINATE_BYTES,
    MAX_PAIRED_BYTES,
    listed_bytes,
    paired_bytes,
    parse_select,
)
from hsparse.sn.http.stream import hold_until_sent
from hsparse.sn.request import Request
from hsparse.sn.values.request_selection import NUMBER_BYTES, SELECTION_WORK, Resolve

T = TypeVar("T")


def select_parameter(request: Request) -> tuple[dict[str, Any], Resolve]:
    """Return a pair: the `select` parameter as in a body (None: all elements), and the function that resolves it."""
    select = request.arg("select")
    return {"select": select}, lambda extent: parse_select(select, extent)


def names_pairs(body: Mapping[str, Any]) -> bool:
    """Return whether a body's `select` has two or more lists of indices, which are paired to points."""
    select = body.get("select")
    if isinstance(select, str):
        has_two = select.count("[") > 2  # the first bracket opens the selection, not a list
    else:
        has_two = isinstance(select, list) and sum([isinstance(item, list) for item in select]) > 1
    return has_two and body.get("orthogonal") is not True


@asynccontextmanager
async def resolved(
    request: Request,
    named: Sequence[tuple[Mapping[str, Any], tuple[int, ...]]],
    resolve: Callable[[], T],
) -> AsyncIterator[T]:
    """Yield `resolve()`; a worker thread computes it if the bodies are long. `named` has pairs of body and extent.

    Memory is held for the points of paired lists; raises `TooLarge` if they have more than `MAX_PAIRED_BYTES`. For a
    write, `resolve` also converts the values of the body.
    """
    nbytes = 0
    if any(names_pairs(body) for body, _ in named):
        nbytes = sum([points_bytes(*one) for one in named])
    if nbytes > MAX_PAIRED_BYTES:
        raise TooLarge(
            f"The paired lists of the reads have points of more than {MAX_PAIRED_BYTES} bytes: read less at a time."
        )
    async with hold_until_sent(request, request.service.selections, nbytes) if nbytes else nullcontext():
        work = request.http.content.total_bytes // NUMBER_BYTES + SELECTION_WORK * len(named)
        yield await compute(work + nbytes // COORDINATE_BYTES, resolve)


def selected(
    request: Request,
    extent: tuple[int, ...],
    body: Mapping[str, Any],
    resolve: Callable[[tuple[int, ...]], T],
) -> AbstractAsyncContextManager[T]:
    """Return a context manager that yields `resolve(extent)` with memory held for the points, see `resolved`."""
    return resolved(request, [(body, extent)], partial(resolve, extent))


def selected_in_url(request: Request, extent: tuple[int, ...]) -> AbstractAsyncContextManager[Selection]:
    """Return a context manager that yields the selection of the `select` parameter, by default all elements."""
    return selected(request, extent, *select_parameter(request))


@asynccontextmanager
async def selected_if_named(request: Request, extent: tuple[int, ...]) -> AsyncIterator[Selection | None]:
    """Yield the selection of the `select` parameter, or None if the parameter is missing."""
    if not request.arg("select"):
        yield None
    else:
        async with selected_in_url(request, extent) as selection:
            yield selection


def points_bytes(body: Mapping[str, Any], extent: tuple[int, ...]) -> int:
    """Return the bytes of the points of a body's paired lists, or 0 without paired lists; may raise `TooLarge`."""
    if not names_pairs(body):
        return 0
    select = body["select"]
    if isinstance(select, str):
        return paired_bytes(select, extent)
    listed = next(len(item) for item in select if isinstance(item, list))
    return listed_bytes(["[]" if isinstance(item, list) else str(item) for item in select], listed, extent)
