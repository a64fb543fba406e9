"""Ways to a dataset: over HTTP, straight from the store, embedded; a test with `access` runs over each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.embedded import EmbeddedConnection
from hsparse.client.integrations.direct.direct_elements import DirectElements
from hsparse.client.integrations.direct.direct_source import direct_source
from hsparse.client.opening import Mode
from hsparse.client.sources.elements import Direct, ValueSource
from hsparse.client.sources.http_elements import HttpElements
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.config import SECTIONS, Settings
from hsparse.model.ids import COLLECTIONS
from hsparse.sections import ServerSettings
from hsparse.storage.store_settings import StoreSettings
from tests.support.endurance import repeats

WAYS = ("http", "directory", "s3", "presigned", "embedded", "server")
NUMBERS = itertools.count()


def open_file(address: Any, mode: Mode | None = None, **options: Any) -> hsparse.File:
    """Open a domain."""
    found = hsparse.open(address, mode, **options)
    assert isinstance(found, hsparse.File)
    return found


def is_stored(file: hsparse.File, id: str) -> bool:
    """Say whether an object is there, linked or not."""
    try:
        file.connection.json("GET", f"/{COLLECTIONS[id[0]]}/{id}")
    except KeyError:
        return False
    return True


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


V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class DatasetAccess:
    """One way to datasets: `direct` says how their elements are read past the server."""

    way: str
    connection: Connection
    direct: Direct = False

    def examples(self, full: int, short: int) -> int:
        """Return how many examples a property is tested with: with --endure `full`; a fourth over all ways but HTTP."""
        count = repeats(full, short)
        return count if self.way == "http" else max(1, count // 4)

    def some(self, values: Sequence[V], number: int) -> list[V]:
        """Return all values over HTTP, or with --endure; else two of them, others for another number and way."""
        count = len(values) if self.way == "http" else repeats(len(values), short=2)
        first = 2 * (len(WAYS) * number + WAYS.index(self.way))
        return [values[(first + step) % len(values)] for step in range(count)]

    def create(
        self, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...], **options: Any
    ) -> SparseDataset:
        """Create a dataset and return it as this way reads it."""
        path = f"/way/{next(NUMBERS)}"
        dataset = SparseDataset.create(self.connection, path, shape, dtype, chunks, **options)
        server = served(self.connection, dataset.record)
        past = direct_source(self.connection, dataset.record, self.direct, server)
        assert (past is None) == (self.way == "http")
        dataset.source = past or server
        return dataset

    def check_way(self, dataset: SparseDataset) -> None:
        """See that all that was read of a dataset was read in this way."""
        if self.way == "http":
            assert isinstance(dataset.source, HttpElements)
        else:
            assert isinstance(dataset.source, DirectElements)
            statistics = dataset.source.statistics
            assert statistics.objects > 0
            assert statistics.fallbacks == statistics.small == 0

    def filled(self, model: Model, chunks: tuple[int, ...], **options: Any) -> SparseDataset:
        """Create a dataset with a model's elements."""
        dataset = self.create(
            model.values.shape, model.values.dtype, chunks, fillvalue=model.fill_value, **options
        )
        dataset.write(np.argwhere(model.is_defined), model.values[model.is_defined])
        return dataset


@dataclass(frozen=True, slots=True)
class Model:
    """What a dataset should be: all values, and which of them are defined."""

    values: np.ndarray
    is_defined: np.ndarray
    fill_value: Any = 0

    @classmethod
    def random(cls, shape: tuple[int, ...], dtype: Any, seed: int = 0, fill_value: Any = 0) -> Model:
        """Return a model with a third of the elements defined, some of them zero, or the fill value."""
        rng = np.random.default_rng(seed)
        is_defined = rng.random(shape) < 0.4
        values = np.where(is_defined, rng.integers(0, 5, shape), fill_value).astype(dtype)
        return cls(values, is_defined, fill_value)
