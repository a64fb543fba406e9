"""The structure of a datatype's elements: a tree of fixed-size parts (numpy dtypes) and variable-length parts.

The tree is built from a type item. h5json's own conversion rejects types that HDF5 allows (arrays of enums, booleans,
references and opaque data; non-ASCII field names). Dtypes carry the metadata that h5json and h5py look for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np

MAX_ARRAY_RANK = 32
"""The most dimensions of nested array types together: numpy allows 64, and a dataspace may use 32 of them."""
PREFIX_SIZE = 4
"""Bytes of the length that precedes a variable-length part."""
HEAP_REFERENCE_SIZE = 16
"""Bytes of a global heap reference, which an HDF5 file stores in place of a variable-length part."""
Dtype: TypeAlias = np.dtype[Any]
OBJECT_REFERENCE: Dtype = np.dtype("S48", metadata={"reference": "object"})


@dataclass(frozen=True, slots=True)
class Fixed:
    """A part with a fixed size of `dtype.itemsize` bytes."""

    dtype: Dtype

    @property
    def min_size(self) -> int:
        """The fewest bytes that the part may take in length-prefixed form."""
        return self.dtype.itemsize

    @property
    def file_size(self) -> int:
        """The bytes that the part takes inside an element of an HDF5 file, without its data on the global heap."""
        return self.dtype.itemsize

    @property
    def references(self) -> int:
        """The number of heap references of the part in an HDF5 file's element, without references on the heap."""
        return 0


@dataclass(frozen=True, slots=True)
class OnHeap:
    """A part of variable length, which an HDF5 file stores on a global heap."""

    dtype: Dtype
    min_size: int = field(default=PREFIX_SIZE, init=False)
    file_size: int = field(default=HEAP_REFERENCE_SIZE, init=False)
    references: int = field(default=1, init=False)


class VlenString(OnHeap):
    """A string of variable length."""


class Region(OnHeap):
    """A region reference, encoded as bytes by h5json; a null reference has no bytes."""


@dataclass(frozen=True, slots=True)
class VlenSequence(OnHeap):
    """A variable-length sequence of `base` elements."""

    base: Element


@dataclass(frozen=True, slots=True)
class ArrayOfVlen:
    """An array type of shape `dims` whose `base` has no fixed size."""

    dtype: Dtype
    dims: tuple[int, ...]
    base: Element

    @property
    def min_size(self) -> int:
        return prod(self.dims) * self.base.min_size

    @property
    def file_size(self) -> int:
        return prod(self.dims) * self.base.file_size

    @property
    def references(self) -> int:
        return prod(self.dims) * self.base.references


@dataclass(frozen=True, slots=True)
class Compound:
    """A compound with at least one part that has no fixed size."""

    dtype: Dtype
    names: tuple[str, ...]
    parts: tuple[Element, ...]

    @property
    def min_size(self) -> int:
        return sum(part.min_size for part in self.parts)

    @property
    def file_size(self) -> int:
        return sum(part.file_size for part in self.parts)

    @property
    def references(self) -> int:
        return sum(part.references for part in self.parts)


Element: TypeAlias = Fixed | VlenString | Region | VlenSequence | ArrayOfVlen | Compound


FIELD_BYTES = 256
"""Estimated bytes of memory for one field of a numpy dtype."""


def dtype_bytes(dtype: Dtype) -> int:
    """Return the estimated bytes of memory that a dtype takes, which grow with its fields and enum names."""
    metadata: Mapping[str, Any] = dtype.metadata or {}
    base = dtype.base
    inner = metadata.get("vlen")
    nbytes = FIELD_BYTES * (1 + len(metadata.get("enum", ())))
    nbytes += dtype_bytes(inner) if isinstance(inner, np.dtype) else 0
    return nbytes + sum(dtype_bytes(base[name]) for name in base.names or ())


def element_bytes(element: Element) -> int:
    """Return the estimated bytes of memory that an element's structure takes."""
    match element:
        case Compound(dtype=dtype, parts=parts):
            return dtype_bytes(dtype) + sum(map(element_bytes, parts))
        case ArrayOfVlen(dtype=dtype, base=base) | VlenSequence(dtype=dtype, base=base):
            return dtype_bytes(dtype) + element_bytes(base)
        case _:
            return dtype_bytes(element.dtype)


def is_object_reference(dtype: Dtype) -> bool:
    """Return whether a dtype of fixed-size strings is the dtype of object references."""
    return "reference" in (dtype.metadata or {})


def element_of(item: Any) -> Element:
    """Return the structure of a type item's elements; raise `ValueError`, `TypeError` or `KeyError` if invalid."""
    if isinstance(item, str):
        return _predefined(item)
    return _BUILDERS[item["class"]](item)


def compound_of(fields: Iterable[tuple[str, Element]]) -> Element:
    """Return the compound of `(name, part)` pairs, a `Fixed` if all parts are; raise `ValueError` for equal names."""
    pairs = list(fields)
    dtype = np.dtype([(name, part.dtype) for name, part in pairs])
    if all(isinstance(part, Fixed) for _, part in pairs):
        return Fixed(dtype)
    return Compound(dtype, tuple(name for name, _ in pairs), tuple(part for _, part in pairs))


