"""Stores for every test folder: a moto server for the session, and fresh empty stores of each kind."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from hsparse.storage.memory import MemoryStore
from hsparse.storage.object_store import ObjectStore
from hsparse.storage.posix import PosixStore
from hsparse.storage.s3.s3_store import S3Store
from tests.support.s3_servers import make_bucket, moto_server

settings.register_profile("hsparse", deadline=None)  # how long an example takes says nothing about it
settings.load_profile("hsparse")

NUMBERS = itertools.count()

MakeStore = Callable[..., Awaitable[ObjectStore]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what makes the long runs long."""
    parser.addoption("--examples", type=int, default=None, help="examples a state machine runs")
    parser.addoption("--fuzz", type=int, default=3, help="requests made up for each operation, three times")
    parser.addoption("--kills", type=int, default=25, help="how often the chaos test kills a data node")
    parser.addoption("--mutations", type=int, default=500, help="changed HDF5 files that are read")
    parser.addoption("--round-trips", type=int, default=12, help="random domains exported and imported again")
    parser.addoption("--programs", type=int, default=25, help="programs of h5py calls compared with h5pyd's")


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """The URL of a loopback S3 server that takes any credentials."""
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture
async def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeStore]:
    """A function that returns a fresh empty store of kind "memory", "posix" or "s3", closed for the test."""
    async with AsyncExitStack() as stores:

        async def make(kind: str, page_size: int = 1000) -> ObjectStore:
            number = next(NUMBERS)
            store: ObjectStore
            if kind == "memory":
                store = MemoryStore(page_size=page_size)
            elif kind == "posix":
                store = PosixStore(tmp_path / f"store-{number}", fsync=False, page_size=page_size)
            elif kind == "s3":
                endpoint = request.getfixturevalue("moto_endpoint")
                make_bucket(endpoint, f"bucket-{number}")
                store = await S3Store(
                    f"bucket-{number}",
                    endpoint=endpoint,
                    region="us-east-1",
                    access_key="test",
                    secret_key="test",
                    page_size=page_size,
                ).open()
            else:
                raise ValueError(f"no store of kind {kind!r}")
            stores.push_async_callback(store.close)
            return store

        yield make
