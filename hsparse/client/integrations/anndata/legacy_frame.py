"""Data frames of AnnData before 0.7: a dataset of compounds, whose first field is the index.

A categorical has codes there, and its categories in `uns/<name>_categories`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.frame_column import FrameColumn
from hsparse.client.types.hdf5_type import Hdf5Type


def legacy_fields(tree: DomainTree, path: str) -> list[str]:
    """Return the names of the fields: that of the index first, then the columns."""
    return list(Hdf5Type.parse(tree.record(path)["type"]).dtype.names or ())


def categories_path(name: str) -> str:
    """Return where the categories of a column are, if it has any."""
    return f"uns/{name}_categories"


def legacy_index(values: NDArray[Any]) -> NDArray[Any]:
    """Return the index in the compounds of a frame."""
    assert values.dtype.names
    return _texts(values[values.dtype.names[0]])


def legacy_column(values: NDArray[Any], name: str, categories: NDArray[Any] | None) -> FrameColumn:
    """Return a column of compounds; `categories` are what the domain has for its name."""
    column = _texts(values[name])
    if categories is not None and column.dtype.kind in "iu" and np.all(column < len(categories)):
        return FrameColumn(column, _texts(categories))
    return FrameColumn(column)


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    """Return text of fixed size as `str`, anything else in memory of its own."""
    if values.dtype.kind != "S":
        return values.copy()
    return np.array([one.decode(errors="surrogateescape") for one in values.tolist()], object)
