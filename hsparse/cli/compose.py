"""Composition: from settings to running parts. Only this module knows all of them."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from hsparse.cli.sign_in import make_authenticator
from hsparse.clock import Clock, SystemClock
from hsparse.cluster.membership import Membership
from hsparse.config import Settings, job_environment
from hsparse.dn.service import DataService
from hsparse.errors import Misconfigured
from hsparse.sn.app import create_app
from hsparse.sn.data_nodes import Owners, RemoteNode
from hsparse.sn.jobs.job_process import JobCommand
from hsparse.sn.jobs.job_queue import JobQueue
from hsparse.sn.metrics import Metrics
from hsparse.sn.server import ServerRunner
from hsparse.sn.service import Service
from hsparse.storage.conditional_put import SingleWriter, probe
from hsparse.storage.object_store import ObjectStore
from hsparse.storage.posix import PosixStore
from hsparse.storage.s3.s3_store import S3Store
from hsparse.storage.store_settings import StoreSettings
from hsparse.wire.message import DataNode

DEFAULT_ROOT = Path("hsparse-data")
DRAIN_SECONDS = 5.0
"""Seconds that requests in flight have to finish when the server stops."""


async def open_store(settings: StoreSettings) -> ObjectStore:
    """Open the configured store; `Misconfigured` if it ignores conditions or cannot be used."""
    if settings.root is not None and settings.bucket is not None:
        raise Misconfigured("Name either --root or --bucket, not both.")
    store: ObjectStore
    if settings.bucket is not None:
        store = await S3Store(
            settings.bucket, endpoint=settings.s3_endpoint, region=settings.s3_region
        ).open()
    else:
        root = (settings.root or DEFAULT_ROOT).resolve()
        store = PosixStore(root, fsync=settings.fsync, wal=settings.put_log)
    if settings.single_writer:
        return SingleWriter(store)
    try:
        await probe(store)
    except BaseException:
        await store.close()
        raise
    return store


async def open_data_node(settings: Settings, clock: Clock | None = None) -> DataService:
    """Open a data node over the configured store."""
    return DataService(
        await open_store(settings.store), clock or SystemClock(), settings.data, id=settings.cluster.node_id
    )


def remote_owners(urls: tuple[str, ...], token: str) -> Owners:
    """Return the data nodes at `urls`."""
    membership = Membership.of_urls(urls)
    nodes: dict[str, DataNode] = {
        id: RemoteNode(url, membership.epoch, token) for id, url in zip(membership.nodes, urls, strict=True)
    }
    return Owners(membership, nodes)


def local_owners(node: DataService) -> Owners:
    """Return the one data node of this process."""
    return Owners(Membership.of_one(node.id), {node.id: node})


def make_service(settings: Settings, owners: Owners, bucket: str, clock: Clock | None = None) -> Service:
    """Make a service node over `owners`."""
    clock = clock or SystemClock()
    origins = settings.service.cors_origins
    chosen = replace(
        settings.service,
        bucket=bucket,
        single_user=None if settings.sign_in.signs_in else settings.sign_in.user,
        cors_origins=() if origins == ("none",) else origins,
    )
    authenticator = make_authenticator(settings.sign_in, clock)
    return Service(chosen, owners, clock, authenticator, Metrics(clock), clock.now())


def make_service_app(service: Service) -> web.Application:
    """Make the application of a service node."""
    return create_app(service)


@asynccontextmanager
async def running_jobs(service: Service, settings: Settings, url: str) -> AsyncIterator[None]:
    """Run jobs while the context lasts; they send requests to the node at `url`."""
    prefix = (sys.executable, "-m", "hsparse.cli.main")
    service.component(JobQueue).start(JobCommand(prefix, job_environment(settings), loopback(url)))
    try:
        yield
    finally:
        await service.component(JobQueue).close()


def loopback(url: str) -> str:
    """Return the URL by which a node that listens on `url` reaches itself, also if it listens on all addresses."""
    return url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")


@asynccontextmanager
async def listening(app: web.Application, settings: Settings) -> AsyncIterator[str]:
    """Serve `app` while the context lasts, and yield its URL. Leaving waits for requests in flight."""
    runner = ServerRunner(app, shutdown_timeout=DRAIN_SECONDS, auto_decompress=False)
    await runner.setup()
    try:
        listen_fd, host, port = settings.cluster.listen_fd, settings.server.host, settings.server.port
        if listen_fd is not None:
            site: web.BaseSite = web.SockSite(runner, socket.socket(fileno=listen_fd))
        else:
            site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise Misconfigured(
                f"Cannot listen on {host}:{port}: {error.strerror}; choose another --port."
            ) from error
        host, port = runner.addresses[0][:2]
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        await runner.cleanup()


def stop_signal() -> asyncio.Event:
    """Return an event that Ctrl-C or SIGTERM sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
