"""Ways to a sparse dataset: a test that takes `dataset_access` runs over each, one with `http_access` over HTTP."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hsparse.client.connection import Connection
from hsparse.client.integrations.direct.direct_elements import DirectElements
from hsparse.client.integrations.direct.direct_source import direct_source
from hsparse.client.sources.elements import Direct
from hsparse.client.sources.http_elements import HttpElements
from hsparse.client.sparse_dataset import SparseDataset
from tests.client.access_ways import WAYS, served
from tests.support.endurance import repeats

V = TypeVar("V")

NUMBERS = itertools.count()


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
