"""`hsparse dn` (a process that is a data node), and the data node inside the process of `hsparse serve`.

The module imports no code of service nodes, so that a data node starts in two thirds of the time of a server.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial

from aiohttp.web import AppRunner

from hsparse.cli.node_process import add_node_arguments, listening, node_tracer, say_ready, stop_signal
from hsparse.cli.store_schema import needed_schema
from hsparse.cli.store_watch import StoreWatch
from hsparse.cli.stores import (
    are_buckets,
    are_writable,
    closed_on_failure,
    joined_stores,
    open_stores,
    serving_store,
)
from hsparse.clock import Clock, SystemClock
from hsparse.concurrency.admission import Admission
from hsparse.concurrency.request_trace import Tracer
from hsparse.config import Settings
from hsparse.dn.buckets import BucketRouter
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.membership.member_node import MemberNode
from hsparse.dn.membership.ownership import SOLE, NoOwnership, Ownership
from hsparse.dn.metrics import NodeMetrics, NodeState
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService, NodeResources
from hsparse.dn.traced_store import StoreRequests, TracedStore
from hsparse.errors import HsparseError, Misconfigured, Unanswered
from hsparse.extension import extensions
from hsparse.sections import ClusterSettings
from hsparse.storage.object_store import ObjectStore
from hsparse.storage.store_settings import StoreSettings
from hsparse.wire.message import DataNode
from hsparse.wire.remote_node import RemoteNode

log = logging.getLogger(__name__)

STANDARD_INPUT = 0
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with `--host`: other nodes cannot use it
JOIN_AGAIN = 1.0
"""Seconds between attempts to join a cluster while some members of the cluster cannot be reached."""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the flags of `dn`, and set `run` in the parsed arguments."""
    parser.description = "Run a data node on its own; it finds the other nodes in the store."
    add_node_arguments(parser, command, (StoreSettings, ClusterSettings, DataSettings), serve_data_node)


async def serve_data_node(settings: Settings) -> None:
    """Run a data node of a cluster until a signal; raise `Misconfigured` if the settings are for a single process."""
    settings.check_node_token()
    if settings.store.single_writer:
        raise Misconfigured("--single-writer allows one process only: run `hsparse serve` without --dn.")
    if settings.store.read_only:
        raise Misconfigured(
            "A data node of a cluster cannot be read-only, because it writes its lease to the store: run "
            "`hsparse serve --read-only`; several such servers can share a store."
        )
    stop = stop_signal()
    if settings.cluster.with_parent:
        _stop_with_parent(stop)
    await serve_until(stop, settings)


async def serve_until(stop: asyncio.Event, settings: Settings) -> None:
    """Run a data node of a cluster until `stop` is set; if an error stops the node earlier, raise the error."""
    with _serving(settings), node_tracer("hsparse-dn") as tracer:
        requests: StoreRequests = Counter()
        admission = Admission(settings.data.messages_at_once)
        node = await _open_member(settings, requests, admission)
        metrics = NodeMetrics(partial(_state, node, requests))
        metrics.show(admission)
        try:
            await serve_member(stop, node, settings, metrics, tracer)
        finally:
            await node.close()
    if node.refused is not None:
        raise node.refused
    if node.defect.is_set():
        raise HsparseError("The data node stopped after an internal error: see its log for the cause.")


async def _open_member(settings: Settings, requests: StoreRequests, admission: Admission) -> MemberNode:
    """Open a data node that can join the cluster of the configured stores; `requests` counts requests to the stores."""
    stores, clock, token = await open_stores(settings.store), SystemClock(), settings.cluster.node_token
    make = partial(_make_node, stores, clock, settings, requests=requests, admission=admission)
    membership = TracedStore(stores[0], requests)
    async with closed_on_failure(stores):
        await _check(settings, stores[0])
        return MemberNode(
            make,
            membership,
            clock,
            token,
            lambda url: RemoteNode(url, token),
            settings.cluster.lease,
            buckets=[store.name for store in stores[1:]],
            schema=partial(needed_schema, stores),
        )


async def serve_member(
    stop: asyncio.Event,
    node: MemberNode,
    settings: Settings,
    metrics: NodeMetrics,
    tracer: Tracer | None,
) -> None:
    """Join the cluster and serve its nodes until `stop` is set, the node fails, or the node may not be a member."""
    token, slow = settings.cluster.node_token, settings.server.slow_request
    app = create_node_app(node, token, slow, lambda: node.in_force and not stop.is_set(), metrics, tracer)
    runner = AppRunner(
        app,
        access_log=None,
        shutdown_timeout=settings.server.stop_timeout,
        keepalive_timeout=settings.server.idle_timeout,
        auto_decompress=False,
    )
    async with (
        listening(runner, settings) as url,
        _joined(node, _advertised(settings, url), stop),
    ):
        say_ready(f"hsparse data node {node.id} on {url}")
        await _first(stop, node.defect, node.unfit)


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


