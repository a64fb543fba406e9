"""The first elements in the order of a field's values."""

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
    """An order of elements: by a field, "" for the element itself; NaN come last, equal ones in their own order."""

    field: str
    descending: bool

    @classmethod
    def parse(cls, text: str, dtype: np.dtype[Any]) -> Ordering:
        """Return the order that `price`, or `-price` for the largest first, names; `_` is the element itself.

        `BadRequest` for a field that there is not, or one that has no order.
        """
        name = text.removeprefix(DESCENDING)
        field = "" if dtype.names is None and name == ELEMENT else name
        if field not in (dtype.names or ("",)):
            known = ", ".join(dtype.names or (ELEMENT,))[:200]
            raise BadRequest(f"There is no field {name[:40]!r} to order by; there are: {known}.")
        kind = dtype[field] if field else dtype
        if kind.subdtype is not None or kind.kind not in "biufS":
            raise BadRequest(
                f"Field {name[:40]!r} is neither a number nor a string of fixed size: it has no order."
            )
        return cls(field, text.startswith(DESCENDING))

    @property
    def text(self) -> str:
        """The order as a request has it."""
        return f"{DESCENDING if self.descending else ''}{self.field or ELEMENT}"

    def keys(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return what elements are ordered by."""
        return rows[self.field] if self.field else rows

    def first(self, rows: NDArray[Any], limit: int) -> NDArray[np.intp]:
        """Return the places of the first `limit` of some elements, in order."""
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
        """Say whether elements whose best possible key is `bound` all come after one with `key`; NaN comes last."""
        return bool(bound < key) if self.descending else bool(bound > key)
