"""A data node over HTTP: one path receives messages and returns their replies."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

from aiohttp import ClientPayloadError, web

from hsparse.concurrency.request_trace import RequestTrace, Span, Tracer, begin_trace, end_trace, valid_id
from hsparse.dn.metrics import NodeMetrics
from hsparse.errors import BadRequest, ErrorKind, HsparseError, TooLarge, Unauthenticated
from hsparse.metric import CONTENT_TYPE
from hsparse.wire.codec import MESSAGE_VERSION, check_version, decode_frame, encode_frame
from hsparse.wire.message import DataNode, Failure, GetInfo, message_name
from hsparse.wire.remote_node import (
    FRAME_TYPE,
    PATH,
    REQUEST_HEADER,
    STATUS,
    TIMEOUT_HEADER,
    TOKEN_HEADER,
    USER_HEADER,
    VERSION_HEADER,
)

log = logging.getLogger(__name__)

MAX_FRAME = 1 << 30
"""The most bytes of one message; service nodes send far fewer, because they divide large requests."""


NO_REQUEST = "-"
"""The request id of a message that no client's request has caused."""


def create_node_app(
    node: DataNode,
    node_token: str,
    slow: float = 0.0,
    ready: Callable[[], bool] = lambda: True,
    metrics: NodeMetrics | None = None,
    tracer: Tracer | None = None,
    version: int = MESSAGE_VERSION,
) -> web.Application:
    """Return the application that answers `node`'s messages if they have `node_token`; "" admits no messages.

    `/readyz` answers 503 while the node is not `ready`, because it owns nothing then. `/metrics` returns `metrics`. A
    message that takes at least `slow` seconds is logged with its trace; 0 turns this off. `tracer` begins a span for
    each message. Messages of another `version` are refused.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        trace = RequestTrace(valid_id(request.headers.get(REQUEST_HEADER)) or NO_REQUEST)
        token = begin_trace(trace)  # also identifies log lines about a message that cannot be decoded
        try:
            return await answer_traced(request, trace)
        finally:
            end_trace(token)

    async def answer_traced(request: web.Request, trace: RequestTrace) -> web.StreamResponse:
        try:
            _check_token(request, node_token)
            _check_version(request, version)
            _take_over(request, trace)
            message = decode_frame(await _body(request))
            if tracer is not None:
                trace.span = _begin_span(tracer, request, message, trace)
            with _measuring(message, trace, slow, metrics):
                status, reply = 200, encode_frame(await node.send(message))
        except HsparseError as error:
            status, reply = STATUS[error.kind], encode_frame(Failure.of(error))
        except Exception:
            # The last handler of the process: a defect costs one message its reply and does not stop the node.
            log.exception("a message failed")
            failure = Failure.of(HsparseError("Internal error of a data node; see its log."))
            status, reply = 500, encode_frame(failure)
        return await _respond(request, reply, status)

    async def info(request: web.Request) -> web.Response:
        return web.json_response({"id": (await node.send(GetInfo())).id, "state": "READY"})

    async def alive(request: web.Request) -> web.Response:
        return web.json_response({"state": "ALIVE"})

    async def readiness(request: web.Request) -> web.Response:
        if ready():
            return web.json_response({"state": "READY"})
        return web.json_response({"state": "WAITING"}, status=503)

    async def measured(request: web.Request) -> web.Response:
        text = b"" if metrics is None else metrics.text()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    app = web.Application(client_max_size=MAX_FRAME)
    app.router.add_get("/metrics", measured)
    app.router.add_get("/livez", alive)
    app.router.add_get("/readyz", readiness)
    app.router.add_post(PATH, answer)
    app.router.add_get("/info", info)
    return app


def _begin_span(tracer: Tracer, request: web.Request, message: Any, trace: RequestTrace) -> Span:
    return tracer.begin(message_name(message), request.headers, {"hsparse.request_id": trace.id})


@contextmanager
def _measuring(message: Any, trace: RequestTrace, slow: float, metrics: NodeMetrics | None) -> Iterator[None]:
    """Count a message and its work, end its span, and log the message if it was slow."""
    clock = asyncio.get_running_loop().time
    started = clock()
    outcome = "ok"
    failed: BaseException | None = None
    try:
        yield
    except HsparseError as error:
        outcome, failed = error.kind.value, error
        raise
    except Exception as error:
        failed = error
        outcome = ErrorKind.INTERNAL.value
        # Log the defect here, where the log line gets the request id.
        log.exception("%s failed", message_name(message))
        raise HsparseError("Internal error of a data node; see its log.") from None
    finally:
        seconds = clock() - started
        if metrics is not None:
            metrics.count(message, outcome, seconds, trace)
        if slow and seconds >= slow:
            log.warning("Slow message: %s took %.3f s: %s", message_name(message), seconds, trace.text)
        if trace.span is not None:
            trace.span.end(failed)


def _check_token(request: web.Request, token: str) -> None:
    # hmac compares only ASCII strings, and a header may have other characters, so compare bytes.
    sent = request.headers.get(TOKEN_HEADER, "").encode("utf-8", "surrogateescape")
    if not token or not hmac.compare_digest(sent, token.encode()):
        raise Unauthenticated("The node token does not match; give every node the same HSPARSE_NODE_TOKEN.")


def _check_version(request: web.Request, own: int) -> None:
    """Raise `Outdated` if the sender speaks another version than this node's `own`."""
    version = request.headers.get(VERSION_HEADER, "")
    if not (version.isascii() and version.isdecimal()):
        raise BadRequest(f"{VERSION_HEADER} must be the sender's version of the messages, in decimal digits.")
    check_version(int(version), own)


def _take_over(request: web.Request, trace: RequestTrace) -> None:
    """Set the trace's user (for fair queueing) and deadline from the headers of a message."""
    trace.queue_user = unquote(request.headers.get(USER_HEADER, ""))
    if TIMEOUT_HEADER in request.headers:
        try:
            left = float(request.headers[TIMEOUT_HEADER])
        except ValueError:
            raise BadRequest(f"{TIMEOUT_HEADER} must be a number of seconds.") from None
        trace.deadline = asyncio.get_running_loop().time() + left


async def _body(request: web.Request) -> memoryview:
    length = request.content_length
    if length is None:
        raise BadRequest("A message must have the header Content-Length.")
    if length > MAX_FRAME:
        raise TooLarge(f"A message of {length} bytes is over the limit of {MAX_FRAME}; send smaller ones.")
    data = bytearray()
    with suppress(ConnectionError, ClientPayloadError):
        async for block in request.content.iter_any():
            data += block
    if len(data) != length:
        raise BadRequest(f"The message was cut short: only {len(data)} of {length} bytes arrived.")
    return memoryview(data).toreadonly()


async def _respond(request: web.Request, pieces: list[bytes | memoryview], status: int) -> web.StreamResponse:
    """Send a reply; a sender that has disconnected is no error."""
    response = web.StreamResponse(status=status, headers={"Content-Type": FRAME_TYPE})
    response.content_length = sum(len(piece) for piece in pieces)
    with suppress(ConnectionError):
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        await response.write_eof()
    return response
