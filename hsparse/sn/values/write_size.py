"""How much a write asks to be stored: one value is a short body, and may be for all elements of a dataset.

A dense chunk is stored whole, however few of its elements are written.
"""

from __future__ import annotations

from math import prod

from hsparse.errors import TooLarge
from hsparse.format.plan.chunk_plan import count_chunks
from hsparse.format.selections.selection import Selection
from hsparse.model.json_values import Values
from hsparse.sn.records.dataset import Dataset


def written_bytes(dataset: Dataset, selection: Selection, values: Values) -> int:
    """Return about how many bytes writing `values`, or one value for all, changes, before compression."""
    repeated = selection.size if values.size == 1 else 1
    return max(dataset.arrays.nbytes(values) * repeated, chunk_bytes(dataset, selection))


def chunk_bytes(dataset: Dataset, selection: Selection) -> int:
    """Return the bytes of the dense chunks of fixed-size elements that a selection meets, 0 for other chunks."""
    if dataset.spec.sparse or not dataset.arrays.is_exact:
        return 0
    return count_chunks(selection, dataset.grid) * prod(dataset.grid.chunk) * dataset.dtype.itemsize


def check_written(nbytes: int, most: int) -> None:
    """Raise `TooLarge` for a write of more than `most` bytes."""
    if nbytes > most:
        raise TooLarge(
            f"The write changes {nbytes} bytes of values and chunks; the limit is {most} (max_write_size). Write less "
            "at a time."
        )
