"""Handlers of datasets and their extent; for their values see `hsparse.sn.values.handlers`.

Waiting for a dataset to grow: a long poll, for pages and programs that follow a measurement.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context as Variables
from dataclasses import replace
from typing import Any

from aiohttp import web

from hsparse.errors import BadRequest, Busy, Conflict, Moved, Unsupported
from hsparse.format.chunk_spec import ChunkSpec, chunk_spec, statistic_columns
from hsparse.format.filters.filters_json import filters_to_json
from hsparse.format.selections.select_syntax import parse_select
from hsparse.model.dataset_state import extents_of_change, is_trimmed, keyed_token, lowers_of_change
from hsparse.model.dataspace import (
    Shape,
    dims_of,
    is_extensible,
    lower_of,
    max_dims_of,
    parse_bounds,
    parse_extent,
    parse_lower,
    parse_shape,
    shape_json,
)
from hsparse.model.datatype import Datatype, type_json
from hsparse.model.initial_values import (
    AS_TEXT,
    check_initial_size,
    is_named_float,
    parse_fill_value,
    parse_initial_bytes,
    parse_initial_value,
)
from hsparse.model.json_values import Values
from hsparse.model.layout import STATISTICS, VIRTUAL, class_elsewhere, parse_layout
from hsparse.model.short_text import short_repr
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.http.challenge import idempotency_key
from hsparse.sn.http.request import parsed_value, read_json_object, read_type
from hsparse.sn.http.response import hrefs
from hsparse.sn.objects.create import post_objects
from hsparse.sn.records.dataset import ATTEMPTS, Dataset, change_extent, finish_trim
from hsparse.sn.request import OBJECT_BYTES, Request, respond
from hsparse.sn.service import Service
from hsparse.sn.values.append import parse_side
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.file_data import file_data, other_data
from hsparse.wire.message import Record
from hsparse.wire.record_message import AbandonAppends, SetExtent

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
    """Return the dataset's record; with `wait` only once its bounds are not those expected, or after these seconds.

    `BadRequest` for too long a wait, or one without `expect`.
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
                record = await looks.next(id)
    return record


def _known_bounds(request: Request) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the extent that a request knows, and the lower bounds, which are empty if it names none."""
    extent, lower = request.arg("expect"), request.arg("expect_lower")
    known = _integers(extent, "[0-9]{1,19}", "the extent that is known beside wait: expect=[10,20]")
    if lower is None:
        return known, ()
    return known, _integers(lower, "-?[0-9]{1,19}", "the lower bounds that are known: expect_lower=[-5,0]")


def _integers(text: str | None, pattern: str, what: str) -> tuple[int, ...]:
    parts = (text or "").strip().removeprefix("[").removesuffix("]").split(",")
    if not all(re.fullmatch(pattern, part) for part in parts):
        raise BadRequest(f"Name {what}.")
    return tuple(map(int, parts))


def _has_bounds(shape: Shape, extent: tuple[int, ...], lower: tuple[int, ...]) -> bool:
    """Say whether a dataspace has this extent and, unless they are empty, these lower bounds."""
    return dims_of(shape) == extent and lower in ((), lower_of(shape) or (0,) * len(extent))


async def get_dataset_type(request: Request) -> web.StreamResponse:
    """Answer with a dataset's type."""
    record = await request.record("datasets")
    own = f"/datasets/{record['id']}"
    links = hrefs(request, self=f"{own}/type", owner=own, root=f"/groups/{record['root']}")
    return respond({"type": type_json(record["type"]), "hrefs": links})


async def post_datasets(request: Request) -> web.StreamResponse:
    """Create one dataset or many; a `value`, or `value_base64`, is written before the dataset is linked."""
    return await post_objects(request, "datasets", _fill_dataset)


