"""Defined elements of a dataset as columns, and the protocol of what reads them: a server, or the store itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.memory_limit import ResultLimit
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.format.selections.points import Orthogonal, Selection

if TYPE_CHECKING:
    from hsparse.client.integrations.direct.bucket_objects import Bucket

Direct: TypeAlias = "bool | str | Path | Bucket | None"
"""How datasets are read past the server.

True: as the server offers it. A path: the store's directory. `s3://bucket`, or a `Bucket`: the store's bucket, with the
user's own credentials. "server": chunks as they are stored, handed out by the server. None: where much of each chunk is
read, from the directory if it is on this machine, else in this way. False: all values come from the server.
"""

FEW_ELSEWHERE = 1 << 20
"""Elements of a selection, defined or not, for which a server elsewhere is asked for values if the way is left open.

For chunks it would be asked for the map, too, which takes as long as all of a smaller read.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """Elements of a dataset: `columns` has (n,) integers for each dimension, `values` is (n,).

    Columns may have any integer type that holds the extent: narrow ones are fast. Each element is there once.
    """

    columns: tuple[NDArray[Any], ...]
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    def coords(self) -> NDArray[np.uint64]:
        """Return the coordinates as rows, (n, rank)."""
        coords = np.empty((len(self.values), len(self.columns)), np.uint64)
        for dim, column in enumerate(self.columns):
            coords[:, dim] = column
        return coords

    def fit(self, extent: Sequence[int]) -> bool:
        """Say whether all coordinates are within an extent."""
        pairs = zip(self.columns, extent, strict=True)
        return all(not len(column) or int(column.max()) < length for column, length in pairs)

    @classmethod
    def concatenate(cls, parts: Sequence[Elements]) -> Elements:
        """Return the elements of one part or more, one after the other."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part.columns for part in parts), strict=True)
        return cls(
            tuple(np.concatenate(column) for column in columns),
            # With the type: alone, numpy returns the machine's byte order.
            np.concatenate([part.values for part in parts], dtype=parts[0].values.dtype),
        )


class ValueSource(Protocol):
    """Where a dataset's values come from. Selections are over the extent that the caller knows.

    All methods are for any thread. They raise the errors of a `Connection`, and never return less than there is.
    """

    def defined_elements(self, selection: Selection, limit: ResultLimit | None = None) -> Elements:
        """Return the defined elements of a selection without repeats, in any order, at their places in the dataset.

        `ResultTooLarge` beyond the `limit`, before a large part of them is fetched.
        """
        ...

    def compressed_rows(
        self, selection: Orthogonal, limit: ResultLimit | None = None
    ) -> CompressedRows | None:
        """Return the defined elements of a selection of rank 2, whose axes ascend, at their positions in it.

        None where that is not faster than by `defined_elements`, or not possible; a type of scipy's is required.
        """
        ...

    def count_all(self, extent: tuple[int, ...]) -> int | None:
        """Return how many elements of a dataset of that extent are defined, if what a read of all needs says it."""
        ...

    def dense_values(self, selection: Selection) -> NDArray[Any]:
        """Return every selected value in the selection's shape, the fill value where undefined."""
        ...
