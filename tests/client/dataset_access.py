"""Ways to a sparse dataset: tests that take `dataset_access` run over each of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset

WAYS = ("http",)
NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class DatasetAccess:
    """One way to datasets: `way` says how their elements are read."""

    way: str
    connection: Connection

    def create(
        self, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...], **options: Any
    ) -> SparseDataset:
        """Create a dataset and return it as this way reads it."""
        assert self.way == "http"
        path = f"/way/{next(NUMBERS)}"
        return SparseDataset.create(self.connection, path, shape, dtype, chunks, **options)

    def filled(self, model: Model, chunks: tuple[int, ...], **options: Any) -> SparseDataset:
        """Create a dataset with a model's elements."""
        dataset = self.create(
            model.values.shape, model.values.dtype, chunks, fill_value=model.fill_value, **options
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
