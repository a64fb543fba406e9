"""Functions that open, probe and lock the stores that the settings name: directories or buckets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from hsparse.cli.store_schema import read_schema, with_schema
from hsparse.cli.store_watch import StoreWatch
from hsparse.errors import Forbidden, Misconfigured, NotFound
from hsparse.extension import extensions
from hsparse.model.ids import check_bucket_name
from hsparse.model.schema import SCHEMA_KEY
from hsparse.optional_module import OptionalModule
from hsparse.storage.bucket_client import START_SECONDS
from hsparse.storage.condition_probe import CurrentEtagRefused, probe
from hsparse.storage.conditional_put import SingleWriter, with_conditional_delete
from hsparse.storage.delegating_store import ReadOnlyStore
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.filesystem.served_root import serving_root
from hsparse.storage.object_store import ObjectStore
from hsparse.storage.posix import PosixStore
from hsparse.storage.store_settings import StoreSettings

DEFAULT_ROOT = Path("hsparse-data")
ONLY_READS = "This server is read-only (--read-only): send changes to another server of the same store."
S3_STORE = OptionalModule("hsparse.storage.s3.s3_store")
"""The module of the stores in S3 buckets; the import of aiobotocore takes a sixth of the start time of a data node."""
CLOUD_STORE = OptionalModule("hsparse.storage.clouds.obstore_store", "clouds")
CLOUDS = ("az://", "gs://")
DIRECTORY_BUCKET = "--x-s3"
"""The suffix by which the names of S3's directory buckets, and no other names of buckets, end."""


@contextmanager
def serving_store(settings: StoreSettings, command: str, *, shared: bool = False) -> Iterator[None]:
    """Lock the configured directories for a server while the context lasts; raise `Misconfigured` if one is locked.

    One server can lock a directory, or several `shared` processes, the members of one cluster. Buckets have no locks,
    and read-only servers need no locks.
    """
    with ExitStack() as roots:
        for place in _places(settings):
            if isinstance(place, Path) and not settings.read_only:
                root = RootDirectory(str(place), fsync=settings.fsync)
                roots.enter_context(serving_root(root, command, shared=shared))
        yield


def root_of(settings: StoreSettings) -> Path:
    """Return the absolute path of the directory that is served by default."""
    return (settings.root or DEFAULT_ROOT).resolve()


async def open_stores(settings: StoreSettings, watch: StoreWatch | None = None) -> list[ObjectStore]:
    """Open and return the configured stores, one for each directory or bucket; buckets are added to `watch`.

    Raises `Misconfigured` if a store ignores conditional requests, was written by a newer hsparse, or cannot be used.
    """
    stores: list[ObjectStore] = []
    async with closed_on_failure(stores):
        for place in _places(settings):
            stores.append(await _open_store(settings, place, watch))
    return stores


@asynccontextmanager
async def closed_on_failure(stores: list[ObjectStore]) -> AsyncIterator[None]:
    """Close the stores that `stores` has by then if the context fails, such as when another store cannot be opened."""
    try:
        yield
    except BaseException:
        for store in stores:
            await store.close()
        raise


@asynccontextmanager
async def opened_stores(
    settings: StoreSettings, *, put_log: bool = False, there: bool = False, watch: StoreWatch | None = None
) -> AsyncIterator[list[ObjectStore]]:
    """Open the configured stores by `open_stores`, yield the stores, and close them at the end of the context.

    Unless `put_log` is set, puts bypass the write-ahead log. With `there`, a missing directory raises `NotFound`.
    """
    missing = [str(one) for one in _places(settings) if there and isinstance(one, Path) and not one.is_dir()]
    if missing:
        raise NotFound(f"There is no directory {missing[0]!r}: name an existing store by --root or --bucket.")
    stores = await open_stores(settings if put_log else replace(settings, put_log=False), watch)
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


def joined_stores(stores: list[ObjectStore]) -> list[ObjectStore]:
    """Return the stores; extensions wrap the stores, if there are several, so that each store can reach all stores."""
    for one in extensions() if len(stores) > 1 else ():
        if one.stores is not None:
            stores = one.stores.load().joined(stores)
    return stores


