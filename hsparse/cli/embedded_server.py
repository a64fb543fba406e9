"""A whole server inside this process: a data node and a service node in a thread with its own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import TypeVar

import uvloop

from hsparse.cli.data_node import server_data_node
from hsparse.cli.node_process import listening
from hsparse.cli.service_node import local_owners, make_app, make_service, service_parts
from hsparse.cli.stores import serving_store
from hsparse.config import Settings
from hsparse.sn.app import Application
from hsparse.sn.server import AppRunner

T = TypeVar("T")


@contextmanager
def embedded_server(settings: Settings) -> Iterator[str]:
    """Run a server like `hsparse serve` in a thread while the context lasts; yield the URL of the server.

    Raises the error that prevents the start or, on exit, the error that stopped the server.
    """
    with in_thread(lambda: _serve(settings)) as (url, _):
        yield url


@contextmanager
def in_thread(
    serve: Callable[[], AbstractAsyncContextManager[T]],
) -> Iterator[tuple[T, asyncio.AbstractEventLoop]]:
    """Enter the context `serve()` in a thread with an event loop; yield a pair: the value of the context and the loop.

    Raises the error that prevents the start or, on exit, the error that ended the context.
    """
    ready: Future[tuple[T, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()

    async def hold() -> None:
        stop = asyncio.Event()
        async with serve() as value:
            ready.set_result((value, asyncio.get_running_loop(), stop))
            await stop.wait()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(hold())
            ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            (ended if ready.done() else ready).set_exception(error)

    thread = threading.Thread(target=run, name="embedded-server", daemon=True)
    thread.start()
    value, loop, stop = ready.result()
    try:
        yield value, loop
    finally:
        with suppress(RuntimeError):  # the loop has closed after a failure, which is raised below
            loop.call_soon_threadsafe(stop.set)
        thread.join()
    ended.result()


@asynccontextmanager
async def embedded_app(settings: Settings, command: str) -> AsyncIterator[Application]:
    """Open a data node while the context lasts, and yield the application of a server; may raise `Misconfigured`."""
    with serving_store(settings.store, command):
        async with server_data_node(settings) as (node, buckets):
            parts = service_parts(settings)
            yield make_app(make_service(settings, local_owners(node), buckets, parts), settings.server, parts)


@asynccontextmanager
async def _serve(settings: Settings) -> AsyncIterator[str]:
    async with (
        embedded_app(settings, "an embedded server") as app,
        listening(AppRunner(app, settings.server.stop_timeout), settings) as url,
    ):
        yield url
