"""A whole server inside this process: a data node and a service node in a thread with its own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

import uvloop

from hsparse.cli.data_node import open_data_node
from hsparse.cli.node_process import listening
from hsparse.cli.service_node import local_owners, make_service
from hsparse.cli.stores import serving_store
from hsparse.config import Settings
from hsparse.sn.app import create_app


@contextmanager
def embedded_server(settings: Settings) -> Iterator[str]:
    """Serve like `hsparse serve` while the context lasts, on a free port, and yield the URL.

    Raise the error that prevents the start or, on leaving, the one that stopped the server.
    """
    ready: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(settings, ready))
            ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            (ended if ready.done() else ready).set_exception(error)

    thread = threading.Thread(target=run, name="embedded-server", daemon=True)
    thread.start()
    url, loop, stop = ready.result()
    try:
        yield url
    finally:
        with suppress(RuntimeError):  # its loop is closed after a failure, which is raised below
            loop.call_soon_threadsafe(stop.set)
        thread.join()
    ended.result()


async def _serve(
    settings: Settings, ready: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]]
) -> None:
    stop = asyncio.Event()
    with serving_store(settings.store, "an embedded server"):
        node = await open_data_node(settings)
        try:
            app = create_app(await make_service(settings, local_owners(node)))
            async with listening(app, settings) as url:
                ready.set_result((url, asyncio.get_running_loop(), stop))
                await stop.wait()
        finally:
            await node.close()
