"""Parses the HTTP answers of servers: JSON objects, binary data, and errors, which become exceptions of the client."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from hsparse.client.errors import BY_KIND, GatewayFailed, OtherServer
from hsparse.client.progress import Answer, receive_into
from hsparse.errors import Busy, ErrorKind, HsparseError, RateLimited
from hsparse.format.buffer import Buffer

RECEIVED = range(1 << 16, 1 << 28)
"""Reads of these sizes, in bytes, go into preallocated memory; a larger size in an answer may be wrong."""
SHARED = 1 << 24
ALIGNED = 64
"""The results of reads begin at multiples of this many bytes in memory, so that columns in the results are aligned."""

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
    414: ErrorKind.TOO_LARGE,
    429: ErrorKind.RATE_LIMITED,
    431: ErrorKind.TOO_LARGE,
    503: ErrorKind.BUSY,
    507: ErrorKind.STORE_FULL,
}
"""Maps a status to the error kind of an answer that names no kind; a status of a proxy must also be in `OF_ANY`."""
OF_ANY = {
    401: "sign in as it asks, or give the URL of the server itself",
    403: "ask who runs it for access, or give the URL of the server itself",
    407: "give its credential by proxy= or HTTPS_PROXY",
    413: "raise its limit on the size of a request",
    414: "raise its limit on the length of a URL, or select less at a time",
    429: "ask again later",
    431: "raise its limit on headers, or use a token with fewer groups",
    503: "ask again later",
    507: "make room there",
}
"""Maps each status that means the same from a server and from a proxy to the remedy if a proxy sent the status."""
NO_TLS_REASONS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "PACKET_LENGTH_TOO_LONG",
)
"""The values of `ssl.SSLError.reason` if an answer is not TLS."""
TLS_ALERT = "\x15\x03"
"""The first bytes of an answer in TLS (RFC 8446, 5.1), as `http.client` quotes them in its error."""
NO_RESOURCE = "There is no resource "
"""The first words of a server's error message for a path that is not part of the REST API."""
MISSING = (404, 410)
NO_GATEWAY = (501, 503, 505, 507)
"""The 5xx statuses that are not treated as a proxy's failure to get an answer from the server."""


def json_object(url: str, request: str, data: bytes, status: int = 200) -> dict[str, Any]:
    """Parse the answer of a server to a request and return its JSON object, or `{}` if the answer is null.

    Raises `OtherServer` if the answer is no JSON object, because the server may not have carried out the request.
    """
    try:
        value = json.loads(data)
    except ValueError:
        value = data
    if not isinstance(value, dict | None):
        raise OtherServer(
            f"{url} answered {request} with status {status} but no JSON object: check that the URL is that of an HDF "
            "REST server, and that no proxy answers in its place."
        )
    return value or {}


def receive(answer: Answer, data: memoryview) -> None:
    """Read the next bytes of an answer until `data` is full; raise `IncompleteRead` if the answer ends before."""
    count = receive_into(answer, data)
    if count < len(data):
        raise http.client.IncompleteRead(bytes(data[:count]), len(data) - count)


