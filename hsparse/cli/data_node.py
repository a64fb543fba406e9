"""`hsparse dn`, a data node as a process, and the data node that `hsparse serve` has in its own.

It imports nothing of the service node: a data node starts in two thirds of a server's time.

Tests: tests/cli/test_serve.py, tests/test_deployment.py.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from hsparse.cli.node_process import add_node_arguments, listening, stop_signal
from hsparse.cli.optional_module import OptionalModule
from hsparse.cli.store_schema import with_schema
from hsparse.clock import Clock, SystemClock
from hsparse.cluster.membership import Membership
from hsparse.config import Settings
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService
from hsparse.errors import Misconfigured
from hsparse.sections import ClusterSettings
from hsparse.storage.conditional_put import SingleWriter, probe
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.filesystem.served_root import serving_root
from hsparse.storage.object_store import ObjectStore
from hsparse.storage.posix import PosixStore
from hsparse.storage.store_settings import StoreSettings

DEFAULT_ROOT = Path("hsparse-data")
STANDARD_INPUT = 0
S3_STORE = OptionalModule("hsparse.storage.s3.s3_store")
"""The store of a bucket: aiobotocore takes a sixth of the time in which a data node starts."""


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


def serving_store(
    settings: StoreSettings, command: str, nodes: tuple[str, ...] = ()
) -> AbstractContextManager[None]:
    """Return the context in which a process serves the configured store; entering it may raise `Misconfigured`.

    A directory has one server, or data nodes with the same list `nodes`. A bucket has no locks.
    """
    if settings.bucket is not None:
        return nullcontext()
    root = RootDirectory(str(root_of(settings)), fsync=settings.fsync)
    return serving_root(root, command, nodes)


def root_of(settings: StoreSettings) -> Path:
    """Return the directory of the store, of one that is no bucket."""
    return (settings.root or DEFAULT_ROOT).resolve()


async def open_store(settings: StoreSettings) -> ObjectStore:
    """Open the configured store; `Misconfigured` if it ignores conditions, is of a newer hsparse or cannot be used."""
    if settings.root is not None and settings.bucket is not None:
        raise Misconfigured("Name either --root or --bucket, not both.")
    store: ObjectStore
    if settings.bucket is not None:
        s3 = S3_STORE.load()
        store = await s3.S3Store(
            settings.bucket, endpoint=settings.s3_endpoint, region=settings.s3_region
        ).open()
    else:
        store = PosixStore(root_of(settings), fsync=settings.fsync, wal=settings.put_log)
    try:
        return await with_schema(store, _single_writer if settings.single_writer else _probed)
    except BaseException:
        await store.close()
        raise


async def _single_writer(store: ObjectStore) -> ObjectStore:
    return SingleWriter(store)


async def _probed(store: ObjectStore) -> ObjectStore:
    await probe(store)
    return store


async def open_data_node(settings: Settings, clock: Clock | None = None) -> DataService:
    """Open a data node over the configured store."""
    return DataService(
        await open_store(settings.store), clock or SystemClock(), settings.data, id=settings.cluster.node_id
    )
