"""What a request for a reduction asks for: operations, axes, elements, and groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hsparse.errors import BadRequest
from hsparse.format.reductions.reduction import OPERATIONS
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.sn.request import Request
from hsparse.sn.values.request_selection import ascending_selection

SKIP, FILL = "skip", "fill"
KEYS = frozenset({"op", "axis", "select", "field", "undefined", "ddof", "by"})


@dataclass(frozen=True, slots=True)
class ReduceRequest:
    """A reduction before its dataset is known.

    `undefined` is "skip" or "fill", None if the request does not say; `by` is the path or id of a dataset of labels, a
    list of labels, or None.
    """

    operations: tuple[str, ...]
    axis: Any
    select: Any
    field: str
    undefined: str | None
    ddof: int
    by: Any

    @classmethod
    def of(cls, request: Request, body: dict[str, Any]) -> ReduceRequest:
        """Take each from the keys of a body, or else from the parameters; `BadRequest` names what is wrong."""
        unknown = set(body) - KEYS
        if unknown:
            raise BadRequest(
                f"Unknown key {min(unknown)[:40]!r} in the body; known are {', '.join(sorted(KEYS))}."
            )
        op, axis, select, field, undefined, by = (
            body.get(name, request.arg(name)) for name in ("op", "axis", "select", "field", "undefined", "by")
        )
        ddof = body.get("ddof", request.number("ddof") or 0)
        check_undefined(undefined)
        if type(ddof) is not int or not 0 <= ddof <= 1:
            raise BadRequest("ddof must be 0 or 1.")
        if not isinstance(axis, str | int | list | None) or isinstance(axis, bool):
            raise BadRequest("axis must be a number, or numbers like '0,2'.")
        if not isinstance(field, str | None):
            raise BadRequest("field must be a string.")
        if not isinstance(by, str | list | None):
            raise BadRequest("by must be the path of a dataset, or a list of labels.")
        return cls(_operations(op), axis, select, field or "", undefined, ddof, by or None)

    def resolve(self, extent: tuple[int, ...]) -> Orthogonal:
        """Return the selection in an extent; each list is for its own dimension, and has each index once, ascending."""
        return ascending_selection(self.select, extent)


def check_undefined(undefined: Any) -> None:
    """Raise `BadRequest` unless it is one of the words, or None."""
    if undefined not in (None, SKIP, FILL):
        raise BadRequest(f"undefined must be {SKIP} or {FILL}, not {str(undefined)[:40]!r}.")


def _operations(text: Any) -> tuple[str, ...]:
    names = text.split(",") if isinstance(text, str) else text
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise BadRequest(f"Name what to compute by op: one or more of {', '.join(OPERATIONS)}.")
    for name in names:
        if name not in OPERATIONS:
            raise BadRequest(f"There is no op {name[:40]!r}; there are: {', '.join(OPERATIONS)}.")
    if len(set(names)) < len(names):
        raise BadRequest("op names one of the operations twice.")
    return tuple(names)
