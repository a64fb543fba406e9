"""The HTTP server of a service node: aiohttp's, with connections of our own."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from hsparse.sn.http.connection import MAX_HEADER, MAX_LINE, HttpConnection
from hsparse.sn.http.request_gate import GATE_KEY, RequestGate


class _Server(web.Server):
    gate: RequestGate | None = None

    def __call__(self) -> HttpConnection:
        return HttpConnection(self, gate=self.gate, loop=self._loop, **self._kwargs)


class ServerRunner(web.AppRunner):
    """Runs an application with connections of the class `HttpConnection`, and with its gate if it has one."""

    def __init__(self, app: web.Application, **kwargs: Any) -> None:
        limits: dict[str, Any] = {"max_field_size": MAX_HEADER, "max_line_size": MAX_LINE}
        super().__init__(app, access_log=None, **limits, **kwargs)

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        made.__class__ = _Server
        assert isinstance(made, _Server)
        made.gate = self.app.get(GATE_KEY)
        return made
