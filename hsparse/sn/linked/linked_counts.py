"""How much of a dataset is in files: what `verbose` tells of linked chunks."""

from __future__ import annotations

from math import prod

from hsparse.errors import ErrorKind, HsparseError
from hsparse.model.linked_layout import CHUNKED_REF, CONTIGUOUS_REF, linked_layout
from hsparse.sn.data_nodes import Owners
from hsparse.sn.linked.chunk_table import ChunkTable
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.wire.message import Record

UNREADABLE = (
    ErrorKind.NOT_FOUND,
    ErrorKind.GONE,
    ErrorKind.BAD_REQUEST,
    ErrorKind.CONFLICT,
    ErrorKind.UNSUPPORTED,
    ErrorKind.TOO_LARGE,
)
"""What is wrong with a chunk table is told by a read; here it counts as having none."""


async def linked_counts(owners: Owners, record: Record) -> Record:
    """Return `linked_bytes`, as they are in files, and `num_linked_chunks`, as the files have them."""
    layout = linked_layout(record)
    if layout is None:
        return {"linked_bytes": 0, "num_linked_chunks": 0}
    if layout["class"] == CONTIGUOUS_REF:
        count = prod(Dataset.of(record).grid.counts) if layout["size"] else 0
        return {"linked_bytes": layout["size"], "num_linked_chunks": count}
    if layout["class"] == CHUNKED_REF:
        sizes = [entry[1] for entry in layout["chunks"].values() if entry[1]]
        return {"linked_bytes": sum(sizes), "num_linked_chunks": len(sizes)}
    try:
        table = await ChunkTable.open(
            owners, Dataset.of(record), lambda table, selection: ChunkFanout(owners, table).read(selection)
        )
        count, size = await table.totals()
    except HsparseError as error:
        if error.kind not in UNREADABLE:
            raise
        count = size = 0
    return {"linked_bytes": size, "num_linked_chunks": count}
