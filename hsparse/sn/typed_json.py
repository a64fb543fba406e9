"""JSON bodies of values of any type but plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from hsparse.errors import BadRequest
from hsparse.format.selection import Selection
from hsparse.model.json_form import Values, from_json
from hsparse.model.variable_array import VariableArray
from hsparse.sn.dataset import Dataset


def is_plain(dataset: Dataset) -> bool:
    """Say whether elements are integers or floats."""
    return dataset.dtype.kind in "iuf"


def typed_json(value: Any, dataset: Dataset, selection: Selection) -> Values:
    """Return JSON values in the selection's shape, or one for all; `BadRequest` for what does not fit."""
    try:
        return _stored(value, selection.shape, dataset)
    except BadRequest as error:
        try:
            return _stored(value, (1,), dataset)
        except BadRequest:
            raise error from None


def _stored(value: Any, shape: tuple[int, ...], dataset: Dataset) -> Values:
    """Return values in the type in which they are stored: of an array type each is one opaque element."""
    values = from_json(value, shape, dataset.spec.datatype.element)
    if isinstance(values, VariableArray) or values.dtype == dataset.dtype:
        return values
    return np.ndarray(shape, dataset.dtype, np.ascontiguousarray(values))
