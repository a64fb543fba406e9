"""JSON bodies of values of any type but plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hsparse.errors import BadRequest
from hsparse.format.fields import packed_type
from hsparse.format.selections.selection import Selection
from hsparse.model.element import Element, Fixed
from hsparse.model.json_form import Values, from_json
from hsparse.model.variable_array import VariableArray
from hsparse.model.variable_fields import Fields
from hsparse.sn.records.dataset import Dataset


def is_plain(dataset: Dataset) -> bool:
    """Say whether elements are integers or floats."""
    return dataset.dtype.kind in "iuf"


def typed_json(value: Any, dataset: Dataset, selection: Selection, fields: Sequence[str] = ()) -> Values:
    """Return JSON values in the selection's shape, or one for all; `BadRequest` for what does not fit.

    With `fields` the elements have those alone, packed; those of one field may be bare.
    """
    failure: BadRequest | None = None
    for form in _forms(dataset, fields):
        for shape in (selection.shape, (1,)):
            try:
                return _stored(from_json(value, shape, form), shape, dataset, fields)
            except BadRequest as error:
                failure = failure or error
    assert failure is not None
    raise failure


def _forms(dataset: Dataset, fields: Sequence[str]) -> list[Element]:
    """Return what elements of a body may be made of, the likeliest first."""
    element = dataset.spec.datatype.element
    if not fields:
        return [element]
    if dataset.is_variable:
        picked = Fields.named(element, fields).element
        return [picked, *(picked.parts if len(fields) == 1 else ())]
    dtype = packed_type(dataset.dtype, fields)
    return [Fixed(dtype), *([Fixed(dtype[0])] if len(fields) == 1 else [])]


def _stored(values: Values, shape: tuple[int, ...], dataset: Dataset, fields: Sequence[str]) -> Values:
    """Return values as they are stored: of an array type each is one opaque element."""
    if isinstance(values, VariableArray):
        return values
    if dataset.is_variable:  # a field of fixed size, of a compound that is not
        size = values.dtype.itemsize
        data = values.tobytes()
        return VariableArray.of((data[at : at + size] for at in range(0, len(data), size)), values.shape)
    dtype = packed_type(dataset.dtype, fields)
    return np.ndarray(shape, dtype, np.ascontiguousarray(values))
