"""`hsparse dn`, a data node as a process, and the data node that `hsparse serve` has in its own.

It imports nothing of the service node: a data node starts in two thirds of a server's time.

Tests: tests/cli/test_serve.py, tests/test_deployment.py.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import AbstractContextManager, nullcontext

from hsparse.cli.node_process import add_node_arguments, listening, stop_signal
from hsparse.cli.stores import open_stores, serving_store
from hsparse.clock import Clock, SystemClock
from hsparse.cluster.membership import Membership
from hsparse.config import Settings
from hsparse.dn.buckets import BucketRouter
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService, NodeResources
from hsparse.sections import ClusterSettings
from hsparse.storage.store_settings import StoreSettings

STANDARD_INPUT = 0


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the flags of `dn`; the parsed arguments have `run`."""
    parser.description = "Run a data node on its own."
    add_node_arguments(parser, command, (StoreSettings, ClusterSettings, DataSettings), serve_data_node)


async def serve_data_node(settings: Settings) -> None:
    """Serve service nodes."""
    settings.check_node_exposure()
    cluster = settings.cluster
    stop = stop_signal()
    if cluster.listen_fd is not None:
        _stop_with_parent(stop)
    with _serving(settings):
        node = await open_data_node(settings)
        epoch = Membership.of_urls(cluster.nodes).epoch
        app = create_node_app(node, epoch, cluster.node_token, settings.server.slow_request)
        async with listening(app, settings) as url:
            if cluster.listen_fd is None:
                print(f"hsparse data node {cluster.node_id} on {url}", flush=True)
            await stop.wait()
        await node.close()


def _serving(settings: Settings) -> AbstractContextManager[None]:
    """Return the context in which a data node serves the store; a child of `hsparse serve` does so for its parent.

    A parent that is killed leaves no lock: its children only finish requests that nobody waits for.
    """
    if settings.cluster.listen_fd is not None:
        return nullcontext()
    return serving_store(settings.store, "hsparse dn", settings.cluster.nodes)


def _stop_with_parent(stop: asyncio.Event) -> None:
    """Stop at the end of standard input: the parent process has closed it, or has died."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(STANDARD_INPUT, 1):
            loop.remove_reader(STANDARD_INPUT)
            stop.set()

    loop.add_reader(STANDARD_INPUT, read)


async def open_data_node(settings: Settings, clock: Clock | None = None) -> DataService | BucketRouter:
    """Open a data node over the configured stores."""
    stores, clock, id = await open_stores(settings.store), clock or SystemClock(), settings.cluster.node_id
    if len(stores) == 1:
        services = [DataService(stores[0], clock, settings.data, id=id)]
    else:
        shared = NodeResources.of(settings.data, *stores)
        services = [
            DataService(store, clock, id=id, resources=shared.of_bucket(store.name)) for store in stores
        ]
    for service in services:
        service.start(settings.data.sweep_interval)
    return services[0] if len(services) == 1 else BucketRouter(services)
