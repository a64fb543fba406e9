"""What answers say: the JSON object, and the error, as the client has them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from hsparse.client.errors import BY_KIND
from hsparse.client.progress import Answer, receive_into
from hsparse.errors import Busy, ErrorKind, HsparseError, RateLimited
from hsparse.format.buffer import Buffer

RECEIVED = range(1 << 16, 1 << 28)
"""Bytes of a piece for which memory is taken before it comes: no more than an answer should say of itself."""
SHARED = 1 << 24
ALIGNED = 64
"""Pieces begin at multiples of it, so that columns in them are aligned."""

BY_STATUS: dict[int, ErrorKind] = {
    400: ErrorKind.BAD_REQUEST,
    401: ErrorKind.UNAUTHENTICATED,
    403: ErrorKind.FORBIDDEN,
    404: ErrorKind.NOT_FOUND,
    407: ErrorKind.UNAUTHENTICATED,
    409: ErrorKind.CONFLICT,
    410: ErrorKind.GONE,
    412: ErrorKind.PRECONDITION_FAILED,
    413: ErrorKind.TOO_LARGE,
    429: ErrorKind.RATE_LIMITED,
    503: ErrorKind.BUSY,
}
"""What a status means when its body is not this server's: a proxy's, or another implementation's."""


def json_object(url: str, request: str, data: bytes) -> dict[str, Any]:
    """Return the JSON object that a server answered a request with, `{}` for an empty answer."""
    try:
        value = json.loads(data or b"{}")
    except ValueError:
        value = data
    if not isinstance(value, dict | None):
        raise HsparseError(
            f"{url} answered {request} with no JSON object; see that it is an HDF REST server."
        )
    return value or {}


def receive(answer: Answer, data: memoryview) -> None:
    """Receive the next bytes of an answer in `data`; `IncompleteRead` if it ends before."""
    count = receive_into(answer, data)
    if count < len(data):
        raise http.client.IncompleteRead(bytes(data[:count]), len(data) - count)


def taking(answer: Answer) -> Callable[[int], Buffer]:
    """Return what takes the next n bytes of an answer, fewer only at the end: long ones stay where they are received.

    All but the first share arrays of `SHARED` bytes, for which numpy asks for huge pages: these come sooner.
    """
    room: memoryview | None = None

    def take(size: int) -> Buffer:
        nonlocal room
        if size not in RECEIVED:
            return answer.read(size)
        if room is None:
            room = np.empty(size, np.uint8).data
        elif len(room) < size:
            room = np.empty(max(size, SHARED), np.uint8).data
        piece, room = room[:size], room[-(-size // ALIGNED) * ALIGNED :]
        receive(answer, piece)
        return piece

    return take


def check_type(url: str, request: str, response: http.client.HTTPResponse, accept: str) -> None:
    """Raise `HsparseError` for an answer of another media type."""
    found = response.headers.get_content_type()
    if found != accept:
        raise HsparseError(
            f"{url} answered {request} as {found}, not {accept}; see that it is a server with sparse datasets."
        )


def answered_error(request: str, response: http.client.HTTPResponse, body: bytes) -> HsparseError:
    """Return the error in an answer: the kind and sentence of its body or, without these, its status."""
    try:
        failure = json.loads(body)["error"]
        error = BY_KIND[ErrorKind(failure["kind"])](str(failure["message"]))
    except (ValueError, KeyError, TypeError):
        kind = BY_STATUS.get(response.status, ErrorKind.INTERNAL)
        error = BY_KIND[kind](f"{request} was answered with {response.status} {response.reason}.")
    error.request_id = response.headers.get("X-Request-ID")
    error.status = response.status
    wait = response.headers.get("Retry-After", "")
    if isinstance(error, RateLimited | Busy) and wait.isascii() and wait.isdigit():
        error.retry_after = float(wait[:9])
    return error
