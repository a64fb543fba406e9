"""`hsparse serve`, which runs a whole server, and `hsparse sn`, which runs a service node on its own."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from math import ceil

from hsparse.cli.child_nodes import child_nodes
from hsparse.cli.data_node import server_data_node
from hsparse.cli.node_process import add_node_arguments, listening, node_tracer, say_ready, stop_signal
from hsparse.cli.service_node import (
    cluster_owners,
    local_owners,
    make_app,
    make_service,
    running,
    service_parts,
)
from hsparse.cli.store_watch import StoreWatch
from hsparse.cli.stores import are_writable, is_new, opened_stores, root_of, serving_store
from hsparse.clock import SystemClock
from hsparse.concurrency.request_trace import Tracer
from hsparse.config import Settings
from hsparse.dn.data_settings import DataSettings
from hsparse.errors import Misconfigured
from hsparse.sections import ClusterSettings, SignInSettings
from hsparse.sn.data_nodes.cluster_nodes import MEMBERSHIP_READ_SECONDS
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.server import AppRunner
from hsparse.sn.service_settings import ServiceSettings
from hsparse.storage.store_settings import StoreSettings

RIGHTS_OF_FILES = (
    "All users who sign in can read the files of --files; set the rights of users by `hsparse acl /NAME`."
)
EVICTION_LEASES = 3.0
"""The number of lease periods until data nodes have evicted a killed data node."""
START_SECONDS = 10.0
"""The maximum time, in seconds, that a data node needs to start."""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the flags of `serve` or `sn`, and set `run` in the parsed arguments."""
    sections = (StoreSettings, ClusterSettings, SignInSettings, ServiceSettings)
    if command == "serve":
        parser.description = "Run a whole server."
        add_node_arguments(parser, command, (*sections, DataSettings), serve)
    else:
        parser.description = "Run a service node on its own; it finds the data nodes in the store."
        add_node_arguments(parser, command, sections, serve_service_node)


async def serve(settings: Settings) -> None:
    """Serve clients until a signal, with a data node in this process or, with `--dn N`, N data nodes as processes."""
    settings.check_exposure()
    if settings.cluster.dn and settings.store.single_writer:
        raise Misconfigured("--single-writer allows one process only: omit --dn.")
    if settings.cluster.dn and settings.store.read_only:
        raise Misconfigured(
            "--read-only cannot be combined with --dn: omit --dn; several read-only servers can share a store."
        )
    stop = stop_signal()
    new = is_new(settings.store)
    watch = StoreWatch(SystemClock())
    with serving_store(settings.store, "hsparse serve"), node_tracer("hsparse") as tracer:
        async with _owners(settings, stop, watch) as (owners, buckets):
            await _serve_clients(settings, owners, buckets, stop, tracer, new=new)


async def serve_service_node(settings: Settings) -> None:
    """Serve clients until a signal, with data nodes that run as other processes, maybe on other machines."""
    settings.check_exposure()
    settings.check_node_token()
    stop, watch = stop_signal(), StoreWatch(SystemClock())
    with node_tracer("hsparse-sn") as tracer:
        async with (
            opened_stores(settings.store, watch=watch) as stores,
            cluster_owners(stores, settings.cluster.node_token, watch) as owners,
        ):
            await owners.readiness_error()  # logs an error at once
            await _serve_clients(settings, owners, tuple(store.name for store in stores), stop, tracer)


@asynccontextmanager
async def _owners(
    settings: Settings, stop: asyncio.Event, watch: StoreWatch
) -> AsyncIterator[tuple[Owners, tuple[str, ...]]]:
    """Yield a pair: the data nodes of the server, and the names of the buckets that the data nodes serve."""
    if settings.cluster.dn:
        # Opened here so that an unusable store fails once, not in every child.
        async with opened_stores(settings.store, watch=watch) as stores:
            if are_writable(stores):  # members of a cluster write to the store
                token = SystemClock().token(32).hex()
                async with cluster_owners(stores, token, watch) as owners, child_nodes(settings, token):
                    await wait_until_ready(owners, settings.cluster.lease, stop)
                    yield owners, tuple(store.name for store in stores)
                return
    async with server_data_node(settings, watch) as (node, buckets):
        yield local_owners(node, watch), buckets


async def wait_until_ready(owners: Owners, lease: float, stop: asyncio.Event) -> None:
    """Wait until the data nodes are ready: killed members of an earlier start, with another token, must be evicted.

    If these members are still alive, the wait ends without an error; the server is then not ready, and reports why.
    """
    for _ in range(ceil((EVICTION_LEASES * lease + START_SECONDS) / MEMBERSHIP_READ_SECONDS)):
        if await owners.readiness_error() is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(MEMBERSHIP_READ_SECONDS):
                await stop.wait()
                return


async def _serve_clients(
    settings: Settings,
    owners: Owners,
    buckets: tuple[str, ...],
    stop: asyncio.Event,
    tracer: Tracer | None,
    *,
    new: bool = False,
) -> None:
    parts = service_parts(settings)
    service = make_service(settings, owners, buckets, parts)
    store = settings.store
    app = make_app(service, settings.server, parts, tracer)
    runner = AppRunner(app, settings.server.stop_timeout, settings.server.idle_timeout)
    async with listening(runner, settings) as url:
        places = [f"bucket {bucket}" for bucket in store.bucket]
        if store.root is not None or not places:
            places = [f"{'a new store at ' if new else ''}{root_of(store)}", *places]
        where = ", ".join([*places, *(f"the files of {item}" for item in settings.data.files)])
        async with running(parts, service, url):
            say_ready(f"hsparse serves {where} on {url} (Ctrl-C stops)")
            if settings.data.files and settings.signs_in:
                print(RIGHTS_OF_FILES, flush=True)
            await stop.wait()
            stop.clear()
            service.end_soon()
            print("hsparse is stopping", flush=True)
            await _drain(settings.server.drain_time, stop)


async def _drain(seconds: float, stop: asyncio.Event) -> None:
    """Wait for `seconds` or until `stop` is set, so that load balancers see in `/readyz` that the node will stop."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
