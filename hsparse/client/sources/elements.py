"""Defined elements of a dataset as columns, and the protocol of their sources: a server, or the store itself."""

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
"""How the stored chunks of datasets are read directly, without the server decoding them.

`True` reads in a way that the server offers. A path reads from the store's directory. `s3://bucket` or a `Bucket`
reads from the store's bucket, with the user's own credentials. "server" has the server send stored chunks. The default,
`None`, reads from the store's directory on this machine if a read takes much of each chunk, else as "server". `False`
has the server decode values.
"""

FEW_ELSEWHERE = 1 << 20
"""If `direct` is None, a remote server decodes selections of up to this many elements, defined or not.

Reading chunks would need the map as well, whose request takes as long as a whole smaller read.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """Elements of a dataset: `columns` has (n,) integers for each dimension, `values` is (n,).

    Columns may have any integer type that holds the extent; narrow types are faster. No element is repeated.
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
        """Return whether all coordinates are within an extent."""
        pairs = zip(self.columns, extent, strict=True)
        return all(not len(column) or int(column.max()) < length for column, length in pairs)

    @classmethod
    def concatenate(cls, parts: Sequence[Elements]) -> Elements:
        """Return the elements of one or more parts, in the order of the parts."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part.columns for part in parts), strict=True)
        return cls(
            tuple(np.concatenate(column) for column in columns),
            # Without the dtype numpy returns the machine's byte order.
            np.concatenate([part.values for part in parts], dtype=parts[0].values.dtype),
        )


class ValueSource(Protocol):
    """A source of a dataset's values. Selections are over the extent that the caller knows.

    All methods are thread-safe. They raise the errors of a `Connection`, and never return incomplete results.
    """

    def defined_elements(self, selection: Selection, limit: ResultLimit | None = None) -> Elements:
        """Return the defined elements of a selection, each once, in any order, with coordinates in the dataset.

        Raise `ResultTooLarge` for more elements than `limit` allows, before a large part of them is fetched.
        """
        ...

    def compressed_rows(
        self, selection: Orthogonal, limit: ResultLimit | None = None
    ) -> CompressedRows | None:
        """Return the defined elements of a rank-2 selection with ascending axes, at their positions in the selection.

        Return None if this is impossible or not faster than `defined_elements`. The dtype must be one of scipy's.
        """
        ...

    def count_all(self, extent: tuple[int, ...]) -> int | None:
        """Return the number of defined elements of the whole dataset, or None if that needs an extra request."""
        ...

    def dense_values(self, selection: Selection) -> NDArray[Any]:
        """Return every selected value in the selection's shape, with the fill value for undefined elements."""
        ...
