"""How chunk objects are decoded and encoded, for one dataset's chunk specification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.dense_chunk import decode_dense, encode_dense
from hsparse.format.sparse_chunk import SparseChunk, decode_sparse, encode_sparse
from hsparse.format.variable_chunk import decode_variable, encode_variable
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
    """Dense chunks of `spec`, whose elements have no fixed size, for the object of `key`."""

    key: str
    spec: ChunkSpec
    element: Element

    def decode(self, data: bytes) -> VariableArray:
        try:
            return decode_variable(data, self.spec.dims, self.element, self.spec.filters[0])
        except Corrupt as error:
            raise Corrupt(f"The chunk object {self.key} is corrupt: {error.message}") from error

    def encode(self, value: VariableArray) -> Buffer:
        return encode_variable(value, self.spec.filters[0])

    def nbytes(self, value: VariableArray, stored: int) -> int:
        return value.nbytes

    def work(self, nbytes: int) -> int:
        return nbytes


def codec_for(key: str, spec: ChunkSpec, datatype: Datatype) -> SparseCodec | DenseCodec | VariableCodec:
    """Return the codec of the chunk at `key`; `Unsupported` for sparse chunks of a variable-length type."""
    if not datatype.is_variable:
        codec = SparseCodec if spec.sparse else DenseCodec
        return codec(key, spec, datatype.stored)
    if spec.sparse:
        raise Unsupported("Sparse chunks of a variable-length datatype are not supported.")
    return VariableCodec(key, spec, datatype.element)
