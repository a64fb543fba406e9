"""Fields of compound elements: some of them picked, packed, or set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest


def parse_fields(text: str | None, dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the fields that `text`, `a:b`, names; () where it names all in the type's order.

    `BadRequest` for a field that the type does not have, or one named twice.
    """
    if not text:
        return ()
    names = tuple(text.split(":"))
    known = dtype.names or ()
    for name in names:
        if name not in known:
            raise BadRequest(
                f"There is no field {name[:40]!r}; there are: {', '.join(known)[:200] or 'none'}."
            )
    if len(set(names)) < len(names):
        raise BadRequest(f"The fields {text[:80]!r} name one of them twice.")
    return () if names == known and packed_type(dtype, names) == dtype else names


def packed_type(dtype: np.dtype[Any], names: Sequence[str]) -> np.dtype[Any]:
    """Return the type of elements with only these fields, packed, in this order; `dtype` without names."""
    return np.dtype([(name, dtype[name]) for name in names]) if names else dtype


def as_type(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return elements as a view of type `dtype`: compounds travel between nodes as opaque bytes."""
    return values if values.dtype == dtype else values.view(dtype)


def pick_fields(values: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
    """Return the elements with only these fields, packed, in this order; `values` itself without names."""
    if not names:
        return values
    picked = np.empty(values.shape, packed_type(values.dtype, names))
    for name in names:
        picked[name] = values[name]
    return picked


def set_fields(elements: NDArray[Any], values: NDArray[Any], names: Sequence[str]) -> None:
    """Set these fields of `elements` to those of `values`, which are packed and broadcast; all without names."""
    if not names:
        elements[...] = values
    for name in names:
        elements[name] = values[name]
