"""The result of a reduction as an Arrow stream, with a row for each item of the result.

The columns are `dim_i` for each axis `i` of the dataset that the result keeps, with indices in the dataset, `group`
with the labels of groups, if there are groups, and a column for each operation.
"""

from __future__ import annotations

import io
from typing import Any

import nanoarrow as na
import numpy as np
from aiohttp import web
from nanoarrow import ipc
from numpy.typing import NDArray

from hsparse.sn.http.request import ARROW_TYPE
from hsparse.sn.http.response import respond_computed
from hsparse.sn.request import Request
from hsparse.sn.values.reduction.dataset_reduction import Reduced

NUMBER_TYPES: dict[str, Any] = {
    "i1": na.int8,
    "i2": na.int16,
    "i4": na.int32,
    "i8": na.int64,
    "u1": na.uint8,
    "u2": na.uint16,
    "u4": na.uint32,
    "u8": na.uint64,
    "f2": na.float16,
    "f4": na.float32,
    "f8": na.float64,
}


def number_type(dtype: np.dtype[Any]) -> Any:
    """Return Arrow's type for `dtype`, for which `is_number` must hold."""
    return NUMBER_TYPES[dtype.str[1:]]()


GROUP = "group"


async def answer_reduced(request: Request, reduced: Reduced) -> web.StreamResponse:
    """Answer with the result of a reduction as an Arrow stream."""
    return await respond_computed(
        reduced.reduction.places,
        lambda: web.Response(body=arrow_table(reduced), content_type=ARROW_TYPE),
    )


def arrow_table(reduced: Reduced) -> bytes:
    """Return the result of a reduction as an Arrow stream of one record batch."""
    shape = reduced.reduction.result_shape
    columns: dict[str, Any] = {}
    for place, dim in enumerate(reduced.reduction.kept):
        each = (-1,) + (1,) * (len(shape) - place - 1)
        if reduced.labels is not None and dim == reduced.reduction.grouped:
            codes = np.broadcast_to(np.arange(len(reduced.labels)).reshape(each), shape).reshape(-1)
            columns[GROUP] = _labels(reduced.labels, codes)
        else:
            coords = np.broadcast_to(reduced.coords[dim].reshape(each), shape).reshape(-1)
            columns[f"dim_{dim}"] = _numbers(coords)
    columns |= {name: _numbers(values.reshape(-1)) for name, values in reduced.values.items()}
    schema = na.c_schema(na.struct({name: kind for name, (kind, _) in columns.items()}))
    sink = io.BytesIO()
    writer = ipc.StreamWriter.from_writable(sink)
    children = [column for _, column in columns.values()]
    writer.write_array(
        na.c_array_from_buffers(schema, reduced.reduction.places, buffers=[None], children=children)
    )
    writer.close()
    return sink.getvalue()


def _numbers(values: NDArray[Any]) -> tuple[Any, Any]:
    """Return a pair: the Arrow type, and the column of the numbers `values`; booleans become 0 and 1."""
    native = np.ascontiguousarray(
        values, "u1" if values.dtype.kind == "b" else values.dtype.newbyteorder("=")
    )
    kind = number_type(native.dtype)
    return kind, na.c_array_from_buffers(na.c_schema(kind), len(native), [None, native])


def _labels(labels: list[Any], codes: NDArray[np.intp]) -> tuple[Any, Any]:
    """Return a pair: the Arrow type, and the column of `labels[code]` for each code. Labels are text or numbers."""
    if all(isinstance(label, str) for label in labels):
        encoded = [label.encode("utf-8", "surrogatepass") for label in labels]
        sizes = np.array([len(text) for text in encoded], np.int64)
        offsets = np.concatenate(([0], np.cumsum(sizes[codes]))).astype(np.int32)
        data = np.frombuffer(b"".join([encoded[code] for code in codes.tolist()]), np.uint8)
        return na.string(), na.c_array_from_buffers(
            na.c_schema(na.string()), len(codes), [None, offsets, data]
        )
    return _numbers(np.array(labels)[codes])
