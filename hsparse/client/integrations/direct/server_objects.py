"""Read stored objects through the server, by few requests and without credentials for the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http.client import HTTPResponse
from struct import Struct

import numpy as np

from hsparse.client.connection import BINARY, Connection
from hsparse.client.errors import Unreachable
from hsparse.client.http.answers import receive
from hsparse.client.integrations.direct.object_reader import (
    ObjectChanged,
    ObjectPlace,
    ObjectReader,
    ObjectUnavailable,
    ReaderClosed,
    Take,
    Use,
    in_threads,
)
from hsparse.client.sources.elements import FEW_ELSEWHERE
from hsparse.errors import Busy, Corrupt, HsparseError, Moved, RateLimited, StoreFailed, Unanswered
from hsparse.format.buffer import Buffer
from hsparse.format.structured.container import MAX_FOOTER

AT_ONCE = 4
"""Concurrent requests. Each has its own thread, which decodes a chunk while the next chunks arrive."""
REQUEST_BYTES = 4 << 20
LEAST_REQUEST = 256 << 10
"""The maximum and minimum bytes of a request. Between them, requests divide the bytes evenly among the threads."""
MOST_CHUNKS = 1000
LENGTH = Struct("<Q")
CHANGED = 2**64 - 1
"""The length that the server sends for an object whose etag differs; no bytes follow."""
PASSING = (Unreachable, Unanswered, Busy, RateLimited, Moved, Corrupt, StoreFailed)
"""Transient errors, after which later requests may succeed."""


class ServerObjects(ObjectReader):
    """Reads the objects of the dataset `id` by `POST /datasets/{id}/chunks/values`."""

    least_part = 1 / 4
    """For reads of this part of their chunks' elements, fetching chunks takes as much CPU time as fetching values.

    The stored chunks then have half as many bytes as the values. If the server has the decoded chunks in its cache, CPU
    time is equal at 1/2.
    """
    least_size = FEW_ELSEWHERE

    def __init__(self, connection: Connection, id: str, at_once: int = AT_ONCE) -> None:
        self.at_once = at_once
        self._connection = connection
        self._path = f"/datasets/{id}/chunks/values"

    def read(self, place: ObjectPlace) -> Buffer:
        found: list[Buffer] = []
        self.read_each([place], lambda _, take: found.append(take()))
        return found[0]

    def read_each(self, places: Sequence[ObjectPlace], use: Use) -> None:
        """See `ObjectReader`; one request reads objects of up to `REQUEST_BYTES`."""
        requests = list(_requests(places, self.at_once))
        in_threads(self.at_once, requests, lambda numbers: self._request(places, numbers, use))

    def close(self) -> None:
        """Do nothing, because the connection belongs to the dataset."""

    def _request(self, places: Sequence[ObjectPlace], numbers: range, use: Use) -> None:
        """Read some objects by one request; if it fails and is repeated, request only the remaining objects."""
        left = numbers

        def read() -> None:
            nonlocal left
            body = _body([places[number] for number in left])
            with self._connection.stream("POST", self._path, BINARY, body) as answer:
                for number in left:
                    take = _take(answer, places[number])
                    left = range(number + 1, numbers.stop)
                    use(number, take)
                if answer.read(1):  # reading to the end lets the connection be reused
                    raise HsparseError("The server answered with more chunks than it was asked for.")

        try:
            self._connection.repeated(read)
        except HsparseError as error:
            if not isinstance(error, PASSING):
                raise ReaderClosed(error.message) from error
            for number in left:
                use(number, _raising(ObjectUnavailable(error.message)))


def _requests(places: Sequence[ObjectPlace], at_once: int) -> Iterator[range]:
    """Divide the objects into requests, and yield for each request the range of the indices of its objects."""
    each = sum(place.size for place in places) // at_once
    room = most = min(max(each, LEAST_REQUEST), REQUEST_BYTES)
    first = 0
    for number, place in enumerate(places):
        if number > first and (place.size > room or number - first == MOST_CHUNKS):
            yield range(first, number)
            first, room = number, most
        room -= place.size
    if places:
        yield range(first, len(places))


def _body(places: Sequence[ObjectPlace]) -> dict[str, object]:
    return {
        "chunks": [place.key.rpartition("/")[2] for place in places],
        "etags": [place.etag for place in places],
        "sizes": [place.size for place in places],
    }


def _take(answer: HTTPResponse, place: ObjectPlace) -> Take:
    """Receive the next object of an answer, and return the function that returns its bytes or raises."""
    (length,) = LENGTH.unpack(_received(answer, LENGTH.size))
    if length == CHANGED:
        return _raising(ObjectChanged(place.key))
    if length > place.size + MAX_FOOTER:
        raise HsparseError(f"The server answered with {length} bytes for the {place.size} of {place.key}.")
    data = _received(answer, length)
    return lambda: data


def _received(answer: HTTPResponse, size: int) -> memoryview:
    data = np.empty(size, np.uint8).data
    receive(answer, data)
    return data


def _raising(error: Exception) -> Take:
    def take() -> Buffer:
        raise error

    return take
