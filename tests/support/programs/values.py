"""Types and values of programs, the same for h5py and h5pyd: named types, random types, and values made comparable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def plain(library: Any, value: Any) -> Any:
    """Return a value made of lists, numbers, bytes and text. Region and object references say only if there is one."""
    if isinstance(value, np.void) and value.dtype.names:
        return [plain(library, value[name]) for name in value.dtype.names]
    if isinstance(value, np.void):
        return value.tobytes()
    if isinstance(value, np.ndarray):
        return [plain(library, part) for part in value] if value.ndim else plain(library, value[()])
    if isinstance(value, library.Reference | library.RegionReference):
        return "reference" if value else "null reference"
    if isinstance(value, library.Empty):
        return ["empty", plain_type(library, value.dtype)]
    if isinstance(value, list | tuple):
        return [plain(library, part) for part in value]
    value = value.item() if isinstance(value, np.generic) else value
    return repr(value) if isinstance(value, float | complex) else value


def plain_type(library: Any, dtype: np.dtype[Any]) -> Any:
    """Return a type's description, the same for h5py's dtypes and h5pyd's."""
    if dtype.names is not None:
        return {name: plain_type(library, dtype[name]) for name in dtype.names}
    if dtype.subdtype is not None:
        return ["array", list(dtype.shape), plain_type(library, dtype.base)]
    base = library.check_dtype(vlen=dtype)
    if base is not None:
        return ["sequence", base.__name__ if isinstance(base, type) else plain_type(library, np.dtype(base))]
    reference = library.check_dtype(ref=dtype)
    if reference is not None:
        return ["reference", reference.__name__]
    members = None if dtype.kind == "b" else library.check_dtype(enum=dtype)
    return dtype.str if members is None else ["enum", dtype.str, dict(members)]


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
        [("n", "<i4"), ("s", lib.special_dtype(vlen=str)), ("v", lib.special_dtype(vlen=np.dtype("<f4")))]
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
