"""The object of a dense chunk of a variable-length type: its elements in counted form, C order, filtered.

HSDS keeps such chunks so. Shuffling filters, which need elements of one size, are never in the pipeline.
"""

from __future__ import annotations

from dataclasses import replace

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.blosc_frame import decode_frame
from hsparse.format.buffer import Buffer
from hsparse.format.filters import decode, encode
from hsparse.model.counted import split
from hsparse.model.element import Element
from hsparse.model.filter import Filter
from hsparse.model.variable_array import VariableArray


def encode_variable(array: VariableArray, pipeline: tuple[Filter, ...]) -> Buffer:
    """Return the object of a chunk; without filters a view of its heap. `BadRequest` when a filter fails."""
    data, mask = encode(tuple(replace(filter, optional=False) for filter in pipeline), array.heap.data)
    assert mask == 0
    return data


def decode_variable(
    data: Buffer, dims: tuple[int, ...], element: Element, pipeline: tuple[Filter, ...]
) -> VariableArray:
    """Return a chunk's elements, shape `dims`; `Corrupt` when the object does not decode to exactly these."""
    content = decode_frame(data, pipeline)
    if content is None:
        content = decode(pipeline, data, 0, None)
    try:
        return split(content, element, dims)
    except BadRequest as error:
        raise Corrupt(error.message) from error