async def _fill_dataset(
    request: Request, record: Record, body: Record
) -> Callable[[], Awaitable[None]] | None:
    datatype = await read_type(request, body)
    shape = parse_bounds(body, parse_shape(body))
    properties = record["creationProperties"]
    filters = properties.get("filters") or []
    if not isinstance(filters, list):
        raise BadRequest("filters must be a list.")
    if filters:
        properties["filters"] = filters_to_json(filters)
    # Clients of the 0.9 dialect send the layout outside the creation properties.
    asked = properties.pop("layout", None) or body.get("layout")
    files = file_data()
    locator = files.take_locator(properties, request.service.buckets) if files else None
    settings = request.service.settings
    layout = parse_layout(
        asked,
        shape,
        datatype,
        filtered=bool(filters),
        min_bytes=settings.min_chunk_size,
        max_bytes=settings.max_chunk_size,
    )
    layout.check_places(request.service.buckets)
    fill = parse_fill_value(properties, datatype)
    rest = {key: value for key, value in properties.items() if key not in ("fillValue", "fillValue_encoding")}
    record |= {"type": datatype.item, "shape": shape} | layout.fields(rest | fill, settings.bucket)
    record |= {AS_TEXT: True} if is_named_float(properties.get("fillValue")) else {}
    elsewhere = class_elsewhere(record)
    if layout.grid:
        spec = chunk_spec(record)  # raises for unknown filters and initializers
        record |= {STATISTICS: True} if _wants_statistics(spec, properties) and not elsewhere else {}
        if spec.arange and lower_of(shape):
            raise Unsupported("A dataset with an initializer counts from 0: leave out lower and minlower.")
    if elsewhere:
        await other_data(elsewhere).check(request, record)
    array = await _initial_values(request, body, shape, datatype, locator)
    if array is None:
        return None
    if elsewhere:
        raise BadRequest(
            "A dataset whose data is in a file or in other datasets has no values of its own; leave them out."
        )
    dataset = Dataset.of(record)

    async def write() -> None:
        selection = parse_select(None, dataset.extent)
        values = dataset.arrays.stored(array, selection.shape)
        await ChunkFanout(request.service.owners, dataset).write(selection, values)

    return write if array.size else None


def _wants_statistics(spec: ChunkSpec, properties: Record) -> bool:
    """Say whether chunks are stored with statistics: sparse ones of numbers are, unless the request says no."""
    wanted = properties.get(STATISTICS, True)
    if not isinstance(wanted, bool):
        raise BadRequest(f"{STATISTICS} must be true or false.")
    is_fixed = spec.sparse and not spec.datatype.is_vlen
    return wanted and is_fixed and bool(statistic_columns(spec.dtype))


async def _initial_values(
    request: Request, body: Record, shape: Shape, datatype: Datatype, locator: Any
) -> Values | None:
    """Return the values of a new dataset from the body, or from the file that a locator names; None without any."""
    value, text = body.get("value"), body.get("value_base64")
    if (value is not None) + (text is not None) + (locator is not None) > 1:
        raise BadRequest(
            "Give value or value_base64 or the initializer of a chunk table, not several of them."
        )
    if locator is not None:
        check_initial_size(shape, datatype)
        files = file_data()
        assert files is not None  # who has taken the locator
        return await files.located(request, locator, shape, datatype)
    if value is None and text is None:
        return None
    parse = parse_initial_value if text is None else parse_initial_bytes
    given = {"value": value if text is None else text}
    return await parsed_value(given, datatype, lambda given, kind: parse(given["value"], shape, kind))


async def get_shape(request: Request) -> web.StreamResponse:
    """Answer with a dataset's dataspace; with `wait`, once it is another one."""
    record = await changed_record(request)
    own = f"/datasets/{record['id']}"
    answer = {
        "shape": shape_json(record["shape"]),
        "created": record["created"],
        "lastModified": record["lastModified"],
    }
    links = hrefs(request, self=f"{own}/shape", owner=own, root=f"/groups/{record['root']}")
    return respond(answer | {"hrefs": links})


async def put_shape(request: Request) -> web.StreamResponse:
    """Set a dataset's extent; if one dimension grew, the answer has a selection of the new elements.

    Elements outside a smaller extent are erased before the answer.
    """
    record = await request.record("datasets")
    key = idempotency_key(request.http, request.principal.name)
    token = keyed_token(key, "" if key else request.service.clock.token(8).hex())
    body = await read_json_object(request)
    extents = extents_of_change(record, token)
    if extents is None:  # else it may be beyond what the dataset can have, as it was made
        change = replace(_extent_change(record, body), token=token)
        if _grows(record, change):
            await request.make_room(OBJECT_BYTES)
        record = await _set_extent(request.service.owners, record, change)
        extents = extents_of_change(record, token)
    lowers = lowers_of_change(record, token)
    if extents is not None and key:
        _require_same(body, *extents, *lowers)
    in_places = request.arg("places") is not None
    selection = growth_selection(*extents, *lowers, in_places=in_places) if extents else None
    return respond({"selection": selection} if selection else {}, status=201)


def _grows(record: Record, change: SetExtent) -> bool:
    """Say whether a change of an extent makes a dimension longer."""
    shape = record["shape"]
    if change.extend_dim >= 0 or any(map(int.__lt__, change.lower, lower_of(shape))):
        return True
    return any(map(int.__gt__, change.dims, shape["dims"]))


