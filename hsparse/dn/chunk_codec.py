"""How chunk objects are decoded and encoded, for one dataset's chunk specification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.kinds.dense_chunk import decode_dense, encode_dense
from hsparse.format.kinds.sparse_chunk import SparseChunk, decode_sparse, encode_sparse
from hsparse.format.kinds.vlen_chunk import (
    SparseVlenChunk,
    decode_bare_vlen,
    decode_dense_vlen,
    decode_sparse_vlen,
    encode_bare_vlen,
    encode_dense_vlen,
    encode_sparse_vlen,
)
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.datatype import Datatype
from hsparse.model.element import Element
from hsparse.model.variable_array import VariableArray
from hsparse.storage.object_store import Buffer


@dataclass(frozen=True, slots=True)
class SparseCodec:
    """Structured chunks of `spec`, for the object of `key`."""

    key: str
    spec: ChunkSpec
    dtype: np.dtype[Any]

    def decode(self, data: bytes) -> SparseChunk:
        try:
            return decode_sparse(data, self.spec.dims, self.dtype, self.spec.filters)
        except Corrupt as error:
            raise Corrupt(f"The chunk object {self.key} is corrupt: {error.message}") from error

    def encode(self, value: SparseChunk) -> Buffer:
        return encode_sparse(value, self.spec.filters)

    def nbytes(self, value: SparseChunk, stored: int) -> int:
        return value.nbytes

    def work(self, nbytes: int) -> int:
        return nbytes


@dataclass(frozen=True, slots=True)
class DenseCodec:
    """Dense chunks of `spec`, for the object of `key`; decoded arrays are read-only."""

    key: str
    spec: ChunkSpec
    dtype: np.dtype[Any]

    def decode(self, data: bytes) -> NDArray[Any]:
        try:
            array = decode_dense(data, self.spec.dims, self.dtype, self.spec.filters[0])
        except Corrupt as error:
            raise Corrupt(f"The chunk object {self.key} is corrupt: {error.message}") from error
        array.flags.writeable = False
        return array

    def encode(self, value: NDArray[Any]) -> Buffer:
        value.flags.writeable = False
        return encode_dense(value, self.spec.filters[0])

    def nbytes(self, value: NDArray[Any], stored: int) -> int:
        return value.nbytes

    def work(self, nbytes: int) -> int:
        return nbytes


@dataclass(frozen=True, slots=True)
class VariableCodec:
    """Dense chunks of `spec`, whose elements have no fixed size, for the object of `key`.

    As structured chunks where the layout says so, else as HSDS has them.
    """

    key: str
    spec: ChunkSpec
    element: Element

    def decode(self, data: bytes) -> VariableArray:
        spec = self.spec
        try:
            if spec.structured:
                return decode_dense_vlen(data, spec.dims, self.element, spec.filters)
            return decode_bare_vlen(data, spec.dims, self.element, spec.filters[0])
        except Corrupt as error:
            raise Corrupt(f"The chunk object {self.key} is corrupt: {error.message}") from error

    def encode(self, value: VariableArray) -> Buffer:
        if self.spec.structured:
            return encode_dense_vlen(value, self.element, self.spec.filters)
        return encode_bare_vlen(value, self.spec.filters[0])

    def nbytes(self, value: VariableArray, stored: int) -> int:
        return value.nbytes

    def work(self, nbytes: int) -> int:
        return nbytes


@dataclass(frozen=True, slots=True)
class SparseVariableCodec:
    """Structured chunks of `spec`, whose elements have no fixed size, for the object of `key`."""

    key: str
    spec: ChunkSpec
    element: Element

    def decode(self, data: bytes) -> SparseVlenChunk:
        try:
            return decode_sparse_vlen(data, self.spec.dims, self.element, self.spec.filters)
        except Corrupt as error:
            raise Corrupt(f"The chunk object {self.key} is corrupt: {error.message}") from error

    def encode(self, value: SparseVlenChunk) -> Buffer:
        return encode_sparse_vlen(value, self.element, self.spec.filters)

    def nbytes(self, value: SparseVlenChunk, stored: int) -> int:
        return value.nbytes

    def work(self, nbytes: int) -> int:
        return nbytes


def codec_for(
    key: str, spec: ChunkSpec, datatype: Datatype
) -> SparseCodec | DenseCodec | VariableCodec | SparseVariableCodec:
    """Return the codec of the chunk at `key`."""
    if datatype.is_variable:
        variable = SparseVariableCodec if spec.sparse else VariableCodec
        return variable(key, spec, datatype.element)
    codec = SparseCodec if spec.sparse else DenseCodec
    return codec(key, spec, datatype.stored)
