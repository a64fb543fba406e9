"""A store whose server runs in the process of its client; they are connected by socket pairs instead of a port.

The server is that of `hsparse serve`, so that reads, writes and durability have one implementation. The client imports
this module by name when the client opens a directory (`hsparse.client.embedded`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from hsparse.cli.embedded_server import embedded_app, in_thread
from hsparse.config import SECTIONS, Settings
from hsparse.errors import Misconfigured
from hsparse.sn.server import AppRunner
from hsparse.storage.filesystem.served_root import ServedAlready
from hsparse.storage.store_settings import StoreSettings

COMMAND = "an embedded store"


class EmbeddedStore:
    """The store in the directory `root`, which is created if missing. Any thread may use the store until it is closed.

    Raises `Misconfigured` if a process already serves the directory. The environment does not configure the
    store: writes are durable, and every request acts as the user `admin`.
    """

    def __init__(self, root: Path) -> None:
        self._stack = ExitStack()
        settings = replace(_default_settings(), store=StoreSettings(root=root))
        try:
            self._server, self._loop = self._stack.enter_context(in_thread(lambda: _serve(settings)))
        except ServedAlready as error:
            raise Misconfigured(
                f"The directory {str(root)!r} is served by process {error.pid} on {error.host} ({error.command}). "
                "Only one process can open a directory: run `hsparse serve --root` on the directory, and open the "
                "server's URL in all processes."
            ) from error

    def connect(self) -> socket.socket:
        """Return a socket that is connected to the server."""
        mine, theirs = socket.socketpair()
        try:
            theirs.setblocking(False)
            accept = self._loop.connect_accepted_socket(self._server, theirs)
            asyncio.run_coroutine_threadsafe(accept, self._loop).result()
        except BaseException:
            mine.close()
            theirs.close()
            raise
        return mine

    def close(self) -> None:
        """Wait for the requests in flight, and stop the server."""
        self._stack.close()


@asynccontextmanager
async def _serve(settings: Settings) -> AsyncIterator[web.Server]:
    async with embedded_app(settings, COMMAND) as app:
        runner = AppRunner(app, settings.server.stop_timeout)
        await runner.setup()
        try:
            assert runner.server is not None
            yield runner.server
        finally:
            await runner.cleanup()


def _default_settings() -> Settings:
    """Return the default settings; the environment is ignored, because it configures servers."""
    return Settings(**{name: section() for name, section in SECTIONS.items()})
