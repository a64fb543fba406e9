"""Fields of compound elements (picking, packing and setting them), and the padding of fixed-size strings.

In HDF5 files, fixed-size strings may be padded with blanks, or with arbitrary bytes after a terminating zero. hsparse
normalizes all padding to zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest


def parse_fields(text: str | None, dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the field names in `text`, such as `a:b`, or () if `text` names all fields in the dtype's order.

    Raises `BadRequest` for a name that is no field of the dtype, or that occurs twice.
    """
    if not text:
        return ()
    names = tuple(text.split(":"))
    known = dtype.names or ()
    for name in names:
        if name not in known:
            raise BadRequest(
                f"There is no field {name[:40]!r}; the fields are: {', '.join(known)[:200] or 'none'}."
            )
    if len(set(names)) < len(names):
        raise BadRequest(f"The fields {text[:80]!r} name a field twice: name each field once.")
    return () if names == known and packed_type(dtype, names) == dtype else names


def packed_type(dtype: np.dtype[Any], names: Sequence[str]) -> np.dtype[Any]:
    """Return the packed dtype of the fields `names`, in this order, or `dtype` itself if `names` is empty."""
    return np.dtype([(name, dtype[name]) for name in names]) if names else dtype


def as_type(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a view of `values` as `dtype`, because nodes send compounds to each other as opaque bytes."""
    return values if values.dtype == dtype else values.view(dtype)


def pick_fields(values: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
    """Return packed elements with the fields `names`, in this order, or `values` itself if `names` is empty."""
    if not names:
        return values
    picked = np.empty(values.shape, packed_type(values.dtype, names))
    for name in names:
        picked[name] = values[name]
    return picked


def set_fields(elements: NDArray[Any], values: NDArray[Any], names: Sequence[str]) -> None:
    """Set the fields `names` (all if empty) of `elements` to the same fields of packed `values`, with broadcasting."""
    if not names:
        elements[...] = values
    for name in names:
        elements[name] = values[name]


NULL_TERMINATED, SPACE_PADDED = "H5T_STR_NULLTERM", "H5T_STR_SPACEPAD"


def ended_texts(rows: NDArray[np.uint8], padding: str) -> NDArray[np.uint8]:
    """Return fixed-size strings with their padding replaced by zeros; the last axis of `rows` has a string's bytes."""
    if padding == SPACE_PADDED:
        is_behind = np.logical_and.accumulate(rows[..., ::-1] == ord(" "), axis=-1)[..., ::-1]
    else:
        is_behind = np.logical_or.accumulate(rows == 0, axis=-1)
    return np.where(is_behind, np.uint8(0), rows)


def has_text_ends(item: Any) -> bool:
    """Return whether a type item has, at any depth, fixed-size strings that a file may pad with other bytes than 0."""
    if not isinstance(item, dict):
        return False
    if item["class"] == "H5T_STRING":
        return isinstance(item["length"], int) and item.get("strPad") in (NULL_TERMINATED, SPACE_PADDED)
    if item["class"] == "H5T_COMPOUND":
        return any(has_text_ends(field["type"]) for field in item["fields"])
    return item["class"] == "H5T_ARRAY" and has_text_ends(item["base"])


def end_texts(values: NDArray[Any], item: Any) -> None:
    """Overwrite the padding of all strings in `values` with zeros; `item` is the type item, which has a fixed size."""
    if not has_text_ends(item):
        return
    if item["class"] == "H5T_STRING":
        rows: NDArray[np.uint8] = values.view(np.dtype(("u1", (item["length"],))))
        rows[...] = ended_texts(rows, item["strPad"])
    elif item["class"] == "H5T_ARRAY":
        end_texts(values, item["base"])
    else:
        for field in item["fields"]:
            end_texts(values[field["name"]], field["type"])
