"""Random types that h5py and h5pyd both have, with values of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Dtype = np.dtype[Any]
NUMBERS = ("<i1", ">i2", "<u4", "<i8", "<f2", ">f4", "<f8")


class RandomTypes:
    """Draws types of a library (h5py or h5pyd): the same ones for the same seed."""

    def __init__(self, library: Any, seed: int) -> None:
        self._library = library
        self.rng = np.random.default_rng(seed)

    def draw(self, depth: int = 2) -> Dtype:
        """Return a type, compounds in compounds `depth` deep."""
        kind = int(self.rng.integers(0, 10))
        if depth and kind < 4:
            count = int(self.rng.integers(2, 5))
            return np.dtype([(f"f{n}", self._field(depth - 1)) for n in range(count)])
        if depth and kind < 5:
            base = np.dtype([("a", self._one_of("<i2", "<f8", "S3")), ("b", self._one_of("<u1", "<f4"))])
            return self._special(vlen=base)
        return self._leaf()

    def values(self, dtype: Dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array of values."""
        array: np.ndarray = np.empty(shape, dtype) if dtype.hasobject else np.zeros(shape, dtype)
        for place in np.ndindex(shape):
            array[place] = self._value(dtype)
        return array

    def _field(self, depth: int) -> Dtype:
        dtype = self.draw(depth)
        plain = dtype.kind in "iuf" and self._library.check_dtype(enum=dtype) is None
        return np.dtype((dtype, (2,))) if plain and self.rng.random() < 0.3 else dtype

    def _leaf(self) -> Dtype:
        kinds: list[Callable[[], Dtype]] = [
            lambda: self._one_of(*NUMBERS),
            lambda: np.dtype(f"S{self.rng.integers(1, 6)}"),
            lambda: np.dtype(bool),
            lambda: self._special(vlen=str),
            lambda: self._special(vlen=bytes),
            lambda: self._special(enum=("i2", {"a": 1, "b": -5})),
            lambda: np.dtype("V3"),
            lambda: self._special(vlen=self._one_of("<i2", "<f8", "<u1")),
        ]
        return kinds[int(self.rng.integers(0, len(kinds)))]()

    def _one_of(self, *names: str) -> Dtype:
        return np.dtype(names[int(self.rng.integers(0, len(names)))])

    def _special(self, **kind: Any) -> Dtype:
        dtype: Dtype = self._library.special_dtype(**kind)
        return dtype

    def _value(self, dtype: Dtype) -> Any:
        if dtype.subdtype is not None:
            return self.values(dtype.base, dtype.shape)
        if dtype.names is not None:
            return tuple(self._value(dtype[name]) for name in dtype.names)
        base = self._library.check_dtype(vlen=dtype)
        count = int(self.rng.integers(0, 4))
        if base is str:
            return "ä%" * count
        if base is bytes:
            return b"xy" * count
        if base is not None:
            return self.values(np.dtype(base), (count + 1,))
        if self._library.check_dtype(enum=dtype) is not None:
            return (1, -5)[count % 2]
        if dtype.kind == "S":
            return b"q" * min(count, dtype.itemsize)
        if dtype.kind == "V":
            return np.void(bytes(self.rng.integers(1, 255, dtype.itemsize).tolist()))
        if dtype.kind == "b":
            return bool(count % 2)
        return float(self.rng.integers(-8, 8)) / 2 if dtype.kind == "f" else int(self.rng.integers(0, 100))
