"""`hsparse dn`, a data node as a process, and the data node that `hsparse serve` has in its own.

It imports nothing of the service node: a data node starts in two thirds of a server's time.

Tests: tests/cli/test_serve.py, tests/test_deployment.py.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from hsparse.cli.node_process import add_node_arguments, listening, stop_signal
from hsparse.cli.optional_module import OptionalModule
from hsparse.clock import Clock, SystemClock
from hsparse.cluster.membership import Membership
from hsparse.config import Settings
from hsparse.dn.buckets import BucketRouter
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService, NodeResources
from hsparse.errors import Misconfigured
from hsparse.model.bucket import check_bucket_name
from hsparse.sections import ClusterSettings
from hsparse.storage.conditional_put import SingleWriter, probe
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
    node = await open_data_node(settings)
    epoch = Membership.of_urls(cluster.nodes).epoch
    app = create_node_app(node, epoch, cluster.node_token, settings.server.slow_request)
    async with listening(app, settings) as url:
        if cluster.listen_fd is None:
            print(f"hsparse data node {cluster.node_id} on {url}", flush=True)
        await stop.wait()
    await node.close()


def _stop_with_parent(stop: asyncio.Event) -> None:
    """Stop at the end of standard input: the parent process has closed it, or has died."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(STANDARD_INPUT, 1):
            loop.remove_reader(STANDARD_INPUT)
            stop.set()

    loop.add_reader(STANDARD_INPUT, read)


async def open_stores(settings: StoreSettings) -> list[ObjectStore]:
    """Open the configured stores, one for each bucket; `Misconfigured` if one ignores conditions or cannot be used."""
    stores: list[ObjectStore] = []
    try:
        for place in _places(settings):
            stores.append(await _open_store(settings, place))
    except BaseException:
        for store in stores:
            await store.close()
        raise
    return stores


def _places(settings: StoreSettings) -> list[Path | str]:
    """Return the directories, or the names of S3 buckets; the first is served by default."""
    if settings.root is None and settings.bucket:
        places: list[Path | str] = list(settings.bucket)
    else:
        root = (settings.root or DEFAULT_ROOT).resolve()
        beside = [root.parent / name for name in settings.bucket]
        for directory in beside:
            if not directory.is_dir():
                raise Misconfigured(
                    f"There is no directory {str(directory)!r}: with --root, --bucket names directories beside it. "
                    "For S3 name either --root or --bucket, not both."
                )
        places = [root, *beside]
    names = [
        check_bucket_name(Path(place).name) if isinstance(place, Path) else place for place in places[1:]
    ]
    if len({str(place) for place in places}) < len(places) or len(set(names)) < len(names):
        raise Misconfigured("Each bucket can be named once.")
    return places


async def _open_store(settings: StoreSettings, place: Path | str) -> ObjectStore:
    store: ObjectStore
    if isinstance(place, str):
        store = (
            await S3_STORE.load()
            .S3Store(place, endpoint=settings.s3_endpoint, region=settings.s3_region)
            .open()
        )
    else:
        store = PosixStore(place, fsync=settings.fsync, wal=settings.put_log)
    if settings.single_writer:
        return SingleWriter(store)
    try:
        await probe(store)
    except BaseException:
        await store.close()
        raise
    return store


async def open_data_node(settings: Settings, clock: Clock | None = None) -> DataService | BucketRouter:
    """Open a data node over the configured stores."""
    stores, clock, id = await open_stores(settings.store), clock or SystemClock(), settings.cluster.node_id
    if len(stores) == 1:
        return DataService(stores[0], clock, settings.data, id=id)
    shared = NodeResources.of(settings.data, *stores)
    return BucketRouter(
        [DataService(store, clock, id=id, resources=shared.of_bucket(store.name)) for store in stores]
    )
