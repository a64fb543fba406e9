"""The registry of chunk kinds, and of arrays of values. A new kind is one module beside the others and one row here."""

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
"""By two properties of a dataset: whether it is sparse, and whether its elements have a variable length."""


def kind_of(spec: ChunkSpec) -> ChunkKind[Any]:
    """Return the kind of the chunks that a specification describes."""
    return KINDS[spec.sparse, spec.is_vlen](spec)


def arrays_of(spec: ChunkSpec) -> FixedArrays | VlenArrays:
    """Return the arrays of the values that a specification describes."""
    datatype = spec.datatype
    if datatype.is_vlen:
        return VlenArrays(datatype.element, spec.vlen_fill, datatype.guessed_size)
    return FixedArrays(datatype.element_dtype, spec.fill_value, datatype.element)
