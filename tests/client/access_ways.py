"""The ways by which a dataset is read: over HTTP, straight from the store, and embedded.

A test that takes the fixture `access`, imported into its conftest or module, runs once for each way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.client.embedded import EmbeddedConnection
from hsparse.client.integrations.direct.bucket_objects import Bucket
from hsparse.client.integrations.direct.direct_source import direct_source
from hsparse.client.sources.elements import Direct, ValueSource
from hsparse.client.sources.http_elements import HttpElements
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.config import SECTIONS, Settings
from hsparse.sections import ServerSettings
from hsparse.storage.store_settings import StoreSettings
from tests.support.s3_servers import make_bucket

WAYS = ("http", "directory", "s3", "presigned", "embedded", "server")
NUMBERS = itertools.count()


def served(connection: Connection, record: Any) -> ValueSource:
    """Return what reads a dataset over HTTP."""
    return HttpElements(connection, record["id"], Hdf5Type.parse(record["type"]).wire)


@dataclass
class Access:
    """A fresh domain, written through `connection`, read in the way `way`: `direct` is what that takes."""

    way: str
    connection: Connection
    direct: Direct
    root: Path | None = None
    bucket: str = ""
    made: itertools.count = field(default_factory=itertools.count)

    def create(self, shape: Any, dtype: Any = np.int32, **options: Any) -> SparseDataset:
        """Create a sparse dataset at a path of its own."""
        options = {"chunks": (5, 4)[: len(shape)], "maxshape": (None,) * len(shape)} | options
        return SparseDataset.create(self.connection, f"/in/{next(self.made)}", shape, dtype, **options)

    def source(self, dataset: SparseDataset, direct: Direct = None) -> ValueSource:
        """Return what reads the dataset in this way, or in that of `direct`."""
        record = self.connection.json("GET", f"/datasets/{dataset.id}")
        server = served(self.connection, record)
        wanted = self.direct if direct is None else direct
        return direct_source(self.connection, record, wanted, server) or server


def plain_settings(store: StoreSettings) -> Settings:
    """Return the settings of a server on a free port over a store."""
    settings = Settings(**{name: section() for name, section in SECTIONS.items()})
    return replace(settings, server=ServerSettings(port=0), store=store)


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


@contextmanager
def open_access(way: str, request: pytest.FixtureRequest) -> Iterator[Access]:
    """Open a fresh domain for a way."""
    domain = f"/{way}-{next(NUMBERS)}.h5"
    direct: Direct = None
    root, bucket = None, ""
    if way == "embedded":
        root = request.getfixturevalue("embedded_root")
        connection: Connection = EmbeddedConnection(root, domain)
        direct = True  # small reads too
    elif way in ("http", "directory", "server"):
        url, root = request.getfixturevalue("directory_server")
        connection = Connection(url, domain)
        direct = {"http": False, "directory": root, "server": "server"}[way]
    else:
        url, named = request.getfixturevalue("bucket_server")
        connection, direct, bucket = Connection(url, domain), named if way == "s3" else True, named.name
    with connection:
        connection.json("PUT", "/", {})
        yield Access(way, connection, direct, root, bucket)


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
