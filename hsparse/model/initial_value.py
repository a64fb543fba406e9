"""The values a new dataset is given with its creation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.attribute import convert_value
from hsparse.model.dataspace import Shape, num_elements
from hsparse.model.datatype import Datatype

MAX_INITIAL_BYTES = 128 * 1024 * 1024


def parse_initial_value(value: Any, shape: Shape, datatype: Datatype) -> NDArray[Any]:
    """Return the values of a whole dataset, in its shape, from JSON; `BadRequest` when they do not fit."""
    if shape["class"] == "H5S_NULL":
        raise BadRequest("A dataset with a null dataspace has no value; leave it out.")
    size = num_elements(shape) * datatype.guessed_size
    if size > MAX_INITIAL_BYTES:
        raise TooLarge(
            f"The value would have {size} bytes; the limit is {MAX_INITIAL_BYTES}: write it by selections."
        )
    return np.asarray(convert_value(value, shape, datatype), order="C")
