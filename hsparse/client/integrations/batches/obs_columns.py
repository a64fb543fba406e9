"""Columns of the `obs` of an AnnData, by name: what goes with the rows of its matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import InvalidValue, MissingKey, WrongType
from hsparse.client.group import Group

Columns = dict[str, NDArray[Any]]


def read_columns(
    connection: Connection, wanted: Sequence[str] | Mapping[str, Any], count: int
) -> tuple[Columns, Columns]:
    """Return columns of `count` elements, and the categories of those that are categorical, which are codes (-1: none).

    Arrays that are given are taken as they are. `MissingKey` for a column that is not there, `InvalidValue` for one of
    another length, `WrongType` for one that is no array.
    """
    columns: Columns = {}
    categories: Columns = {}
    if isinstance(wanted, str):
        raise WrongType(f"Name columns in a list: [{wanted!r}].")
    if isinstance(wanted, Mapping):
        columns = {name: np.asarray(values) for name, values in wanted.items()}
    elif wanted:
        root = Group(connection, {"id": connection.json("GET", "/")["root"]}, "/")
        for name in wanted:
            columns[name], known = _read(root, name)
            if known is not None:
                categories[name] = known
    for name, column in columns.items():
        if column.shape != (count,):
            raise InvalidValue(f"The column {name} has the shape {list(column.shape)}, not [{count}].")
    return columns, categories


def _read(root: Group, name: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    try:
        found = root[f"obs/{name}"]
    except MissingKey as error:
        raise MissingKey(f"There is no column {name} of obs in {root.connection.domain}.") from error
    if isinstance(found, DenseDataset):
        return found.to_numpy(), None
    if isinstance(found, Group) and {"codes", "categories"} <= set(found):
        codes, known = found["codes"], found["categories"]
        if isinstance(codes, DenseDataset) and isinstance(known, DenseDataset):
            return codes.to_numpy(), known.to_numpy()
    raise WrongType(f"The column {name} of obs is neither an array nor categorical: give its values by name.")
