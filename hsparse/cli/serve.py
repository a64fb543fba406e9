"""`hsparse serve` and `hsparse sn`: a whole server, and a service node on its own."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hsparse.cli.child_nodes import child_nodes
from hsparse.cli.data_node import open_data_node
from hsparse.cli.node_process import add_node_arguments, listening, stop_signal
from hsparse.cli.service_node import local_owners, make_service, remote_owners, running_jobs
from hsparse.cli.stores import open_stores, root_of, serving_store
from hsparse.clock import SystemClock
from hsparse.config import Settings
from hsparse.dn.data_settings import DataSettings
from hsparse.errors import Misconfigured
from hsparse.sections import ClusterSettings, SignInSettings
from hsparse.sn.app import create_app
from hsparse.sn.data_nodes import Owners
from hsparse.sn.service_settings import ServiceSettings
from hsparse.storage.store_settings import StoreSettings


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the flags of `serve` or `sn`; the parsed arguments have `run`."""
    service = (ClusterSettings, SignInSettings, ServiceSettings)
    if command == "serve":
        parser.description = "Run a whole server."
        add_node_arguments(parser, command, (StoreSettings, *service, DataSettings), serve)
    else:
        parser.description = "Run a service node on its own."
        add_node_arguments(parser, command, service, serve_service_node)


async def serve(settings: Settings) -> None:
    """Serve clients, with a data node in this process, or with `--dn` processes of data nodes."""
    settings.check_exposure()
    if settings.cluster.dn and settings.store.single_writer:
        raise Misconfigured("--single-writer means one process: leave out --dn.")
    stop = stop_signal()
    with serving_store(settings.store, "hsparse serve"):
        async with _owners(settings) as owners:
            await _serve_clients(settings, owners, stop)


async def serve_service_node(settings: Settings) -> None:
    """Serve clients over data nodes that run elsewhere."""
    settings.check_exposure()
    if not settings.cluster.nodes:
        raise Misconfigured("Name the data nodes: --nodes http://host:port,http://host:port")
    stop = stop_signal()
    owners = remote_owners(settings.cluster.nodes, settings.cluster.node_token)
    try:
        await _serve_clients(settings, owners, stop)
    finally:
        for node in owners.nodes.values():
            await node.close()


@asynccontextmanager
async def _owners(settings: Settings) -> AsyncIterator[Owners]:
    if not settings.cluster.dn:
        node = await open_data_node(settings)
        try:
            yield local_owners(node)
        finally:
            await node.close()
        return
    # An unusable store fails here once, instead of in every child.
    for store in await open_stores(settings.store):
        await store.close()
    token = SystemClock().token(32).hex()
    async with child_nodes(settings, token) as nodes:
        owners = remote_owners(nodes.urls, token)
        try:
            yield owners
        finally:
            for node_ in owners.nodes.values():
                await node_.close()


async def _serve_clients(settings: Settings, owners: Owners, stop: asyncio.Event) -> None:
    service = await make_service(settings, owners)
    store = settings.store
    async with listening(create_app(service), settings) as url:
        buckets = [f"bucket {bucket}" for bucket in store.bucket]
        where = ", ".join(buckets if store.bucket and store.root is None else [str(root_of(store)), *buckets])
        async with running_jobs(service, settings, url):
            print(f"hsparse serves {where} on {url} (Ctrl-C stops)", flush=True)
            await stop.wait()
            print("hsparse is stopping", flush=True)
