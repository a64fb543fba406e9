"""The types that programs use, by name, for h5py and h5pyd alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hsparse.testing.random_types import RandomTypes

Dtype = np.dtype[Any]

NUMERIC = ("<i1", "<u2", ">i4", "<i8", "<u8", "<f2", ">f4", "<f8")

_MAKERS: dict[str, Callable[[Any], Dtype]] = {
    "S5": lambda lib: np.dtype("S5"),
    "bool": lambda lib: np.dtype(bool),
    "complex": lambda lib: np.dtype("<c16"),
    "enum": lambda lib: lib.special_dtype(enum=("i2", {"a": 1, "b": -5})),
    "opaque": lambda lib: np.dtype("V3"),
    "text": lambda lib: lib.special_dtype(vlen=str),
    "ascii": lambda lib: lib.special_dtype(vlen=bytes),
    "sequence": lambda lib: lib.special_dtype(vlen=np.dtype("<i4")),
    "array": lambda lib: np.dtype("(3,)<i4"),
    "row": lambda lib: np.dtype([("n", "<i4"), ("x", ">f8"), ("t", "S4")]),
    "record": lambda lib: np.dtype(
        [
            ("n", "<i4"),
            ("s", lib.special_dtype(vlen=str)),
            ("v", lib.special_dtype(vlen=np.dtype("<f4"))),
        ]
    ),
    "nested": lambda lib: np.dtype([("in", [("a", "<i2"), ("b", "?")]), ("xyz", "<f4", (3,)), ("k", "<u1")]),
}

TYPES = (*NUMERIC, *_MAKERS)
COMPOUNDS = {"row": ("n", "x", "t"), "record": ("n", "s", "v"), "nested": ("in", "xyz", "k")}
WRITTEN_FIELDS = {"row": ("n", "x", "t"), "record": ("n",), "nested": ("xyz", "k")}
"""Fields that both libraries write: h5py none of variable length, h5pyd no compounds."""
TEXTS = ("text", "ascii", "S5")
FILLED = (*NUMERIC, "S5", "bool", "enum", "text", "row")
"""Types of datasets that are given fill values."""


def make_type(library: Any, name: str) -> Dtype:
    """Return a type of h5py or h5pyd by its name."""
    return _MAKERS[name](library) if name in _MAKERS else np.dtype(name)


def make_values(library: Any, dtype: Dtype, shape: tuple[int, ...], seed: int) -> Any:
    """Return values of a type: the same ones for the same seed. A scalar for the shape ()."""
    if dtype.subdtype is not None:
        shape, dtype = (*shape, *dtype.shape), dtype.base
    values = RandomTypes(library, seed).values(dtype, shape)
    return values if shape else values[()]
