"""Values of any HDF5 type that numpy can hold, from the bytes and JSON of the REST API, and back.

Variable-length text is an object array of `str`, a variable-length sequence an object array of arrays; in a compound
text is a field of `str` objects. What numpy has no form for here (compounds with sequences, region references) is
refused by name.

Tests: tests/client/test_dense_dataset.py, tests/client/test_group.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import NotImplementedHere, WrongType
from hsparse.client.types.datatype import dtype_of, type_item
from hsparse.client.types.text_compound import (
    TEXT_TYPE,
    decode_text_compounds,
    encode_text_compounds,
    text_compound_dtype,
    text_compound_item,
)
from hsparse.errors import Unsupported
from hsparse.format.buffer import Buffer
from hsparse.model.element import Compound, Element, Fixed, VlenSequence, VlenString, element_of
from hsparse.model.json_values import from_json
from hsparse.model.length_prefixed import add_prefixes, split_elements, strip_prefixes
from hsparse.model.vlen_array import VlenArray

OBJECT = np.dtype(object)


@dataclass(frozen=True, slots=True)
class Hdf5Type:
    """A type of HDF5: `item` is its HDF5/JSON, `dtype` numpy's, object for variable-length elements."""

    item: Any
    dtype: np.dtype[Any]
    element: Element

    @classmethod
    def parse(cls, item: Any) -> Hdf5Type:
        """Return the type of an HDF5/JSON item; `NotImplementedHere` if numpy has no form for it."""
        element = element_of(item)
        if isinstance(element, Fixed):
            return cls(item, _fixed_dtype(item, element), element)
        if isinstance(element, VlenString) or (
            isinstance(element, VlenSequence) and isinstance(element.base, Fixed)
        ):
            return cls(item, OBJECT, element)
        if isinstance(element, Compound) and all(
            isinstance(one, Fixed | VlenString) for one in element.parts
        ):
            return cls(item, text_compound_dtype(element), element)
        raise NotImplementedHere(
            f"Elements of {_class_of(item)} have variable-length parts, which only h5pyd reads: use it for this object."
        )

    @classmethod
    def of(cls, values: NDArray[Any]) -> Hdf5Type:
        """Return the type of an array: text (`U`, `T`, or objects that are `str`) is variable-length UTF-8."""
        if values.dtype.kind in "UT" or (
            values.dtype == OBJECT and all(isinstance(one, str) for one in values.reshape(-1))
        ):
            return cls.parse(TEXT_TYPE)
        if values.dtype.names is not None and values.dtype.hasobject:
            return cls.parse(text_compound_item(values.dtype))
        if values.dtype == OBJECT:
            raise WrongType(
                "Objects other than str have no HDF5 type: give arrays of numbers, text or compounds."
            )
        return cls.parse(type_item(values.dtype))

    @property
    def is_vlen(self) -> bool:
        return not isinstance(self.element, Fixed)

    def decode(self, data: Buffer, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the values in the bytes of an answer, which has elements of `shape`."""
        if not self.is_vlen:
            return np.frombuffer(data, self.dtype).reshape(shape)
        return self._objects(split_elements(data, self.element, shape))

    def encode(self, values: NDArray[Any]) -> bytes:
        """Return values as the bytes of a request; `WrongType` for what is no text or number."""
        if not self.is_vlen:
            return np.ascontiguousarray(values, self.dtype).tobytes()
        if isinstance(self.element, Compound):
            return encode_text_compounds(values, self.element)
        pieces = [self._piece(one) for one in values.reshape(-1)]
        sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
        return add_prefixes(np.frombuffer(b"".join(pieces), np.uint8), sizes).heap.tobytes()

    def from_json(self, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return a JSON value, an attribute's or a fill value, as an array of `shape`."""
        values = from_json(value, shape, self.element)
        if isinstance(values, VlenArray):
            return self._objects(values)
        return values.view(self.dtype)

    def _objects(self, values: VlenArray) -> NDArray[Any]:
        """Return an object array: `str`, or arrays of the sequence's elements; of a compound its fields."""
        if isinstance(self.element, Compound):
            return decode_text_compounds(values, self.element)
        data, sizes = strip_prefixes(values)
        whole = data.tobytes()
        result = np.empty(len(sizes), object)
        start = 0
        for place, size in enumerate(sizes.tolist()):
            part = whole[start : start + size]
            result[place] = self._object(part)
            start += size
        return result.reshape(values.shape)

    def _object(self, data: bytes) -> Any:
        if isinstance(self.element, VlenString):
            return data.decode(errors="surrogateescape")
        assert isinstance(self.element, VlenSequence)
        assert isinstance(self.element.base, Fixed)
        return np.frombuffer(data, self.element.base.dtype)

    def _piece(self, value: Any) -> bytes:
        if isinstance(self.element, VlenString):
            if isinstance(value, str | bytes):
                return value.encode(errors="surrogateescape") if isinstance(value, str) else value
            raise WrongType(f"{value!r:.40} is no text; the elements of this dataset are.")
        assert isinstance(self.element, VlenSequence)
        assert isinstance(self.element.base, Fixed)
        return np.asarray(value, self.element.base.dtype).tobytes()


def _fixed_dtype(item: Any, element: Fixed) -> np.dtype[Any]:
    """Return numpy's form of a fixed-size type: with bool for HDF5's booleans if nothing in it prevents that."""
    try:
        return dtype_of(item)
    except Unsupported:
        return element.dtype


def _class_of(item: Any) -> str:
    return str(item.get("class", item)) if isinstance(item, dict) else str(item)


def attribute_body(value: Any) -> dict[str, Any]:
    """Return the body that creates an attribute: `type`, `shape` and `value` of anything numpy takes.

    Text is variable-length, None is HDF5's null dataspace, a bool is HDF5's usual enum.
    """
    if value is None:
        return {"type": type_item(np.dtype("i1")), "shape": "H5S_NULL"}
    array = np.asarray(value)
    kind = Hdf5Type.of(array)
    if array.dtype.kind == "c":
        raise WrongType("Complex numbers have no HDF5 type here: store the real and the imaginary part.")
    plain = array.tolist() if kind.is_vlen or array.dtype.kind != "S" else np.char.decode(array).tolist()
    body: dict[str, Any] = {"type": kind.item, "value": plain}
    if array.ndim:
        body["shape"] = list(array.shape)
    return body


def shape_of(dataspace: Any) -> tuple[int, ...] | None:
    """Return the shape in a dataspace's HDF5/JSON: None for a null one, `()` for a scalar."""
    kind = dataspace if isinstance(dataspace, str) else dataspace.get("class")
    if kind == "H5S_NULL":
        return None
    return () if kind == "H5S_SCALAR" else tuple(dataspace["dims"])
