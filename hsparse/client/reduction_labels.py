"""The labels of groups, read for a reduction in this process; what they mean is as in requests for reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import InvalidValue
from hsparse.client.memory_limit import check_size, element_bytes
from hsparse.client.sources.selection_request import read_values
from hsparse.client.types.hdf5_type import Hdf5Type, shape_of
from hsparse.errors import NotFound
from hsparse.format.reductions.finished import LabelGroups, check_labels
from hsparse.format.selections.points import Orthogonal

CODES, CATEGORIES = "codes", "categories"


def read_groups(connection: Connection, by: Any, length: int) -> LabelGroups:
    """Return the groups of an axis: `by` is a list of labels, or the path or id of a dataset, or categorical column.

    `InvalidValue` if there is not one label for each index, `NotFound` if there is no such dataset.
    """
    if not isinstance(by, str):
        listed = np.asarray(by, object).tolist()
        check_labels(len(listed), length)
        return LabelGroups.of_list(listed)
    record = _record(connection, by)
    if not record["id"].startswith("g-"):
        values = _values(connection, record, length)
        return LabelGroups.of_list(values) if isinstance(values, list) else LabelGroups.of_numbers(values)
    try:
        codes, categories = [_record(connection, f"{by.rstrip('/')}/{one}") for one in (CODES, CATEGORIES)]
    except NotFound as error:
        raise InvalidValue(
            f"{by} is a group without the datasets {CODES} and {CATEGORIES}: by is a dataset, or a categorical "
            "column of AnnData."
        ) from error
    labels = _values(connection, categories, None)
    return LabelGroups.of_categories(_values(connection, codes, length), labels, codes["id"])


def _record(connection: Connection, by: str) -> Json:
    if by.startswith("d-"):
        return connection.json("GET", f"/datasets/{by}")
    return connection.json("GET", "/", h5path=by, follow_soft_links=1)


def _values(connection: Connection, record: Json, length: int | None) -> NDArray[Any] | list[Any]:
    """Return the values of a 1-D dataset: numbers as an array, text as a list."""
    kind, extent = Hdf5Type.parse(record["type"]), shape_of(record["shape"]) or ()
    if len(extent) != 1:
        raise InvalidValue(f"{record['id']} has {len(extent)} dimensions; labels have one.")
    if length is not None:
        check_labels(extent[0], length)
    check_size(extent[0] * element_bytes(kind.dtype), connection.max_bytes, extent)
    values = kind.decode(read_values(connection, record["id"], Orthogonal.all(extent)), extent)
    if values.dtype.kind == "S":
        return [one.decode(errors="surrogateescape") for one in values.tolist()]
    if values.dtype.kind in "biuf":
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    return list(values.tolist())
