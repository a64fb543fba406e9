"""The object of a dense chunk: its filtered bytes, bare, as an HDF5 file holds them.

Such an object has no place for a filter mask, so every filter counts as mandatory. Where HDF5 would skip a
filter because the data cannot be made smaller (lzf, blosc), the filter's own form for such data is stored,
which HDF5 decodes like any other. `hsparse.model.stored_pipeline` says which pipeline that is; what HSDS wrote is
read as well (`hsparse.format.blosc_frame`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.blosc_frame import decode_frame
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.filters import decode, encode
from hsparse.model.filter import Filter


def encode_dense(array: NDArray[Any], pipeline: tuple[Filter, ...]) -> Buffer:
    """Return the object of a chunk; without filters a view of `array`, which must not change any more.

    `BadRequest` when a filter cannot encode it.
    """
    if array.dtype.hasobject:
        raise Unsupported("Dense chunks of a variable-length datatype are not supported.")
    data, mask = encode(tuple(replace(filter, optional=False) for filter in pipeline), byte_view(array))
    assert mask == 0
    return data


def decode_dense(
    data: Buffer, dims: tuple[int, ...], dtype: np.dtype[Any], pipeline: tuple[Filter, ...]
) -> NDArray[Any]:
    """Return a chunk's elements, shape `dims`, read-only where it is a view of `data`.

    `Corrupt` when the object does not decode to exactly that many elements.
    """
    if dtype.hasobject:
        raise Unsupported("Dense chunks of a variable-length datatype are not supported.")
    size = math.prod(dims) * dtype.itemsize
    content = decode_frame(data, pipeline, size)
    if content is None or len(content) != size:
        content = decode(pipeline, data, 0, size)
    return np.ndarray(dims, dtype, content)
