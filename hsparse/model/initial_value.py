"""The values a new dataset is given with its creation."""

from __future__ import annotations

from typing import Any

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.attribute import decode_base64, read_bytes
from hsparse.model.dataspace import Shape, dims_of, num_elements
from hsparse.model.datatype import Datatype
from hsparse.model.json_form import Values, from_json

MAX_INITIAL_BYTES = 128 * 1024 * 1024


def parse_initial_value(value: Any, shape: Shape, datatype: Datatype) -> Values:
    """Return the values of a whole dataset, in its shape, from JSON; `BadRequest` when they do not fit."""
    _check(shape, datatype)
    return from_json(value, dims_of(shape) or (), datatype.element)


def parse_initial_bytes(text: Any, shape: Shape, datatype: Datatype) -> Values:
    """Return the same from base64 of the packed elements, which are counted where they vary in size."""
    _check(shape, datatype)
    return read_bytes(decode_base64(text), shape, datatype)


def _check(shape: Shape, datatype: Datatype) -> None:
    if shape["class"] == "H5S_NULL":
        raise BadRequest("A dataset with a null dataspace has no value; leave it out.")
    size = num_elements(shape) * datatype.guessed_size
    if size > MAX_INITIAL_BYTES:
        raise TooLarge(
            f"The value would have {size} bytes; the limit is {MAX_INITIAL_BYTES}: write it by selections."
        )
