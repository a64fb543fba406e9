"""The driver over HTTP: raw requests."""

from __future__ import annotations

import base64
from typing import Any, Protocol

import numpy as np

from hsparse.format.selections.encoded_selection import decode_first
from hsparse.format.selections.points import Points
from hsparse.format.selections.select_syntax import parse_selection_json
from hsparse.format.structured.region import (
    decode_region,
    decode_vlen_region,
    encode_region,
    encode_vlen_region,
)
from hsparse.model.datatype import parse_type
from hsparse.model.vlen_array import VlenArray
from hsparse.testing.sparse_model import Coord
from tests.support.driver import DatasetSpec, ElementValues, Found, NotDone, Place, Slab, found_elements
from tests.support.rest_client import BINARY, Reply

JSON = {"Content-Type": "application/json"}


class Rest(Protocol):
    """What sends requests about `domain`: see `RestClient`."""

    domain: str | None

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Reply: ...

    async def close(self) -> None: ...


class RestDriver:
    """A `Door` over a client whose user may create `domain`.

    Equal requests travel in different media: points as JSON or as a structured chunk, places as JSON or as
    an encoded selection, in turn.
    """

    def __init__(self, rest: Rest, domain: str) -> None:
        self._rest = rest
        self._domain = domain
        self._kinds: dict[str, DatasetSpec] = {}
        self._turn = 0

    async def open(self) -> RestDriver:
        """Create the domain when it is not there."""
        self._rest.domain = self._domain
        if (await self._rest("GET", "/")).status != 200:
            assert (await self._rest("PUT", "/", {}, headers=JSON)).status == 201
        return self

    def know(self, kinds: dict[str, DatasetSpec]) -> RestDriver:
        """Tell it of datasets that another driver created."""
        self._kinds |= kinds
        return self

    async def create(self, kind: DatasetSpec) -> str:
        properties: dict[str, Any] = {"layout": kind.layout, "filters": kind.filters}
        if kind.fill:
            properties |= {"fillValue": base64.b64encode(kind.fill).decode(), "fillValue_encoding": "base64"}
        body = {"type": kind.type, "shape": list(kind.extent), "maxdims": [0] * len(kind.extent)}
        reply = await self._rest("POST", "/datasets", body | {"creationProperties": properties}, headers=JSON)
        id = str(_checked(reply)["id"])
        self._kinds[id] = kind
        return id

    async def append(self, id: str, slab: Slab, place: Place, values: ElementValues, drop_fill: bool) -> None:
        extent = slab.alone(await self.extent(id))
        await self._put(id, extent, place, values, drop_fill, append=slab.count, append_dim=slab.dim)

    async def write(self, id: str, place: Place, values: ElementValues, drop_fill: bool) -> None:
        await self._put(id, await self.extent(id), place, values, drop_fill)

    async def _put(
        self, id: str, extent: Coord, place: Place, values: ElementValues, drop_fill: bool, **options: Any
    ) -> None:
        options |= {"drop_fill": 1} if drop_fill else {}
        data = values.heap.tobytes() if isinstance(values, VlenArray) else values.tobytes()
        body: Any = data
        if place.points is None:
            options["select"] = place.select
        elif self._kinds[id].sparse and self._other():
            points = Points(extent, np.array(place.points, np.uint64))
            options["sparse"] = 1
            body = self._region(id, points, values)
        else:
            body = {"points": place.points, "value_base64": base64.b64encode(data).decode()}
            options["headers"] = JSON
        _checked(await self._rest("PUT", f"/datasets/{id}/value", body, **options))

    async def erase(self, id: str, place: Place) -> None:
        path = f"/datasets/{id}"
        if place.points is not None:
            reply = await self._rest("POST", f"{path}/erase", {"points": place.points}, headers=JSON)
        else:
            reply = await self._rest("DELETE", f"{path}/value", select=place.select)
        _checked(reply)

    async def resize(self, id: str, extent: Coord) -> None:
        _checked(await self._rest("PUT", f"/datasets/{id}/shape", {"shape": list(extent)}, headers=JSON))

    async def extent(self, id: str) -> Coord:
        return tuple(_checked(await self._rest("GET", f"/datasets/{id}/shape"))["shape"]["dims"])

    async def count(self, id: str, place: Place | None = None) -> int:
        reply = await self._rest("GET", f"/datasets/{id}/defined", count_only=1, **_select(place))
        return int(_checked(reply)["count"])

    async def defined(self, id: str, place: Place | None = None) -> list[Coord]:
        path = f"/datasets/{id}/defined"
        if self._other():
            reply = _checked(await self._rest("GET", path, accept=BINARY, **_select(place)))
            selection, _ = decode_first(memoryview(reply.body))
        else:
            reply = _checked(await self._rest("GET", path, **_select(place)))
            selection = parse_selection_json(reply["selection"], await self.extent(id))
        return [tuple(coord) for coord in selection.coords().tolist()]

    async def read_sparse(self, id: str, place: Place | None = None) -> Found:
        reply = await self._read(id, place, sparse=1)
        datatype = parse_type(self._kinds[id].type)
        if datatype.is_vlen:
            places, elements = decode_vlen_region(reply.body, datatype.element)
            return found_elements(places.coords(), elements)
        selection, values = decode_region(reply.body, datatype.dtype)
        return found_elements(selection.coords(), values)

    async def read_dense(self, id: str, place: Place | None = None) -> bytes:
        return bytes((await self._read(id, place)).body)

    async def close(self) -> None:
        await self._rest.close()

    async def _read(self, id: str, place: Place | None, **options: Any) -> Reply:
        path = f"/datasets/{id}/value"
        if place is None or place.points is None:
            options |= _select(place)
            return _checked(await self._rest("GET", path, accept=BINARY, **options))
        body = {"points": place.points}
        return _checked(await self._rest("POST", path, body, accept=BINARY, headers=JSON, **options))

    def _region(self, id: str, points: Points, values: ElementValues) -> bytes:
        if isinstance(values, VlenArray):
            return encode_vlen_region(points, values, parse_type(self._kinds[id].type).element)
        return encode_region(points, values)

    def _other(self) -> bool:
        self._turn += 1
        return bool(self._turn % 2)


def _select(place: Place | None) -> dict[str, str]:
    return {} if place is None else {"select": place.select}


def _checked(reply: Reply) -> Reply:
    """Return the reply; `NotDone` when the server failed, an assertion when it refused."""
    if reply.status >= 500:
        raise NotDone(f"{reply.status}: {reply.body}")
    assert reply.status in (200, 201), f"{reply.status}: {reply.body}"
    return reply