def taking(answer: Answer) -> Callable[[int], Buffer]:
    """Return a function `take(n)` that reads the next n bytes of an answer; it returns fewer only at the answer's end.

    Long reads go into arrays of `SHARED` bytes, except the first: numpy asks for huge pages for them, which are faster.
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
    """Raise `OtherServer` if the media type of an answer is not `accept`."""
    found = response.headers.get_content_type()
    if found != accept:
        raise OtherServer(
            f"{url} answered {request} with status {response.status} and the type {found} instead of {accept}: check "
            "that the server supports sparse datasets, and that no proxy answers in its place."
        )


def answered_error(url: str, request: str, response: http.client.HTTPResponse, body: bytes) -> HsparseError:
    """Return the exception for an error answer; its kind and message come from the body or, if absent, from the status.

    A 404 of a proxy does not become `NotFound`, because only an HDF REST server knows that an object is missing.
    """
    error = _named_error(body) or _error_of_status(url, request, response, body)
    prefix = urlsplit(url).path.rstrip("/")
    if prefix and error.message.startswith(f"{NO_RESOURCE}{prefix}/"):
        error = OtherServer(
            f"The server of {url} has no resources below {prefix}: omit {prefix} from the URL, or let the proxy remove "
            f"{prefix} from the requests that it forwards."
        )
    error.request_id = response.headers.get("X-Request-ID")
    error.status = response.status
    wait = response.headers.get("Retry-After", "")
    if isinstance(error, RateLimited | Busy) and wait.isascii() and wait.isdigit():
        error.retry_after = float(wait[:9])
    return error


def _named_error(body: bytes) -> HsparseError | None:
    try:
        failure = json.loads(body)["error"]
        return BY_KIND[ErrorKind(failure["kind"])](str(failure["message"]))
    except (ValueError, KeyError, TypeError):
        return None


def _error_of_status(url: str, request: str, response: http.client.HTTPResponse, body: bytes) -> HsparseError:
    status = response.status
    said = f"{request} was answered with {status} {response.reason}"
    if status < 400:
        return _redirected(url, said, response.headers.get("Location", ""))
    if status >= 500 and status not in NO_GATEWAY and not body.startswith(b"500:"):
        return GatewayFailed(f"{said} by a proxy in front of {url}: {_remedy(request)}")
    if status in BY_STATUS and _is_of_rest_server(response, body):
        return BY_KIND[BY_STATUS[status]](f"{said}.")
    elsewhere = f"{said} by a proxy in front of {url}, or by another server in its place"
    if status == 400 and b"header or cookie too large" in body.lower():  # nginx
        status = 431
    if status in OF_ANY:
        error = BY_KIND[BY_STATUS[status]](f"{elsewhere}: {OF_ANY[status]}.")
        error.is_of_proxy = True
        return error
    if status == 400 and b"https" in body.lower():
        return OtherServer(f"{said}: {url} expects TLS; write https:// in the URL.")
    return OtherServer(
        f"{elsewhere}: check that the URL is the URL of the server, with the path that a proxy needs, such as "
        "endpoint='http://host/path'."
    )


def _redirected(url: str, said: str, location: str) -> HsparseError:
    """Return the error for a redirect: the client follows no redirect, because its target would get the credential."""
    try:
        parts = urlsplit(location)
        target = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else parts.path
    except ValueError:
        target = ""
    own = urlsplit(url)
    remedy = "give the URL of the server itself, not of a page to sign in at"
    if target.startswith("https://") and own.scheme == "http" and parts.hostname == own.hostname:
        remedy = f"write {target}{own.path}"
    return OtherServer(f"{said} by {url}, to {target or 'nowhere'}, which is not followed: {remedy}.")


def other_protocol(url: str, error: Exception) -> OtherServer | None:
    """Return the error that says that a server uses TLS but the URL does not, or the reverse; or None if neither."""
    if isinstance(error, ssl.SSLError) and error.reason in NO_TLS_REASONS:
        return OtherServer(f"{url} answers without TLS: write http://, or give the port that uses TLS.")
    if isinstance(error, http.client.BadStatusLine) and str(error).startswith(TLS_ALERT):
        return OtherServer(f"{url} answers with TLS: write https://.")
    return None


def _is_of_rest_server(response: http.client.HTTPResponse, body: bytes) -> bool:
    """Return whether an error without a kind comes from a server of the REST API, such as HSDS, not from a proxy."""
    is_text = body.startswith(f"{response.status}: ".encode())
    return is_text or (
        response.status not in MISSING and response.headers.get_content_type() == "application/json"
    )


def _remedy(request: str) -> str:
    if request.startswith(("GET ", "HEAD ")):
        return "try again later."
    return "it may or may not have been carried out; look for the change before you send it again."
