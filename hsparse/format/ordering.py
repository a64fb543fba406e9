"""Orderings of elements by a field: numbers, or strings of fixed size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.query import ELEMENT

DESCENDING = "-"


@dataclass(frozen=True, slots=True)
class Ordering:
    """An order of elements by `field` ("" for the element itself). The order is stable, and NaN come last."""

    field: str
    descending: bool

    @classmethod
    def parse(cls, text: str, dtype: np.dtype[Any]) -> Ordering:
        """Return the order given as `price`, or as `-price` for descending order; `_` is the element itself.

        Raises `BadRequest` for a field that is missing or has no order.
        """
        name = text.removeprefix(DESCENDING)
        field = "" if dtype.names is None and name == ELEMENT else name
        if field not in (dtype.names or ("",)):
            known = ", ".join(dtype.names or (ELEMENT,))[:200]
            raise BadRequest(f"There is no field {name[:40]!r} to order by; the fields are: {known}.")
        kind = dtype[field] if field else dtype
        if kind.subdtype is not None or kind.kind not in "biufS":
            raise BadRequest(
                f"Field {name[:40]!r} is neither a number nor a string of fixed size, so it has no order."
            )
        return cls(field, text.startswith(DESCENDING))

    @property
    def text(self) -> str:
        """The order as text, in the form that `parse` accepts."""
        return f"{DESCENDING if self.descending else ''}{self.field or ELEMENT}"

    def keys(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the values, (n,), by which the elements `rows` are ordered."""
        return rows[self.field] if self.field else rows

    def first(self, rows: NDArray[Any], limit: int) -> NDArray[np.intp]:
        """Return the indices of the first `limit` elements of `rows` in this order."""
        keys = self.keys(rows)
        missing = np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(len(keys), np.bool_)
        there = np.flatnonzero(~missing)
        if self.descending:
            order = np.argsort(keys[there][::-1], kind="stable")[::-1]
            order = len(there) - 1 - order
        else:
            order = np.argsort(keys[there], kind="stable")
        return np.concatenate((there[order], np.flatnonzero(missing)))[:limit]

    def is_after(self, bound: Any, key: Any) -> bool:
        """Return whether all elements of a group come after `key`; `bound` is the first key of any element."""
        return bool(bound < key) if self.descending else bool(bound > key)
