"""A connection with a gate before the parser, at which requests wait for their turns or are refused."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from hsparse.concurrency.admission import Place, PlaceWait
from hsparse.errors import Busy
from hsparse.sn.http.connection import Connection
from hsparse.sn.http.request_gate import RequestGate
from hsparse.sn.http.request_head import GatePass, RequestHead, read_head

MOST_KEPT = 64 * 1024
"""Bytes of a request that waits for its turn, after which no more are read."""


class GatedConnection(Connection):
    """A connection whose requests pass `gate`, without one a plain connection.

    A request that comes while none is answered waits for its turn as the bytes that were received. For that, the
    connection knows where each request ends: it is framed. After one of which its head does not tell (it came in pieces
    or in chunks, or more came behind it), requests are parsed when they come, and wait for their turns then.
    """

    __slots__ = ("_answering", "_framed", "_gate", "_head", "_held", "_left", "_waiting", "gate_pass")

    def __init__(self, *args: Any, gate: RequestGate | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._gate = gate
        self._framed = gate is not None
        self._answering = False
        self._left = 0
        """Bytes that are missing of the last request."""
        self._head: RequestHead | None = None
        self._held = b""
        self._waiting: PlaceWait | None = None
        self.gate_pass: GatePass | None = None
        """That of the request that is answered or waits."""

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client; aiohttp passes none to go on with what it has."""
        if self._waiting is not None and data:
            self._hold(data)
        elif not self._framed or not data:
            super().data_received(data)
        elif self._answering or self._left:
            self._count(data)
            super().data_received(data)
        else:
            self._begin(data)

    def _count(self, data: bytes) -> None:
        """Count bytes that belong to the last request."""
        self._left -= len(data)
        self._framed &= self._left >= 0

    def _hold(self, data: bytes) -> None:
        """Keep more bytes of a request that waits."""
        self._count(data)
        self._held += data
        if len(self._held) > MOST_KEPT and (transport := self._open_transport()) is not None:
            transport.pause_reading()

    def _begin(self, data: bytes) -> None:
        """Ask for the turn of a request that begins."""
        assert self._gate is not None
        head = read_head(data)
        if head is None or (left := head.size + head.length - len(data)) < 0:
            self._framed = False
            super().data_received(data)
            return
        now = asyncio.get_running_loop().time()
        self._head, self._held, self._left, self.gate_pass = head, data, left, GatePass(now)
        if self._gate.is_open(head):
            self._parse()
            return
        try:
            answer = self._gate.ask(head, str(self.peername[0]) if self.peername else None)
        except Busy as error:
            self._refuse(error)
            return
        if isinstance(answer, Place):
            self.gate_pass.place = answer
            self._parse()
        else:
            self.waits = False
            self._waiting = answer
            answer.place.add_done_callback(self._end_wait)

    def _end_wait(self, place: asyncio.Future[Place]) -> None:
        """Go on with the request that has waited, unless the connection was closed meanwhile."""
        if self._waiting is None or self.gate_pass is None:
            return
        self._waiting = None
        self.gate_pass.waited = asyncio.get_running_loop().time() - self.gate_pass.arrived
        error = place.exception()
        if isinstance(error, Busy):
            self._refuse(error)
        else:
            self.gate_pass.place = place.result()
            self._parse()

    def _refuse(self, error: Busy) -> None:
        """Answer at once if nothing more of the request is to come, else have it parsed and then refused."""
        head, given = self._head, self.gate_pass
        assert head is not None
        assert given is not None
        assert self._gate is not None
        transport, plain = self._open_transport(), head.plain and self._gate.keeps_open()
        if transport is None or not self._framed or self._left or not plain or self.writing_paused:
            given.error = error
            self._parse()
            return
        self._head, self._held, self.gate_pass = None, b"", None
        self.wait_for_client()
        transport.write(self._gate.refuse(head, error, given.waited))

    def _open_transport(self) -> asyncio.Transport | None:
        return None if self.transport is None or self.transport.is_closing() else self.transport

    def _parse(self) -> None:
        """Have aiohttp parse and answer what was held."""
        data, self._head, self._held = self._held, None, b""
        self._answering = True
        if len(data) > MOST_KEPT and (transport := self._open_transport()) is not None:
            transport.resume_reading()
        super().data_received(data)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer; the turn ends with it, whatever it was."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        given, self.gate_pass, self._answering = self.gate_pass, None, False
        if given is not None and given.place is not None:
            given.place.leave()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give up the turn: nobody waits for the answer."""
        if self._waiting is not None:
            self._waiting.withdraw()
            self._waiting = None
        self._held = b""
        self._end_turn()
        super().connection_lost(exc)

    def close(self) -> None:
        """Take no more requests; one that waits is parsed now, since aiohttp answers what it knows of."""
        self._framed = False
        if self._waiting is not None:
            self._waiting.withdraw()
            self._waiting = None
            self._parse()
        super().close()
