"""The registry of chunk kinds and of value arrays. A new kind needs one module of this package and one entry here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.chunk_kind import ChunkKind
from hsparse.format.kinds.dense import Dense
from hsparse.format.kinds.dense_vlen import DenseVlen
from hsparse.format.kinds.sparse import Sparse
from hsparse.format.kinds.sparse_vlen import SparseVlen
from hsparse.format.value_arrays import FixedArrays, VlenArrays

KINDS: dict[tuple[bool, bool], Callable[[ChunkSpec], ChunkKind[Any]]] = {
    (False, False): Dense,
    (True, False): Sparse,
    (False, True): DenseVlen,
    (True, True): SparseVlen,
}
"""The chunk kinds by `(is sparse, is vlen)`: vlen datasets have elements of variable length."""


def kind_of(spec: ChunkSpec) -> ChunkKind[Any]:
    """Return the kind of chunks that a specification describes."""
    return KINDS[spec.sparse, spec.is_vlen](spec)


def arrays_of(spec: ChunkSpec) -> FixedArrays | VlenArrays:
    """Return the value arrays of the dataset that a specification describes."""
    datatype = spec.datatype
    if datatype.is_vlen:
        return VlenArrays(datatype.element, spec.vlen_fill, datatype.guessed_size)
    return FixedArrays(datatype.element_dtype, spec.fill_value, datatype.element)
