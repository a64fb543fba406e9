"""Points as an Arrow IPC stream: columns `dim_0 ... dim_{n-1}` and `value`."""

from __future__ import annotations

import io
from typing import Any

import nanoarrow as na
import numpy as np
from nanoarrow import c_array_from_buffers, ipc
from nanoarrow.c_array_stream import c_array_stream
from numpy.typing import NDArray

from benchmarks.workloads.points import PointData

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
TYPES = {
    "uint8": na.uint8(),
    "uint16": na.uint16(),
    "uint64": na.uint64(),
    "float32": na.float32(),
    "float64": na.float64(),
}


def encode(points: PointData) -> bytes:
    """Return a stream with all points in one record batch."""
    columns: dict[str, NDArray[Any]] = {f"dim_{index}": column for index, column in enumerate(points.coords)}
    columns["value"] = points.values
    schema = na.struct({name: TYPES[column.dtype.name] for name, column in columns.items()})
    children = [
        c_array_from_buffers(TYPES[column.dtype.name], len(points), [None, np.ascontiguousarray(column)])
        for column in columns.values()
    ]
    out = io.BytesIO()
    with ipc.StreamWriter.from_writable(out) as writer:
        writer.write_stream(c_array_from_buffers(schema, len(points), [None], children=children))
    return out.getvalue()


def decode(stream: bytes) -> PointData:
    """Return the points of a stream; the columns of a single batch are views of `stream`."""
    with ipc.InputStream.from_readable(stream) as source, c_array_stream(source) as arrays:
        names = [child.name for child in arrays.get_schema().children]
        batches = list(arrays)
    columns = [_column([batch.child(index) for batch in batches]) for index in range(len(names))]
    value = names.index("value")
    return PointData(tuple(column for index, column in enumerate(columns) if index != value), columns[value])


def _column(pieces: list[Any]) -> NDArray[Any]:
    """Return one column of all batches as an array."""
    views = [np.asarray(piece.view().buffer(1))[piece.offset : piece.offset + len(piece)] for piece in pieces]
    if len(views) == 1:
        return views[0]
    return np.concatenate(views) if views else np.empty(0, dtype=np.uint64)