def _predefined(name: str) -> Fixed:
    for prefix, kind, sizes in _NUMBERS:
        bits = name.removeprefix(prefix)
        order = ">" if bits.endswith("BE") else "<"
        bits = bits.removesuffix("LE").removesuffix("BE")
        if bits != name and bits in sizes:
            return Fixed(np.dtype(f"{order}{kind}{int(bits) // 8}"))
    raise ValueError(f"{name} is not a predefined type")


def _integer(item: dict[str, Any]) -> Fixed:
    base = item["base"]
    if not base.startswith(("H5T_STD_I", "H5T_STD_U")):
        raise ValueError(f"{base} is no integer type")
    return _predefined(base)


def _float(item: dict[str, Any]) -> Fixed:
    if not item["base"].startswith("H5T_IEEE_F"):
        raise ValueError(f"{item['base']} is no float type")
    return _predefined(item["base"])


def _bitfield(item: dict[str, Any]) -> Fixed:
    base = item["base"]
    if not base.startswith("H5T_STD_B"):
        raise ValueError("a bitfield's base must be one of H5T_STD_B8LE to H5T_STD_B64BE")
    return _predefined(base)


def _string(item: dict[str, Any]) -> Element:
    charset = item.get("charSet")
    if charset not in ("H5T_CSET_ASCII", "H5T_CSET_UTF8"):
        raise ValueError("a string's charSet must be H5T_CSET_ASCII or H5T_CSET_UTF8")
    utf8 = charset == "H5T_CSET_UTF8"
    if item["length"] == "H5T_VARIABLE":
        return VlenString(np.dtype("O", metadata={"vlen": str if utf8 else bytes}))
    kind = f"S{item['length']}"
    return Fixed(np.dtype(kind, metadata={"h5py_encoding": "utf-8"}) if utf8 else np.dtype(kind))


def _opaque(item: dict[str, Any]) -> Fixed:
    return Fixed(np.dtype(f"V{item['size']}"))


def _reference(item: dict[str, Any]) -> Element:
    if item["base"] == "H5T_STD_REF_OBJ":
        return Fixed(OBJECT_REFERENCE)
    if item["base"] == "H5T_STD_REF_DSETREG":
        return Region(np.dtype("O"))
    raise ValueError("a reference's base must be H5T_STD_REF_OBJ or H5T_STD_REF_DSETREG")


def _enum(item: dict[str, Any]) -> Fixed:
    base = element_of(item["base"])
    if not isinstance(base, Fixed) or base.dtype.kind not in "iu":
        raise ValueError("an enum's base must be an integer type")
    mapping = item["mapping"] if "mapping" in item else item["members"]
    values = {one["name"]: one["value"] for one in mapping} if isinstance(mapping, list) else dict(mapping)
    if not values:
        raise ValueError("an enum's mapping must have at least one name")
    if values == {"FALSE": 0, "TRUE": 1} and base.dtype == np.dtype("i1"):
        return Fixed(np.dtype(bool))  # a boolean, as h5py writes one
    limits = np.iinfo(base.dtype)
    if min(values.values()) < limits.min or max(values.values()) > limits.max:
        raise ValueError(f"an enum's values must fit its base, {limits.min} to {limits.max}")
    return Fixed(np.dtype(base.dtype, metadata={"enum": values}))


def _sequence(item: dict[str, Any]) -> VlenSequence:
    base = element_of(item["base"])
    return VlenSequence(np.dtype("O", metadata={"vlen": base.dtype}), base)


def _array(item: dict[str, Any]) -> Element:
    dims = item["dims"]
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    base = element_of(item["base"])
    dtype = np.dtype((base.dtype, dims))
    rank, inner = 0, dtype
    while inner.subdtype is not None:
        rank, inner = rank + len(inner.shape), inner.subdtype[0]
    if rank > MAX_ARRAY_RANK:
        raise ValueError(f"nested arrays can have {MAX_ARRAY_RANK} dimensions in total, not {rank}")
    return Fixed(dtype) if isinstance(base, Fixed) else ArrayOfVlen(dtype, dims, base)


def _compound(item: dict[str, Any]) -> Element:
    return compound_of((field["name"], element_of(field["type"])) for field in item["fields"])


_NUMBERS = (
    ("H5T_STD_I", "i", ("8", "16", "32", "64")),
    ("H5T_STD_U", "u", ("8", "16", "32", "64")),
    ("H5T_STD_B", "u", ("8", "16", "32", "64")),
    ("H5T_IEEE_F", "f", ("16", "32", "64")),
)
_BUILDERS = {
    "H5T_INTEGER": _integer,
    "H5T_FLOAT": _float,
    "H5T_STRING": _string,
    "H5T_BITFIELD": _bitfield,
    "H5T_OPAQUE": _opaque,
    "H5T_REFERENCE": _reference,
    "H5T_ENUM": _enum,
    "H5T_VLEN": _sequence,
    "H5T_ARRAY": _array,
    "H5T_COMPOUND": _compound,
}
