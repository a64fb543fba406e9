"""A server in a thread, as `hsparse serve` runs it, and connections to fresh domains on it."""

from __future__ import annotations

import http.client
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.client.embedded import EmbeddedConnection
from hsparse.client.integrations.direct.bucket_objects import Bucket
from hsparse.config import load_settings
from hsparse.storage.store_settings import StoreSettings
from tests.client.access_ways import WAYS, Access, DatasetAccess, open_access, open_file, plain_settings
from tests.support.s3_servers import make_bucket

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
def file(connection: Connection) -> Iterator[hsparse.File]:
    """The empty domain of `connection`, opened."""
    with open_file(f"{connection.url}{connection.domain}") as opened:
        yield opened


@pytest.fixture(scope="session")
def directory_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of a server, and its store's directory."""
    root = tmp_path_factory.mktemp("directory")
    with embedded_server(plain_settings(StoreSettings(root=root, fsync=False))) as url:
        yield url, root


@pytest.fixture(scope="session")
def bucket_server(moto_endpoint: str) -> Iterator[tuple[str, Bucket]]:
    """The URL of a server, and its store's bucket."""
    bucket = Bucket("direct-reads", moto_endpoint, "us-east-1", "test", "test")
    make_bucket(moto_endpoint, bucket.name)
    store = StoreSettings(bucket=(bucket.name,), s3_endpoint=moto_endpoint, s3_region="us-east-1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        with embedded_server(plain_settings(store)) as url:
            yield url, bucket


@pytest.fixture(scope="session")
def embedded_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of an embedded store, which stays open: to open it takes longer than most tests."""
    root = tmp_path_factory.mktemp("embedded") / "store"
    with EmbeddedConnection(root) as kept:
        kept.json("GET", "/about")
        yield root


@pytest.fixture(params=WAYS)
def access(request: pytest.FixtureRequest) -> Iterator[Access]:
    """A fresh domain, for each way."""
    with open_access(request.param, request) as opened:
        yield opened


@pytest.fixture(params=WAYS[1:])
def direct_access(request: pytest.FixtureRequest) -> Iterator[Access]:
    """A fresh domain, for each way past the server."""
    with open_access(request.param, request) as opened:
        yield opened


@pytest.fixture
def directory_access(request: pytest.FixtureRequest) -> Iterator[Access]:
    """A fresh domain of a server whose store is a directory."""
    with open_access("directory", request) as opened:
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


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that are sent, as `GET /path?parameters`."""
    return noted_requests(monkeypatch, lambda target: target)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that are sent, as `GET /path`, without parameters."""
    return noted_requests(monkeypatch, lambda target: target.partition("?")[0])


def noted_requests(monkeypatch: pytest.MonkeyPatch, form: Callable[[str], str]) -> list[str]:
    sent: list[str] = []
    request = http.client.HTTPConnection.request

    def noted(self: Any, method: str, target: str, *args: Any, **options: Any) -> None:
        sent.append(f"{method} {form(target)}")
        request(self, method, target, *args, **options)

    monkeypatch.setattr(http.client.HTTPConnection, "request", noted)
    return sent
