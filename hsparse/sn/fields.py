"""Some fields of compound elements, as `fields=a:b` names them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest


def pick_fields(values: NDArray[Any], text: str | None) -> NDArray[Any]:
    """Return the elements with only the fields that `text` names, packed, in its order; all without one.

    `BadRequest` for a field that the type does not have.
    """
    if not text:
        return values
    names = text.split(":")
    known = values.dtype.names or ()
    for name in names:
        if name not in known:
            raise BadRequest(f"There is no field {name!r}; there are: {', '.join(known) or 'none'}.")
    if tuple(names) == known:
        return values
    picked = np.empty(values.shape, [(name, values.dtype[name]) for name in names])
    for name in names:
        picked[name] = values[name]
    return picked