def is_new(settings: StoreSettings) -> bool:
    """Return whether the server will create a new store: the directory served by default is missing or empty."""
    root = root_of(settings)
    return not are_buckets(settings) and not (root.is_dir() and any(root.iterdir()))


def are_buckets(settings: StoreSettings) -> bool:
    """Return whether the configured stores are buckets instead of directories."""
    return settings.root is None and bool(settings.bucket)


def are_writable(stores: Iterable[ObjectStore]) -> bool:
    """Return whether this process may write to all of the opened stores."""
    return not any(isinstance(store, ReadOnlyStore) for store in stores)


def _places(settings: StoreSettings) -> list[Path | str]:
    """Return the paths of the directories, or the names of the buckets; the first of the list is served by default."""
    if are_buckets(settings):
        places: list[Path | str] = [
            one[5:].rstrip("/") if one.startswith("s3://") else one for one in settings.bucket
        ]
    else:
        root = root_of(settings)
        beside = [root.parent / name for name in settings.bucket]
        for directory in beside:
            if not directory.is_dir():
                raise Misconfigured(
                    f"There is no directory {str(directory)!r}: with --root, --bucket names directories beside the "
                    "root; omit --root to serve buckets of a cloud."
                )
        places = [root, *beside]
    names = [_name(place) for place in (places if are_buckets(settings) else places[1:])]
    if len({str(place) for place in places}) < len(places) or len(set(names)) < len(names):
        raise Misconfigured("Two buckets have the same name: name each bucket once.")
    return places


def _name(place: Path | str) -> str:
    """Return the name by which clients know a directory or bucket; raise `BadRequest` if the name is invalid."""
    if isinstance(place, Path):
        return check_bucket_name(place.name)
    return check_bucket_name(place.partition("://")[2]) if place.startswith(CLOUDS) else place


async def _open_store(settings: StoreSettings, place: Path | str, watch: StoreWatch | None) -> ObjectStore:
    store: ObjectStore
    soon: AbstractContextManager[None] = nullcontext()
    if isinstance(place, str):
        bucket = _bucket(settings, place)
        store, soon = await bucket.open(), bucket.within(START_SECONDS)
        probed = probed_bucket
        if watch is not None:
            watch.add(bucket)
    else:
        store = PosixStore(
            place,
            fsync=settings.fsync,
            wal=settings.put_log and not settings.read_only,
            reserve=settings.reserve_size,
            read_only=settings.read_only,
        )
        probed = _probed
    try:
        with soon:
            if settings.read_only:
                return await _only_read(store)
            return await with_schema(store, _single_writer if settings.single_writer else probed)
    except BaseException:
        await store.close()
        raise


async def _only_read(store: ObjectStore) -> ObjectStore:
    """Check that a store can be listed and read, and return the store as a read-only store."""
    async for _ in store.list(SCHEMA_KEY):
        break
    await read_schema(store)
    return ReadOnlyStore(store, Forbidden(ONLY_READS))


def _bucket(settings: StoreSettings, place: str) -> Any:
    """Return the store of the bucket with this name or URL; the store is not open yet."""
    if place.startswith(CLOUDS):
        if settings.requester_pays:
            raise Misconfigured(f"--requester-pays is for buckets of S3 only: omit it for {place!r}.")
        return CLOUD_STORE.load().ObstoreStore(place, unsigned=settings.unsigned)
    if place.endswith(DIRECTORY_BUCKET):
        raise Misconfigured(
            f"The bucket {place!r} is a directory bucket (S3 Express), which lists its keys out of order; name a "
            "general purpose bucket."
        )
    return S3_STORE.load().S3Store(
        place,
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        unsigned=settings.unsigned,
        requester_pays=settings.requester_pays,
    )


async def _single_writer(store: ObjectStore) -> ObjectStore:
    return SingleWriter(store)


async def _probed(store: ObjectStore) -> ObjectStore:
    await probe(store)
    return await with_conditional_delete(store)


async def probed_bucket(store: Any) -> ObjectStore:
    """Probe an `S3Store` and return the store; if the service rejects quoted etags, use etags without quotes."""
    try:
        return await _probed(store)
    except CurrentEtagRefused:
        store.bare_etags = True
        return await _probed(store)
