"""The common part of the kinds of sparse chunk: operations that need only the offsets of the defined elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.format.buffer import Buffer
from hsparse.format.chunk_map import UNFILTERED
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.chunk_kind import ChunkChange
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Selection
from hsparse.format.structured.container import claimed_sizes


class SparseColumns(Protocol):
    """The common part of sparse chunks of all kinds: the ascending offsets of the elements, (n,) uint32."""

    @property
    def offsets(self) -> NDArray[np.uint32]: ...

    @property
    def nbytes(self) -> int: ...

    def select(self, mask: NDArray[np.bool_]) -> Self:
        """Return the chunk with only the elements where `mask: (n,)` is set."""
        ...


Chunk = TypeVar("Chunk", bound=SparseColumns)


class SparseKind(Generic[Chunk]):
    """The common part of every `ChunkKind` of sparse chunks."""

    spec: ChunkSpec

    def missing(self, scaled: tuple[int, ...]) -> None:
        return None

    def count(self, chunk: Chunk, selection: Selection) -> int:
        offsets = chunk.offsets
        return len(offsets) if selection.is_all else int(np.count_nonzero(selection.contains(offsets)))

    def erase(self, selection: Selection) -> ChunkChange[Chunk, None]:
        def change(chunk: Chunk | None) -> tuple[Chunk | None, None]:
            if chunk is None:
                return None, None
            gone = selection.contains(chunk.offsets)
            return (chunk.select(~gone) if gone.any() else chunk), None

        return change

    def trim(
        self, scaled: tuple[int, ...], stop: tuple[int, ...], start: tuple[int, ...] = ()
    ) -> ChunkChange[Chunk, None]:
        dims = self.spec.dims
        kept = Orthogonal.box(dims, start or (0,) * len(dims), tuple(map(min, stop, dims)))

        def change(chunk: Chunk | None) -> tuple[Chunk | None, None]:
            if chunk is None:
                return None, None
            keep = kept.contains(chunk.offsets)
            return (chunk if keep.all() else chunk.select(keep)), None

        return change

    def decode_bound(self, data: Buffer) -> int:
        return self.sections_bound(claimed_sizes(data))

    def direct_bound(self, sections: NDArray[np.uint64]) -> int:
        return self.sections_bound(sections[:, UNFILTERED].tolist())

    def sections_bound(self, sizes: Sequence[int]) -> int:
        """Return the estimated memory to decode sections of these unfiltered sizes, including the chunk."""
        raise NotImplementedError

    def read_work(self, chunk: Chunk, selection: Selection, fields: tuple[str, ...]) -> int:
        return chunk.nbytes + selection.size
