"""What is behind text of a fixed length in an HDF5 file: blanks, or anything at all behind a zero.

hsparse has zeros there, whoever wrote the text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NULL_TERMINATED, SPACE_PADDED = "H5T_STR_NULLTERM", "H5T_STR_SPACEPAD"


def ended_texts(rows: NDArray[np.uint8], padding: str) -> NDArray[np.uint8]:
    """Return texts, the bytes of each along the last axis, with zeros behind their end."""
    if padding == SPACE_PADDED:
        is_behind = np.logical_and.accumulate(rows[..., ::-1] == ord(" "), axis=-1)[..., ::-1]
    else:
        is_behind = np.logical_or.accumulate(rows == 0, axis=-1)
    return np.where(is_behind, np.uint8(0), rows)


def has_text_ends(item: Any) -> bool:
    """Say whether elements of a type have text, at any depth, behind which a file may have more than zeros."""
    if not isinstance(item, dict):
        return False
    if item["class"] == "H5T_STRING":
        return isinstance(item["length"], int) and item.get("strPad") in (NULL_TERMINATED, SPACE_PADDED)
    if item["class"] == "H5T_COMPOUND":
        return any(has_text_ends(field["type"]) for field in item["fields"])
    return item["class"] == "H5T_ARRAY" and has_text_ends(item["base"])


def end_texts(values: NDArray[Any], item: Any) -> None:
    """Put zeros behind the text in values, as a file has them, of a type whose parts are all of a fixed size."""
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
