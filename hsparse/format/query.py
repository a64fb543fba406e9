"""Queries over elements, evaluated column by column.

Numbers compare by value regardless of their types: `x > 2.5` is exact for integers. A number compared with a float
field is first rounded to the field's precision, as in numpy, so that `x == 0.1` finds a stored 0.1. Fixed-size strings
compare as bytes (text as UTF-8) without trailing zeros.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.bounded_cache import remember
from hsparse.errors import BadRequest
from hsparse.format.query_syntax import (
    And,
    Compare,
    Literal,
    Member,
    Not,
    Null,
    Or,
    Term,
    parse_query,
)
from hsparse.model.element import dtype_bytes

Column: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]
Predicate: TypeAlias = Callable[[Column], Mask]

ELEMENT = "_"
"""The name of the element itself in queries over elements without fields."""
CACHE_BYTES = 2 * 1024 * 1024
"""Bytes of memory for cached queries, which are bound to a dtype."""
TEXT_BYTES = 16
"""Estimated bytes of memory of a bound query per character of its text."""
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Query:
    """A query bound to elements of `dtype`."""

    text: str
    dtype: np.dtype[Any]
    _test: Predicate = field(repr=False, compare=False)
    _term: Term = field(repr=False, compare=False)

    def mask(self, values: NDArray[Any]) -> Mask:
        """Return a mask, in the shape of `values`, of the elements that match; `values` must have `dtype`."""
        return self._test(values)

    def may_find(self, ranges: Mapping[str, Ranges], count: int) -> Mask:
        """Return a mask, (count,), of the groups of elements that may contain a match, given their value ranges.

        `ranges` maps names of fields, or `ELEMENT` for elements without fields, to the ranges of their values.
        """
        return _outlook(self._term, self.dtype, ranges, count)[0]

    def takes(self, value: NDArray[Any]) -> bool:
        """Return whether one element, such as the fill value, matches the query."""
        return bool(self._test(value.reshape(1))[0])


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """The minima and maxima of n groups, (n,) each of the field's dtype, and a mask of the groups with NaN."""

    least: Column
    greatest: Column
    has_nan: Mask


def bind_query(text: str, dtype: np.dtype[Any]) -> Query:
    """Return the query `text` bound to elements of `dtype`.

    Raises `BadRequest` if the text is malformed, names a field that is missing or has no order, or compares a field
    with a value of another type.
    """
    return _bound(text, dtype)


@remember(CACHE_BYTES, lambda _, text, dtype: TEXT_BYTES * len(text) + dtype_bytes(dtype))
def _bound(text: str, dtype: np.dtype[Any]) -> Query:
    term = parse_query(text)
    return Query(text, dtype, _bind(term, dtype), term)


def queried(text: str) -> frozenset[str]:
    """Return the names of the fields in a query."""
    return _names(parse_query(text))


def _names(term: Term) -> frozenset[str]:
    match term:
        case Not(inner):
            return _names(inner)
        case And(terms) | Or(terms):
            return frozenset().union(*map(_names, terms))
        case Compare(name) | Member(name) | Null(name):
            return frozenset({name})


def _bind(term: Term, dtype: np.dtype[Any]) -> Predicate:
    match term:
        case Not(inner):
            test = _bind(inner, dtype)
            return lambda values: ~test(values)
        case And(terms):
            return _joined([_bind(one, dtype) for one in terms], np.logical_and)
        case Or(terms):
            return _joined([_bind(one, dtype) for one in terms], np.logical_or)
        case Compare(name, op, value):
            return _of_field(name, dtype, lambda kind: _compare(name, kind, op, value))
        case Member(name, members):
            return _of_field(name, dtype, lambda kind: _member(name, kind, members))
        case Null(name):
            return _of_field(name, dtype, _null)


def _outlook(term: Term, dtype: np.dtype[Any], ranges: Mapping[str, Ranges], count: int) -> tuple[Mask, Mask]:
    """Return two masks of groups: in which some element may match a term, and in which all elements match the term.

    For a group without elements, each mask may have either value.
    """
    match term:
        case Not(inner):
            possible, sure = _outlook(inner, dtype, ranges, count)
            return ~sure, ~possible
        case And(terms) | Or(terms):
            join = np.logical_and if isinstance(term, And) else np.logical_or
            found = [_outlook(one, dtype, ranges, count) for one in terms]
            return join.reduce([one[0] for one in found]), join.reduce([one[1] for one in found])
    known = ranges.get(term.field)
    if known is None:
        return np.ones(count, np.bool_), np.zeros(count, np.bool_)
    kind = dtype if dtype.names is None else dtype[term.field]
    match term:
        case Compare(name, op, value):
            return _compared(known, op, lambda op: _compare(name, kind, op, value))
        case Member(name, members):
            return _encloses(known, _sorted_members(name, kind, members)), np.zeros(count, np.bool_)
        case Null():
            return known.has_nan, np.zeros(count, np.bool_)


def _compared(known: Ranges, op: str, test: Callable[[str], Predicate]) -> tuple[Mask, Mask]:
    """Return the masks of `_outlook` for one comparison; `test(op)` is the predicate with the operator `op`."""
    if op in ("==", "!="):
        some = test("<=")(known.least) & test(">=")(known.greatest)
        all_equal = test("==")(known.least) & test("==")(known.greatest) & ~known.has_nan
        return (some, all_equal) if op == "==" else (~all_equal, ~some)
    low, high = (known.least, known.greatest) if op in ("<", "<=") else (known.greatest, known.least)
    return test(op)(low), test(op)(high) & ~known.has_nan


