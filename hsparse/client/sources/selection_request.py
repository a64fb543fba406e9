"""Encode a selection for a request: as a `select` string in the URL, or in the body."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPResponse
from typing import Any

from hsparse.client.connection import BINARY, Body, Connection, Json
from hsparse.client.indexing.places import places_param
from hsparse.client.progress import read_answer
from hsparse.format.selections.orthogonal import as_span
from hsparse.format.selections.points import Boxes, Orthogonal, Points, Selection
from hsparse.format.selections.select_syntax import format_select
from hsparse.format.selections.selection_json import selection_json

LONG_SELECT = 2048
"""The maximum length of a `select` in a URL. A longer `select` is sent in a body, because servers accept about 8000."""
FEW_POINTS = 256


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """A selection in the form of a request: the URL parameter `select`, or the `body`; all if neither is set.

    `places` is the URL parameter with the lower bounds of the coordinates, see `hsparse.client.indexing.places`.
    """

    select: str | None = None
    body: Json | None = None
    places: str | None = None

    @classmethod
    def of(cls, selection: Selection, *, named: bool = False) -> SelectionRequest:
        """Return the request form of a selection; the server answers in the order of the selection.

        A selection of everything is omitted, so that the server answers with all elements of its current extent, unless
        `named`. With lower bounds the selection is always sent, because newly prepended elements would not fit.
        """
        places = places_param(selection.extent)
        if not selection.extent or (selection.is_all and not named and places is None):
            return cls()
        if isinstance(selection, Boxes):
            return cls(body={"selection": selection_json(selection)}, places=places)
        if isinstance(selection, Points) and selection.size > FEW_POINTS:
            return cls(body={"points": selection.coordinates.tolist()}, places=places)
        is_product = (
            isinstance(selection, Orthogonal) and sum(as_span(axis) is None for axis in selection.axes) > 1
        )
        text = format_select(selection, orthogonal=True)
        if is_product:
            return cls(body={"select": text, "orthogonal": True}, places=places)
        return cls(text, None, places) if len(text) <= LONG_SELECT else cls(None, {"select": text}, places)


@contextmanager
def open_values(
    connection: Connection, id: str, selection: Selection, accept: str = BINARY, **params: object
) -> Iterator[HTTPResponse]:
    """Request the values of a selection from `/value`, and yield the answer, which is read in the context."""
    path, select = f"/datasets/{id}/value", None
    body: Body | None
    if isinstance(selection, Points) and selection.size > FEW_POINTS:
        body, params["places"] = selection.coordinates.astype("<u8").tobytes(), places_param(selection.extent)
    else:
        request = SelectionRequest.of(selection)
        body, select, params["places"] = request.body, request.select, request.places
    with connection.stream("POST" if body else "GET", path, accept, body, select=select, **params) as answer:
        yield answer


def read_values(connection: Connection, id: str, selection: Selection, **params: object) -> bytes:
    """Return the bytes of the answer to a request of `/value` for a selection."""

    def read() -> bytes:
        with open_values(connection, id, selection, BINARY, **params) as answer:
            return read_answer(answer)

    return connection.repeated(read)


def count_defined(connection: Connection, id: str, selection: Selection, *, named: bool = True) -> int:
    """Return the number of defined elements in a selection, by one request; `named` is as in `SelectionRequest.of`."""
    request = (
        SelectionRequest.of(selection, named=named) if named or not selection.is_all else SelectionRequest()
    )
    send = partial(_ask, connection.json, f"/datasets/{id}/defined", request, {"count_only": 1})
    return int(connection.repeated(send)["count"])


def read_defined(connection: Connection, id: str, selection: Selection, *, named: bool = True) -> bytes:
    """Return the defined elements as an encoded selection, by one request; `named` is as in `SelectionRequest.of`."""
    request = SelectionRequest.of(selection, named=named)
    found: bytes = connection.repeated(
        partial(_ask, connection.binary, f"/datasets/{id}/defined", request, {})
    )
    return found


def erase_body(selection: Selection, *, named: bool = True) -> Body:
    """Return the body of a request that erases a selection; `named` is as in `SelectionRequest.of`."""
    if not named and selection.is_all:
        return {"select": "[...]"}
    request = SelectionRequest.of(selection, named=True)
    return request.body if request.body is not None else {"select": request.select or "[...]"}


def _ask(send: Any, path: str, request: SelectionRequest, params: dict[str, object]) -> Any:
    if request.body is not None:
        return send("POST", path, request.body, places=request.places, **params)
    return send("GET", path, select=request.select, places=request.places, **params)
