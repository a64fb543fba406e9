"""Data frames of AnnData before 0.7: a dataset of compounds, whose first field is the index.

A categorical has codes there, and its categories in `uns/<name>_categories`.

Tests: tests/client/anndata/test_query.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.anndata.domain_tree import DomainTree
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.optional_module import OptionalModule

PANDAS = OptionalModule("pandas", "anndata")


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


def legacy_frame(values: NDArray[Any], columns: Sequence[str], categories: dict[str, NDArray[Any]]) -> Any:
    """Return the data frame of compounds: some columns, with the categories of those that have any."""
    pandas = PANDAS.load()
    assert values.dtype.names
    found: dict[str, Any] = {}
    for name in columns:
        column = _texts(values[name])
        known = categories.get(name)
        if known is not None and column.dtype.kind in "iu" and np.all(column < len(known)):
            column = pandas.Categorical.from_codes(column, _texts(known))
        found[name] = column
    index = pandas.Index(legacy_index(values), name=values.dtype.names[0])
    return pandas.DataFrame(found, index=index, columns=list(columns) or None)


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    """Return text of fixed size as `str`, anything else in memory of its own."""
    if values.dtype.kind != "S":
        return values.copy()
    return np.array([one.decode(errors="surrogateescape") for one in values.tolist()], object)
