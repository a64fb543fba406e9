"""Assign values to elements in AnnData's format: data frames, dicts and the like, and columns of data frames.

`assign_element` implements `group[path] = value`, and `assign_in_part` implements the same for a part of an AnnData. A
data frame lists its columns in an attribute: linking an object below the frame does not make a column.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import InvalidValue, WrongType
from hsparse.client.integrations.anndata.element_encoder import (
    PANDAS,
    EncodedElements,
    checked_name,
)
from hsparse.client.integrations.anndata.element_writer import Group

ORDER = "column-order"


def assign_element(group: Group, path: str, value: Any, frame: Group | None) -> None:
    """Store a value in AnnData's format at a path of a group; if `frame` is not None, as a column of this data frame.

    A data frame replaces a stored data frame with as many rows; for any other value the path must not exist.
    """
    parent, _, name = path.rstrip("/").rpartition("/")
    replaced = (name,) if group._old is None and _replaces_frame(group, path, value) else ()
    _assign(group, parent, name, value, frame, replaced)


def assign_in_part(group: Group, part: str, name: str, value: Any, *, is_there: bool) -> None:
    """Store an element of `obs`, `layers` or another part of an AnnData, and replace the element of the same name.

    The part is created unless `is_there`.
    """
    frame = frame_at(group, part) if part in ("obs", "var") else None
    if frame is not None and name == frame.attrs["_index"]:
        raise InvalidValue(f"{name} is the index of {frame.name}: give the column another name.")
    checked_name(part, name)
    if is_there:
        _assign(group, part, name, value, frame, (name,))
    else:
        _assign(group, "", part, {name: value}, None, ())


def _assign(
    group: Group, parent: str, name: str, value: Any, frame: Group | None, replaced: Collection[str]
) -> None:
    elements = EncodedElements()
    try:
        elements.add(name, value if frame is None else _column(frame, name, value))
    except (InvalidValue, WrongType) as error:
        if not error.message.startswith(name):
            raise
        raise type(error)(f"{parent}/{error.message}".lstrip("/")) from None
    if rows := np.shape(value)[:1]:
        elements.extend_cells(rows[0], parent)
    group._write_elements(elements, parent, replaced)
    if frame is not None:
        add_column(frame, name)
    _forget(group)


def frame_at(group: Group, path: str) -> Group | None:
    """Request the object at a path of a group, and return it if it is a data frame, else None."""
    found: Any = group.get(path)
    return found if found is not None and found.attrs.get("encoding-type") == "dataframe" else None


def check_rows(frame: Group, shape: tuple[int, ...]) -> None:
    """Raise `InvalidValue` unless `shape` is the shape of a column: one dimension, with as many rows as the frame."""
    rows = len(_index(frame))
    if shape != (rows,):
        raise InvalidValue(f"{frame.name} has {rows} rows, not {list(shape)}: give a value for each row.")


def add_column(frame: Group, name: str) -> None:
    """Append a name to a frame's attribute `column-order`, unless it is listed or is the frame's index."""
    columns = _columns(frame)
    if name not in columns and name != frame.attrs["_index"]:
        frame.attrs[ORDER] = np.array([*columns, name], object)
    _forget(frame)


def remove_column(frame: Group, name: str) -> None:
    """Remove a name from a frame's attribute `column-order`; raise `InvalidValue` if it is the frame's index."""
    if name == frame.attrs["_index"]:
        raise InvalidValue(
            f"{name} is the index of {frame.name}: it can be deleted only together with {frame.name}."
        )
    columns = _columns(frame)
    if name in columns:
        left = [one for one in columns if one != name]
        frame.attrs[ORDER] = np.array(left, object) if left else np.zeros(0)
    _forget(frame)


def _forget(group: Group) -> None:
    """Make later queries of the file request its objects again."""
    labels = group._labels_of
    if labels is not None and hasattr(labels, "forget"):
        labels.forget()


def _columns(frame: Group) -> list[str]:
    return [str(name) for name in np.atleast_1d(frame.attrs[ORDER])]


def _replaces_frame(group: Group, path: str, value: Any) -> bool:
    """Return whether `value` replaces a stored data frame; raise `InvalidValue` if the two differ in length."""
    if not isinstance(value, PANDAS.load().DataFrame):
        return False
    found = frame_at(group, path)
    if found is None:
        return False
    rows = len(_index(found))
    if len(value) != rows:
        raise InvalidValue(
            f"{found.name} has {rows} rows, but its replacement has {len(value)}: delete {found.name} first."
        )
    return True


def _index(frame: Group) -> NDArray[Any]:
    found: Any = frame[str(frame.attrs["_index"])]
    found = found["values"] if found.id.startswith("g-") else found  # a nullable array
    labels: NDArray[Any] = found.to_numpy()
    return labels


def _column(frame: Group, name: str, value: Any) -> Any:
    """Return the array of a column; a Series with labels is rearranged to the order of the frame's index."""
    pandas = PANDAS.load()
    check_rows(frame, np.shape(value))
    series = value if isinstance(value, pandas.Series) else pandas.Series(value)
    if isinstance(value, pandas.Series) and not isinstance(series.index, pandas.RangeIndex):
        index = _index(frame)
        if not series.index.is_unique or set(series.index) != set(index.tolist()):
            raise InvalidValue(
                f"The labels of the Series differ from the index of {frame.name}: give an array without labels."
            )
        series = series.loc[index]
    return series.array.to_numpy() if type(series.array).__name__ == "NumpyExtensionArray" else series.array
