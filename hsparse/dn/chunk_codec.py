"""How chunk objects are decoded and encoded, for one dataset's chunk specification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.dense_chunk import decode_dense, encode_dense
from hsparse.format.sparse_chunk import SparseChunk, decode_sparse, encode_sparse
from hsparse.model.chunk_spec import ChunkSpec
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