def _require_same(
    body: Record,
    before: tuple[int, ...],
    after: tuple[int, ...],
    old: tuple[int, ...] = (),
    lower: tuple[int, ...] = (),
) -> None:
    """Raise `BadRequest` unless the change of an extent, and of lower bounds, is what a body asks for."""
    if "extend" in body:
        dim = body.get("extend_dim", body.get("dim", 0))
        same = [new - old for old, new in zip(before, after, strict=True)] == [
            body["extend"] if place == dim else 0 for place in range(len(before))
        ]
        same &= (old != lower) == (body.get("side") == "lower")
    else:
        same = "shape" not in body or parse_extent(body["shape"]) == after
        same &= lower == (parse_lower(body["lower"], len(lower)) if "lower" in body else old)
    if not same:
        raise BadRequest(
            f"The Idempotency-Key was used to change the extent from {list(before)} to {list(after)}: give each "
            "request a key of its own."
        )


async def _set_extent(owners: Owners, record: Record, change: SetExtent) -> Record:
    """Return the changed record; what is being appended meanwhile begins again, at the end of the new extent."""
    for _ in range(ATTEMPTS):
        if is_trimmed(record):
            await finish_trim(owners, record)  # after an interrupted shrink
        try:
            return await change_extent(owners, change)
        except Moved:
            await change_extent(owners, AbandonAppends(change.id))
            record = await owners.record(change.id)
    raise Busy(f"{change.id} is appended to all the time; try again.")


def growth_selection(
    before: tuple[int, ...],
    after: tuple[int, ...],
    old: tuple[int, ...] = (),
    lower: tuple[int, ...] = (),
    *,
    in_places: bool = False,
) -> str | None:
    """Return the selection of the new elements if exactly one dimension grew at one end, and none shrank, else None."""
    changed = [dim for dim, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
    moved = [dim for dim, (was, now) in enumerate(zip(old, lower, strict=True)) if was != now]
    if len(changed) != 1 or after[changed[0]] < before[changed[0]] or moved not in ([], changed):
        return None
    (dim,) = changed
    count = after[dim] - before[dim]
    if moved and old[dim] - lower[dim] != count:
        return None
    first = 0 if moved else before[dim]
    first += lower[dim] if lower and in_places else 0
    axes = [":"] * len(after)
    axes[dim] = f"{first}:{first + count}"
    return f"[{','.join(axes)}]"


def _extent_change(record: Record, body: Record) -> SetExtent:
    """Return the change in a body: `shape`, `lower`, or `extend` and `extend_dim`; check rank and limits."""
    shape, id, elsewhere = record["shape"], record["id"], class_elsewhere(record)
    if elsewhere == VIRTUAL:
        raise BadRequest(
            f"{id} is virtual: its extent is that of its mappings and of their sources; extend these."
        )
    if not is_extensible(shape):
        raise BadRequest(f"{id} is not extensible: it was created without maxdims.")
    if ("shape" in body or "lower" in body) == ("extend" in body):
        raise BadRequest(
            "The body must have either shape or extend, or lower if the dataset has a lower bound."
        )
    limits = max_dims_of(shape)
    expect = parse_extent(body["expect"]) if "expect" in body else None
    lower, known = (
        parse_lower(body[key], len(limits), key) if key in body else () for key in ("lower", "expect_lower")
    )
    if "extend" in body:
        return replace(_extension(id, body, len(limits), expect), expect_lower=known)
    if "shape" not in body:
        return SetExtent(id, (), expect=expect, lower=lower, expect_lower=known)
    dims = parse_extent(body["shape"])
    if len(dims) != len(limits):
        raise BadRequest(f"{id} has {len(limits)} dimensions, not {len(dims)}.")
    for dim, (extent, limit) in enumerate(zip(dims, limits, strict=True)):
        if limit is not None and extent > limit:
            raise Conflict(f"Dimension {dim} of {id} can have at most {limit} elements, not {extent}.")
    if elsewhere and any(new < old for new, old in zip(dims, shape["dims"], strict=True)):
        raise BadRequest(f"{id} cannot shrink: its data stays in a file, from which nothing is erased.")
    return SetExtent(id, dims, expect=expect, lower=lower, expect_lower=known)


def _extension(id: str, body: Record, rank: int, expect: tuple[int, ...] | None) -> SetExtent:
    by: Any = body["extend"]
    dim: Any = body.get("extend_dim", body.get("dim", 0))
    if not _is_int(by) or by <= 0:
        raise BadRequest(f"extend must be a positive integer, not {short_repr(by)}.")
    if not _is_int(dim) or not 0 <= dim < rank:
        raise BadRequest(f"extend_dim must be a dimension of {id}, 0 to {rank - 1}, not {short_repr(dim)}.")
    return SetExtent(id, (by,), dim, expect, below=parse_side(body.get("side"), "side"))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
