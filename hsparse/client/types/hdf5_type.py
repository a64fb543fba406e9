"""Convert values of any HDF5 type that numpy can hold from the bytes and JSON of the REST API, and back.

Vlen text is an object array of `str`, vlen sequences are an object array of arrays; in a compound, both are object
fields. An array type appends its dimensions to the dimensions of the data, as in h5py.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hsparse.client.errors import InvalidValue, WrongType
from hsparse.client.indexing.places import placed
from hsparse.client.types.datatype import complex_fields, dtype_of, packed, type_item
from hsparse.client.types.text_compound import (
    TEXT_TYPE,
    decode_elements,
    encode_elements,
    object_array,
    sequence_item,
    text_compound_dtype,
    text_compound_item,
)
from hsparse.errors import Unsupported
from hsparse.format.buffer import Buffer
from hsparse.model.attribute import attribute_values
from hsparse.model.element import Compound, Element, Fixed, Region, element_of
from hsparse.model.json_values import Values, array_json, from_json, leaves_of
from hsparse.model.vlen_array import VlenArray, split_elements

Json = dict[str, Any]
OBJECT = np.dtype(object)


@dataclass(frozen=True, slots=True)
class Hdf5Type:
    """An HDF5 type: `item` is its HDF5/JSON, `dtype` is its numpy dtype, which is object for vlen elements."""

    item: Any
    dtype: np.dtype[Any]
    element: Element

    @classmethod
    def parse(cls, item: Any) -> Hdf5Type:
        """Return the type of an HDF5/JSON item."""
        element = element_of(item)
        if isinstance(element, Fixed):
            return cls(item, _fixed_dtype(item, element), element)
        return cls(item, text_compound_dtype(element) if isinstance(element, Compound) else OBJECT, element)

    @classmethod
    def of(cls, values: NDArray[Any], inner: tuple[int, ...] = ()) -> Hdf5Type:
        """Return the type of an array; text (`U`, `T`, or objects that are `str` or `bytes`) is vlen UTF-8.

        With `inner`, each element is an array of that shape. Raise `WrongType` or `Unsupported` for values without a
        type.
        """
        if inner:
            return cls.parse({"class": "H5T_ARRAY", "dims": list(inner), "base": cls.of(values).item})
        if values.dtype.kind in "UT" or (
            values.dtype == OBJECT and all(isinstance(one, str | bytes) for one in values.reshape(-1))
        ):
            return cls.parse(TEXT_TYPE)
        if values.dtype.names is not None and values.dtype.hasobject:
            return cls.parse(text_compound_item(values.dtype))
        if values.dtype == OBJECT:
            raise WrongType(
                "Objects other than str have no HDF5 type: give arrays of numbers, text or compounds."
            )
        return cls.parse(type_item(values.dtype))

    @classmethod
    def of_dtype(cls, dtype: DTypeLike) -> Hdf5Type:
        """Return the type for a dtype: vlen text for `str`, sequences for `h5py.vlen_dtype`, else see `of`."""
        found = np.dtype(dtype)
        sequence = sequence_item(found)
        if sequence is not None:
            return cls.parse(sequence)
        base = dict(found.metadata or {}).get("vlen")
        if found == OBJECT and base is None:
            raise WrongType("dtype=object has no HDF5 type: give dtype=str, or h5py.vlen_dtype(...).")
        return cls.of(np.empty((), found.base), found.shape) if base is None else cls.parse(TEXT_TYPE)

    @property
    def is_vlen(self) -> bool:
        return not isinstance(self.element, Fixed)

    @property
    def inner(self) -> tuple[int, ...]:
        """The dimensions that an array type appends to the dimensions of the data."""
        return self.dtype.shape

    @property
    def wire(self) -> np.dtype[Any]:
        """The dtype of elements in requests and answers: without gaps, and with an array type as one opaque element."""
        dtype = packed(self.dtype)
        return dtype if dtype.subdtype is None else np.dtype(f"V{dtype.itemsize}")

    def unpack(self, values: NDArray[Any]) -> NDArray[Any]:
        """Convert elements of the dtype `wire` to `dtype`; the dimensions of an array type are appended."""
        if self.inner:
            shape = (*values.shape, *self.inner)
            values = np.ndarray(shape, packed(self.dtype.base), bytearray(values.tobytes()))
        return values.astype(self.dtype.base, copy=False)

    def pack(self, values: NDArray[Any]) -> NDArray[Any]:
        """Invert `unpack`; raise `InvalidValue` if the shape does not end with the dimensions of the array type."""
        if self.is_vlen:
            return values
        base = packed(self.dtype.base)
        values = np.ascontiguousarray(complex_fields(values), base).reshape(values.shape)
        if not self.inner:
            return values
        rank = values.ndim - len(self.inner)
        if rank < 0 or values.shape[rank:] != self.inner:
            raise InvalidValue(
                f"The shape of the values, {list(values.shape)}, must end with {list(self.inner)}, the shape of each "
                "element."
            )
        return np.frombuffer(values.tobytes(), self.wire).reshape(values.shape[:rank])

    def decode(self, data: Buffer, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the values in the bytes of an answer, as elements in an array of `shape`."""
        if not self.is_vlen:
            return self.unpack(np.frombuffer(data, self.wire).reshape(shape))
        return self._objects(split_elements(data, self.element, shape))

    def encode(self, values: NDArray[Any]) -> bytes:
        """Return the bytes of values for a request; raise `WrongType` for a vlen value of another type.

        The values may have the dtype `dtype` or, packed, the dtype `wire`.
        """
        if not self.is_vlen:
            return (values if values.dtype == self.wire else self.pack(values)).tobytes()
        return encode_elements(values, self.element)

    def empty(self) -> Any:
        """Return the default fill value of the type: 0, empty text or an empty sequence."""
        if self.is_vlen:
            return self.decode(bytes(self.element.min_size), ())[()]
        return np.zeros(self.inner, self.dtype.base)[()]

    def from_json(self, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """Convert a JSON value, such as a fill value, to an array of `shape`."""
        return self._values(from_json(value, shape, self.element), shape)

    def to_json(self, values: ArrayLike) -> Any:
        """Convert values, such as a fill value, to JSON."""
        if self.is_vlen:
            return np.asarray(values).tolist()
        array = self.pack(np.asarray(values, self.dtype.base))
        dtype = self.element.dtype
        flat = np.ndarray((*array.shape, *self.inner), dtype.base, array.tobytes())
        return array_json(flat)

    def attribute(self, record: Json) -> NDArray[Any] | None:
        """Return the value in the record of an attribute of this type, or None for a null dataspace."""
        shape = shape_of(record["shape"])
        if shape is None:
            return None
        if isinstance(self.element, Region) and record.get("encoding") is None:
            return object_array(leaves_of(record["value"], shape)).reshape(shape)
        return self._values(attribute_values({**record, "type": self.item}), shape)

    def _values(self, values: Values, shape: tuple[int, ...]) -> NDArray[Any]:
        if isinstance(values, VlenArray):
            return self._objects(values)
        return self.unpack(np.ndarray(shape, self.wire, values.tobytes()))

    def _objects(self, values: VlenArray) -> NDArray[Any]:
        """Return vlen elements as an array of objects (`str` or arrays), or compounds as a structured array."""
        return decode_elements(values, self.element)


def take_inner(values: Any, keys: Sequence[Any]) -> Any:
    """Index the last dimensions of an array, which are those of an array type, with one key (also a list) for each."""
    for place, key in enumerate(keys):
        values = values[(..., key, *[slice(None)] * (len(keys) - 1 - place))]
    return values


def _fixed_dtype(item: Any, element: Fixed) -> np.dtype[Any]:
    """Return `dtype_of` a fixed-size type (HDF5's booleans as bool), or `element.dtype` if numpy has no such dtype."""
    try:
        return dtype_of(item)
    except Unsupported:
        return element.dtype


def attribute_body(value: Any) -> dict[str, Any]:
    """Return the request body (`type`, `shape`, `value`) that creates an attribute of anything that numpy takes.

    Text and Python's bytes are vlen; numpy's bytes keep their length. The value None becomes a null dataspace, a bool
    HDF5's usual enum.
    """
    if value is None:
        return {"type": type_item(np.dtype("i1")), "shape": "H5S_NULL"}
    array = np.asarray(value)
    if array.dtype.kind == "S" and not isinstance(value, np.ndarray | np.generic):
        array = array.astype(object)  # Python's bytes have no fixed length, as in h5py
    kind = Hdf5Type.of(array)
    text = b64encode(kind.encode(array)).decode()
    body: dict[str, Any] = {"type": kind.item, "value": text, "encoding": "base64"}
    if array.ndim:
        body["shape"] = list(array.shape)
    return body


def shape_of(dataspace: Any) -> tuple[int, ...] | None:
    """Return the shape in the HDF5/JSON of a dataspace, which is `()` for a scalar, or None for a null dataspace.

    A dataspace with lower bounds gives a `SignedExtent`.
    """
    kind = dataspace if isinstance(dataspace, str) else dataspace.get("class")
    if kind == "H5S_NULL":
        return None
    if kind == "H5S_SCALAR":
        return ()
    lengths = tuple(dataspace["dims"])
    return placed(lengths, dataspace["lower"]) if dataspace.get("lower") else lengths
