"""A server in a thread, as `hsparse serve` runs it, and connections to fresh domains on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.config import load_settings
from tests.client.access_ways import (
    WAYS,
    access,
    bucket_server,
    direct_access,
    directory_access,
    directory_server,
    embedded_root,
    open_access,
)
from tests.client.dataset_access import DatasetAccess

__all__ = [
    "access",
    "bucket_server",
    "direct_access",
    "directory_access",
    "directory_server",
    "embedded_root",
]

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server without passwords."""
    root = tmp_path_factory.mktemp("store")
    with embedded_server(load_settings(root=root, port=0, fsync=False)) as address:
        yield address


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """A connection whose domain exists and is empty."""
    with Connection(url, f"/test-{next(NUMBERS)}.h5") as opened:
        opened.json("PUT", "/", {})
        yield opened


@pytest.fixture
def http_access(connection: Connection) -> DatasetAccess:
    """Datasets over HTTP."""
    return DatasetAccess("http", connection)


@pytest.fixture(params=WAYS)
def dataset_access(request: pytest.FixtureRequest) -> Iterator[DatasetAccess]:
    """A way to datasets; a test that takes it runs over each."""
    with open_access(request.param, request) as access:
        yield DatasetAccess(access.way, access.connection, access.direct)
