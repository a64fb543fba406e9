"""Encode elements of a sparse dataset for requests: fixed-size elements, or elements with vlen parts."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import InvalidValue, WrongType
from hsparse.client.memory_limit import TEXT_BYTES
from hsparse.client.sparse.sparse_values import cast_values
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.client.types.text_compound import object_array
from hsparse.errors import HsparseError
from hsparse.format.selections.points import Selection
from hsparse.model.element import Compound, VlenString
from hsparse.model.vlen_array import split_elements
from hsparse.optional_module import OptionalModule

REGION = OptionalModule("hsparse.format.structured.region")
"""Imported on use, so that reading a first value does not wait for it."""
Array = NDArray[Any]


class ElementCodec(Protocol):
    """Encodes values as request bodies; `nbytes` is the approximate size of an element in a body."""

    nbytes: int

    def cast(self, values: Any) -> Array:
        """Return values in the dataset's type; raise `WrongType` or `InvalidValue` if the values do not fit."""
        ...

    def dense(self, values: Array) -> bytes:
        """Encode all values of a selection, in the selection's order, as dense bytes; `values` come from `cast`."""
        ...

    def region(self, selection: Selection, values: Array) -> bytes:
        """Encode a selection and its values (n,), which come from `cast`, as a structured chunk."""
        ...


class FixedCodec:
    """The codec of fixed-size elements. The dimensions of an array type are the last dimensions of the values."""

    def __init__(self, kind: Hdf5Type) -> None:
        self._type = kind
        self.nbytes = kind.dtype.itemsize

    def cast(self, values: Any) -> Array:
        """See `ElementCodec`."""
        if isinstance(values, np.ndarray) and values.dtype == self._type.wire:
            return values
        return self._type.pack(cast_values(values, self._type.dtype.base))

    def dense(self, values: Array) -> bytes:
        """See `ElementCodec`."""
        return values.tobytes()

    def region(self, selection: Selection, values: Array) -> bytes:
        """See `ElementCodec`."""
        found: bytes = REGION.load().encode_region(selection, values)
        return found


class VlenCodec:
    """The codec of text, sequences (lists or arrays) and compounds with these, which are Python objects.

    Several sequences are an array of objects or a list of lists, (n,); a list of numbers is one sequence.
    """

    nbytes = TEXT_BYTES

    def __init__(self, kind: Hdf5Type) -> None:
        self._type = kind

    def cast(self, values: Any) -> Array:
        """See `ElementCodec`."""
        dtype = self._type.dtype
        if isinstance(values, np.ndarray) and values.dtype == dtype:
            return values
        try:
            if isinstance(self._type.element, VlenString | Compound):
                return np.asarray(values, dtype)
            if all(np.ndim(one) == 0 and not isinstance(one, str | bytes) for one in values):
                return object_array([values]).reshape(())
            return object_array(values)
        except (TypeError, ValueError) as error:
            raise WrongType(f"The values do not fit a dataset of {self._type.item}: {error}.") from error

    def dense(self, values: Array) -> bytes:
        """See `ElementCodec`."""
        try:
            return self._type.encode(values)
        except HsparseError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidValue(f"The values do not fit a dataset of {self._type.item}: {error}.") from error

    def region(self, selection: Selection, values: Array) -> bytes:
        """See `ElementCodec`."""
        element = self._type.element
        elements = split_elements(self.dense(values), element, values.shape)
        found: bytes = REGION.load().encode_vlen_region(selection, elements, element)
        return found


def codec_of(kind: Hdf5Type) -> ElementCodec:
    """Return the codec for the elements of a type."""
    return VlenCodec(kind) if kind.is_vlen else FixedCodec(kind)
