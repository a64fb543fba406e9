"""The driver over HTTP: raw requests."""

from __future__ import annotations

import base64
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.format.selections.encoded_selection import decode_first
from hsparse.format.selections.points import Points
from hsparse.format.selections.selection_json import parse_selection_json
from hsparse.format.selections.signed_extent import SignedExtent
from hsparse.format.structured.region import (
    decode_region,
    decode_vlen_region,
    encode_region,
    encode_vlen_region,
)
from hsparse.model.datatype import parse_type
from hsparse.model.vlen_array import VlenArray
from tests.support.driver import DatasetSpec, ElementValues, Found, NotDone, Place, Slab, found_elements
from tests.support.rest_client import BINARY, Reply
from tests.testing.sparse_model import Bounds, Coord

JSON = {"Content-Type": "application/json"}


class Rest(Protocol):
    """What sends requests about `domain`: see `RestClient`."""

    domain: str | None

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Reply: ...

    async def close(self) -> None: ...


class RestDriver:
    """A `Door` over a client whose user may create `domain`.

    Equal requests travel in different media: points as JSON or as a structured chunk, places as JSON or as
    an encoded selection, in turn. What is encoded counts from the lower bound, all else in places.
    """

    def __init__(self, rest: Rest, domain: str) -> None:
        self.rest = rest
        self._domain = domain
        self._kinds: dict[str, DatasetSpec] = {}
        self._turn = 0

    async def open(self) -> RestDriver:
        """Create the domain when it is not there."""
        self.rest.domain = self._domain
        if (await self.rest("GET", "/")).status != 200:
            assert (await self.rest("PUT", "/", {}, headers=JSON)).status == 201
        return self

    def know(self, kinds: dict[str, DatasetSpec]) -> RestDriver:
        """Tell it of datasets that another driver created."""
        self._kinds |= kinds
        return self

    async def create(self, kind: DatasetSpec) -> str:
        properties: dict[str, Any] = {"layout": kind.layout, "filters": kind.filters}
        if kind.fill:
            properties |= {"fillValue": base64.b64encode(kind.fill).decode(), "fillValue_encoding": "base64"}
        body = {"type": kind.type, **kind.dataspace, "creationProperties": properties}
        reply = await self.rest("POST", "/datasets", body, headers=JSON)
        id = str(checked(reply)["id"])
        self._kinds[id] = kind
        return id

    async def append(self, id: str, slab: Slab, place: Place, values: ElementValues, drop_fill: bool) -> None:
        bounds = slab.alone(await self.bounds(id))
        options = {"append": slab.count, "append_dim": slab.dim, "append_side": _side(slab)}
        await self._put(id, bounds, place, values, drop_fill, **options)

    async def write(self, id: str, place: Place, values: ElementValues, drop_fill: bool) -> None:
        await self._put(id, await self.bounds(id), place, values, drop_fill)

    async def _put(
        self, id: str, bounds: Bounds, place: Place, values: ElementValues, drop_fill: bool, **options: Any
    ) -> None:
        options |= {"drop_fill": 1} if drop_fill else {}
        data = values.heap.tobytes() if isinstance(values, VlenArray) else values.tobytes()
        body: Any = data
        if place.points is None:
            options["select"] = place.select
        elif self._kinds[id].sparse and self._other():
            lower, extent = _corner(bounds), _lengths(bounds)
            points = Points(extent, (np.array(place.points, np.int64) - lower).astype(np.uint64))
            options["sparse"] = 1
            body = self._region(id, points, values)
        else:
            body = {"points": place.points, "value_base64": base64.b64encode(data).decode()}
            options["headers"] = JSON
        await self._ask("PUT", id, "/value", body, **options)

    async def erase(self, id: str, place: Place) -> None:
        if place.points is not None:
            await self._ask("POST", id, "/erase", {"points": place.points}, headers=JSON)
        else:
            await self._ask("DELETE", id, "/value", select=place.select)

    async def resize(self, id: str, bounds: Bounds) -> None:
        before = await self.bounds(id)
        body: dict[str, Any] = {"shape": _lengths(bounds), "lower": [low for low, _ in bounds]}
        if [low for low, _ in before] == body["lower"]:
            del body["lower"]
        elif [high for _, high in before] == [high for _, high in bounds]:
            del body["shape"]
        await self._ask("PUT", id, "/shape", body, headers=JSON)

    async def extend(self, id: str, slab: Slab) -> None:
        body = {"extend": slab.count, "dim": slab.dim, "side": _side(slab)}
        await self._ask("PUT", id, "/shape", body, headers=JSON)

    async def bounds(self, id: str) -> Bounds:
        shape = (await self._ask("GET", id, "/shape"))["shape"]
        lower = shape.get("lower") or [0] * len(shape["dims"])
        return tuple((low, low + n) for low, n in zip(lower, shape["dims"], strict=True))

    async def count(self, id: str, place: Place | None = None) -> int:
        return int((await self._ask("GET", id, "/defined", count_only=1, **_select(place)))["count"])

    async def defined(self, id: str, place: Place | None = None) -> list[Coord]:
        bounds = await self.bounds(id)
        if self._other():
            reply = await self._ask("GET", id, "/defined", accept=BINARY, **_select(place))
            selection, _ = decode_first(memoryview(reply.body))
        else:
            reply = await self._ask("GET", id, "/defined", **_select(place))
            lower, zero = [low for low, _ in bounds], [0] * len(bounds)
            extent = SignedExtent.of(_lengths(bounds), lower, zero, in_places=True)
            selection = parse_selection_json(reply["selection"], extent)
        return [tuple(coord) for coord in (selection.coords().astype(np.int64) + _corner(bounds)).tolist()]

    async def read_sparse(self, id: str, place: Place | None = None) -> Found:
        lower, reply = _corner(await self.bounds(id)), await self._read(id, place, sparse=1)
        datatype = parse_type(self._kinds[id].type)
        if datatype.is_vlen:
            places, elements = decode_vlen_region(reply.body, datatype.element)
            return found_elements(places.coords().astype(np.int64) + lower, elements)
        selection, values = decode_region(reply.body, datatype.dtype)
        return found_elements(selection.coords().astype(np.int64) + lower, values)

    async def read_dense(self, id: str, place: Place | None = None) -> bytes:
        return bytes((await self._read(id, place)).body)

    async def close(self) -> None:
        await self.rest.close()

    async def _read(self, id: str, place: Place | None, **options: Any) -> Reply:
        if place is None or place.points is None:
            return await self._ask("GET", id, "/value", accept=BINARY, **_select(place), **options)
        body = {"points": place.points}
        return await self._ask("POST", id, "/value", body, accept=BINARY, headers=JSON, **options)

    async def _ask(self, method: str, id: str, path: str, body: Any = None, **options: Any) -> Reply:
        return checked(await self.rest(method, f"/datasets/{id}{path}", body, places="signed", **options))

    def _region(self, id: str, points: Points, values: ElementValues) -> bytes:
        if isinstance(values, VlenArray):
            return encode_vlen_region(points, values, parse_type(self._kinds[id].type).element)
        return encode_region(points, values)

    def _other(self) -> bool:
        self._turn += 1
        return bool(self._turn % 2)


def _lengths(bounds: Bounds) -> Coord:
    return tuple(high - low for low, high in bounds)


def _corner(bounds: Bounds) -> NDArray[np.int64]:
    return np.array([low for low, _ in bounds], np.int64)


def _side(slab: Slab) -> str:
    return "lower" if slab.below else "upper"


def _select(place: Place | None) -> dict[str, str]:
    return {} if place is None else {"select": place.select}


def checked(reply: Reply) -> Reply:
    """Return the reply; `NotDone` when the server failed, an assertion when it refused."""
    if reply.status >= 500:
        raise NotDone(f"{reply.status}: {reply.body}")
    assert reply.status in (200, 201), f"{reply.status}: {reply.body}"
    return reply
