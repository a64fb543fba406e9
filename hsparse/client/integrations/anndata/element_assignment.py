"""What `group[path] = value` stores as AnnData's files have it: data frames, dicts and the like, and columns of frames.

A frame names its columns in an attribute, so that what is only linked below it is no column.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import InvalidValue
from hsparse.client.integrations.anndata.element_encoder import PANDAS, EncodedElements

ORDER = "column-order"
Group: TypeAlias = Any
"""A group of the client, which imports this when it is used."""


def assign_element(group: Group, path: str, value: Any, frame: Group | None) -> None:
    """Store a value at a path of a group as AnnData's files have it, a column of `frame` if that is not None.

    A data frame takes the place of one of as many rows; anything else of a path that is free.
    """
    parent, _, name = path.rstrip("/").rpartition("/")
    elements = EncodedElements()
    elements.add(name, value if frame is None else _column(frame, name, value))
    replaced = (name,) if group._old is None and _replaces_frame(group, path, value) else ()
    group._write_elements(elements, parent, replaced)
    if frame is not None:
        add_column(frame, name)
    _forget(group)


def frame_at(group: Group, path: str) -> Group | None:
    """Return the data frame at a path from the root, as it is now; None without one. One request."""
    found: Any = group.get(path)
    return found if found is not None and found.attrs.get("encoding-type") == "dataframe" else None


def check_rows(frame: Group, shape: tuple[int, ...]) -> None:
    """Raise `InvalidValue` unless a column of a frame may have a shape."""
    rows = len(_index(frame))
    if shape != (rows,):
        raise InvalidValue(f"{frame.name} has {rows} rows, not {list(shape)}: give a value for each of them.")


def add_column(frame: Group, name: str) -> None:
    """Name a column in a frame's attribute, the last one, unless it is named there or the frame's index."""
    columns = _columns(frame)
    if name not in columns and name != frame.attrs["_index"]:
        frame.attrs[ORDER] = np.array([*columns, name], object)
    _forget(frame)


def remove_column(frame: Group, name: str) -> None:
    """Take the name of a column out of a frame's attribute; `InvalidValue` for the frame's index."""
    if name == frame.attrs["_index"]:
        raise InvalidValue(f"{name} is the index of {frame.name}: delete the frame with it.")
    columns = _columns(frame)
    if name in columns:
        left = [one for one in columns if one != name]
        frame.attrs[ORDER] = np.array(left, object) if left else np.zeros(0)
    _forget(frame)


def _forget(group: Group) -> None:
    """Let queries of the file ask again what there is."""
    labels = group._labels_of
    if labels is not None and hasattr(labels, "forget"):
        labels.forget()


def _columns(frame: Group) -> list[str]:
    return [str(name) for name in np.atleast_1d(frame.attrs[ORDER])]


def _replaces_frame(group: Group, path: str, value: Any) -> bool:
    """Say whether a data frame is there, and another one given; `InvalidValue` if that has other rows."""
    if not isinstance(value, PANDAS.load().DataFrame):
        return False
    found = frame_at(group, path)
    if found is None:
        return False
    rows = len(_index(found))
    if len(value) != rows:
        raise InvalidValue(
            f"{found.name} has {rows} rows, not {len(value)}: delete it first, or write all anew."
        )
    return True


def _index(frame: Group) -> NDArray[Any]:
    found: Any = frame[str(frame.attrs["_index"])]
    found = found["values"] if found.id.startswith("g-") else found  # of a nullable one
    labels: NDArray[Any] = found.to_numpy()
    return labels


def _column(frame: Group, name: str, value: Any) -> Any:
    """Return the array of a column: a Series is arranged by the frame's index if it has labels."""
    pandas = PANDAS.load()
    check_rows(frame, np.shape(value))
    series = value if isinstance(value, pandas.Series) else pandas.Series(value)
    if isinstance(value, pandas.Series) and not isinstance(series.index, pandas.RangeIndex):
        index = _index(frame)
        if not series.index.is_unique or set(series.index) != set(index.tolist()):
            raise InvalidValue(
                f"The labels of the Series are not those of {frame.name}: give it as an array."
            )
        series = series.loc[index]
    return series.array.to_numpy() if type(series.array).__name__ == "NumpyExtensionArray" else series.array