def _state(node: MemberNode, requests: StoreRequests) -> NodeState:
    return NodeState(node.counters(), node.lease_age, len(node.membership.nodes), requests)


@asynccontextmanager
async def _joined(node: MemberNode, url: str, stop: asyncio.Event) -> AsyncIterator[None]:
    """Join the cluster, retrying until `stop` is set, and leave the cluster when the context ends."""
    while not stop.is_set():
        try:
            await node.join(url)
            break
        except Unanswered as error:
            log.warning("the data node cannot join the cluster yet, and will retry: %s", error.message)
        try:
            async with asyncio.timeout(JOIN_AGAIN):
                await stop.wait()
        except TimeoutError:
            continue
    try:
        yield
    finally:
        await node.leave()


def _advertised(settings: Settings, url: str) -> str:
    if settings.cluster.advertise is not None:
        return settings.cluster.advertise
    if settings.server.host in ANY_ADDRESS:
        raise Misconfigured(
            f"A data node that listens on {settings.server.host} needs a URL for other nodes: --advertise http://HOST:PORT"
        )
    return url


def _serving(settings: Settings) -> AbstractContextManager[None]:
    """Return a context that locks the store for this node; a child of `hsparse serve` uses the lock of its parent.

    When a parent is killed, its lock ends with it, but its children only finish requests that nobody waits for.
    """
    if settings.cluster.with_parent:
        return nullcontext()
    return serving_store(settings.store, "hsparse dn", shared=True)


def _stop_with_parent(stop: asyncio.Event) -> None:
    """Set `stop` at the end of standard input: the parent process has closed the input or has exited."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(STANDARD_INPUT, 1):
            loop.remove_reader(STANDARD_INPUT)
            stop.set()

    loop.add_reader(STANDARD_INPUT, read)


@asynccontextmanager
async def server_data_node(
    settings: Settings, watch: StoreWatch | None = None
) -> AsyncIterator[tuple[DataNode, tuple[str, ...]]]:
    """Open the data node of a whole server over the configured stores; yield a pair: the node, the buckets' names.

    A directory has only one server. Several servers may share a bucket: each joins the members before this yields.
    A read-only server is not a member, and checks with the store that cached objects are current at each read.
    """
    stores, clock = await open_stores(settings.store, watch), SystemClock()
    buckets = tuple(store.name for store in stores)
    async with closed_on_failure(stores):
        await _check(settings, stores[0])
        if not are_writable(stores):
            node: DataNode = _make_node(stores, clock, settings, NoOwnership())
        elif are_buckets(settings.store) and not settings.store.single_writer:
            node = await _open_member_server(settings, stores, clock)
        else:
            node = _make_node(stores, clock, settings, SOLE)
    try:
        yield node, buckets
    finally:
        await node.close()


async def _open_member_server(settings: Settings, stores: list[ObjectStore], clock: Clock) -> MemberNode:
    """Return the data node of a server after it has joined the other members that use the first store."""
    make = partial(_make_node, stores, clock, settings)
    lease, schema = settings.cluster.lease, partial(needed_schema, stores)
    node = MemberNode(make, stores[0], clock, "", _connect_to_nobody, lease, server=True, schema=schema)
    try:
        await node.join()
        await node.wait_in_force()
    except BaseException:
        await node.close()
        raise
    return node


def _connect_to_nobody(url: str) -> DataNode:
    raise Unanswered("A server sends no messages to other members.")


async def _check(settings: Settings, store: ObjectStore) -> None:
    """Raise `Misconfigured` if an extension cannot work with these settings and the state of the first store."""
    for one in extensions():
        if one.store is not None and not one.every_bucket:
            await one.store.load().check(settings, store)


def _make_node(
    stores: list[ObjectStore],
    clock: Clock,
    settings: Settings,
    ownership: Ownership,
    requests: StoreRequests | None = None,
    admission: Admission | None = None,
) -> DataService | BucketRouter:
    joined = joined_stores(stores)
    pairs = [extended(settings, store, ownership, number) for number, store in enumerate(joined)]
    several = joined if len(joined) > 1 else []
    shared = NodeResources.of(settings.data, *several, requests=requests, admission=admission)
    if not several:
        ((first, ownership_of_first),) = pairs
        services = [DataService(first, clock, resources=shared, ownership=ownership_of_first)]
    else:
        services = [
            DataService(store, clock, resources=shared.of_bucket(store.name), ownership=one)
            for store, one in pairs
        ]
    for service in services if are_writable(stores) else ():
        service.start(settings.data.sweep_interval)
    return services[0] if len(services) == 1 else BucketRouter(services)


def extended(
    settings: Settings, store: ObjectStore, ownership: Ownership, number: int = 0
) -> tuple[ObjectStore, Ownership]:
    """Return a pair: a store and its ownership, each wrapped by extensions; `number` is the index of the bucket."""
    for one in extensions():
        if one.store is not None and (one.every_bucket or not number):
            store, ownership = one.store.load().wrapped(settings, store, ownership)
    return store, ownership