def _encloses(known: Ranges, members: Column) -> Mask:
    """Return a mask of the ranges that contain at least one of `members: (m,)`, which must ascend."""
    least, greatest = (
        column.astype(np.uint8) if column.dtype.kind == "b" else column
        for column in (known.least, known.greatest)
    )
    first, last = np.searchsorted(members, least, "left"), np.searchsorted(members, greatest, "right")
    return np.asarray(first < last)


def _joined(tests: list[Predicate], join: np.ufunc) -> Predicate:
    def test(values: Column) -> Mask:
        mask = tests[0](values)
        for one in tests[1:]:
            mask = join(mask, one(values))
        return mask

    return test


def _of_field(name: str, dtype: np.dtype[Any], make: Callable[[np.dtype[Any]], Predicate]) -> Predicate:
    """Return a test of whole elements that applies `make(dtype of the field)` to the field `name`."""
    if dtype.names is None:
        if name != ELEMENT:
            raise BadRequest(
                f"The elements have no fields, so there is no field {name[:40]!r}: name the element _."
            )
        return make(_comparable(name, dtype))
    if name not in dtype.names:
        raise BadRequest(f"There is no field {name[:40]!r}; the fields: {', '.join(dtype.names)[:200]}.")
    test = make(_comparable(name, dtype[name]))
    return lambda values: test(values[name])


def _comparable(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.hasobject:
        raise BadRequest(
            f"Field {name[:40]!r} has no fixed size: a query can compare numbers and strings of fixed size. "
            "Read the values and select among them in the client."
        )
    if dtype.subdtype is not None or dtype.kind not in "biufS":
        raise BadRequest(
            f"Field {name[:40]!r} is neither a number nor a string of fixed size, so it has no order."
        )
    return dtype


def _compare(name: str, dtype: np.dtype[Any], op: str, value: Literal) -> Predicate:
    if dtype.kind == "S":
        return _against(_OPERATORS[op], np.bytes_(_bytes(name, value)))
    number = _number(name, value)
    if dtype.kind == "f":
        return _against(_OPERATORS[op], _rounded(number, dtype))
    return _integer_test(op, number, dtype)


def _against(compare: Callable[[Any, Any], Any], value: Any) -> Predicate:
    return lambda column: np.asarray(compare(column, value), np.bool_)


def _integer_test(op: str, number: float, dtype: np.dtype[Any]) -> Predicate:
    """Return a test that compares integers exactly, even with fractions and numbers beyond the dtype's range."""
    if isinstance(number, float) and not number.is_integer():
        if op in ("==", "!="):
            return _always(op == "!=")
        if math.isinf(number):
            return _always((number > 0) == (op in ("<", "<=")))
        op, number = ("<=", math.floor(number)) if op in ("<", "<=") else (">=", math.ceil(number))
    number = int(number)
    low, high = _range(dtype)
    if low <= number <= high:
        kind = np.uint8 if dtype.kind == "b" else dtype.newbyteorder("=").type
        compare, value = _OPERATORS[op], kind(number)
        if dtype.kind == "b":
            return lambda column: np.asarray(compare(column.astype(np.uint8), value), np.bool_)
        return _against(compare, value)
    return _always(op == "!=" or (op in ("<", "<=") if number > high else op in (">", ">=")))


def _range(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _always(answer: bool) -> Predicate:
    return lambda column: np.full(column.shape, answer, np.bool_)


def _member(name: str, dtype: np.dtype[Any], members: tuple[Literal, ...]) -> Predicate:
    wanted = _sorted_members(name, dtype, members)
    if dtype.kind in "Sf":
        return lambda column: np.isin(column, wanted)
    return lambda column: np.isin(column.astype(wanted.dtype, copy=False), wanted)


def _sorted_members(name: str, dtype: np.dtype[Any], members: tuple[Literal, ...]) -> Column:
    """Return those `members` that an element of `dtype` can equal, (m,) ascending."""
    if dtype.kind == "S":
        return np.sort(np.array([_bytes(name, value) for value in members], np.bytes_))
    numbers = [_number(name, value) for value in members]
    if dtype.kind == "f":
        return np.sort(np.array([_rounded(number, dtype) for number in numbers]))
    low, high = _range(dtype)
    whole = {int(number) for number in numbers if math.isfinite(number) and number == int(number)}
    kind = np.dtype(np.uint8) if dtype.kind == "b" else dtype.newbyteorder("=")
    return np.array([number for number in sorted(whole) if low <= number <= high], kind)


def _null(dtype: np.dtype[Any]) -> Predicate:
    return np.isnan if dtype.kind == "f" else _always(False)


def _number(name: str, value: Literal) -> float:
    if isinstance(value, bytes | str):
        raise BadRequest(
            f"Field {name[:40]!r} holds numbers; the query compares it with the text {value[:40]!r}."
        )
    return int(value) if isinstance(value, bool) else value


def _rounded(number: float, dtype: np.dtype[Any]) -> Any:
    """Return `number` rounded to the precision of `dtype`, or as a double if the rounded number would be infinite."""
    with np.errstate(over="ignore"):
        value = dtype.newbyteorder("=").type(number)
    return np.float64(number) if np.isinf(value) else value


def _bytes(name: str, value: Literal) -> bytes:
    """Return a text as bytes, or an integer as the bytes of its digits, because dates may be stored as strings."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value).encode()
    raise BadRequest(f"Field {name[:40]!r} holds strings; the query compares it with {value!r}: quote it.")
