"""Conditions on the rows of a data frame: `cell_type == 'B cell' and n_genes > 500`.

The language is a part of Python's: comparisons (also chained, `in`, `not in`), `and`, `or`, `not` (or `&`, `|`, `~`
with parentheses), `+ - * /`, numbers, text, lists of them, `isnull(x)` and `notnull(x)`. A name is a column; one that
is no identifier stands in backticks; `index` is the index, unless there is such a column. It is parsed into Python's
syntax tree, of which only these parts are accepted, and evaluated over columns: nothing in it is ever run as Python.

A missing value is like pandas' own: it is not equal to anything, and a row whose result is missing does not match.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import InvalidValue, MissingKey, WrongType

QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`([^`]+)`")
"""Text, which is left alone, or a name in backticks."""
COMPARISONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.And: operator.and_,
    ast.Or: operator.or_,
}
FUNCTIONS = {"isnull": False, "notnull": True}
"""Functions of a column, and whether the result is negated."""
INDEX = "index"


class Expression:
    """A condition. `names` are the columns that it names."""

    def __init__(self, text: str) -> None:
        """Parse it; `InvalidValue` for what is not in the language."""
        self.text = text
        self._quoted: dict[str, str] = {}
        try:
            self._tree = ast.parse(QUOTED.sub(self._unquote, text.strip()), mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            raise InvalidValue(f"The condition {text!r:.200} cannot be read: {error}.") from error
        self.names: set[str] = set()
        self._check(self._tree)

    def evaluate(self, columns: Mapping[str, Any], length: int) -> NDArray[np.bool_]:
        """Return which of `length` rows match; `columns` are pandas' Series by name.

        `WrongType` for a condition that is no truth value, or compares what cannot be compared.
        """
        try:
            result = self._value(self._tree, columns)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, WrongType):
                raise
            raise WrongType(f"The condition {self.text!r} does not fit its columns: {error}") from error
        if isinstance(result, bool | np.bool_):
            return np.full(length, bool(result))
        return np.asarray(_truth(result, self.text).to_numpy(dtype=bool, na_value=False))

    def _unquote(self, found: re.Match[str]) -> str:
        name = found.group(1)
        if name is None:
            return found.group()
        stand_in = f"_quoted_{len(self._quoted)}"
        self._quoted[stand_in] = name
        return stand_in

    def _check(self, node: ast.AST) -> None:
        """Refuse what is not in the language, and collect the names of columns."""
        match node:
            case ast.Name(id=name):
                self.names.add(self._quoted.get(name, name))
                return
            case ast.Constant(value=str() | int() | float()):
                return
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                if all(_is_constant(one) for one in parts):
                    return
                raise self._refused(node, "lists have numbers and text")
            case ast.BoolOp(values=parts):
                pass
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=one):
                parts = [one]
            case ast.BinOp(left=left, op=kind, right=right) if type(kind) in OPERATORS:
                parts = [left, right]
            case ast.Compare(left=left, ops=kinds, comparators=others):
                if not all(
                    type(kind) in COMPARISONS or isinstance(kind, ast.In | ast.NotIn) for kind in kinds
                ):
                    raise self._refused(node, "compare with ==, !=, <, <=, >, >=, in or not in")
                parts = [left, *others]
            case ast.Call(func=ast.Name(id=name), args=[one], keywords=[]) if name in FUNCTIONS:
                parts = [one]
            case _:
                raise self._refused(node, f"there are comparisons, and, or, not, and {', '.join(FUNCTIONS)}")
        for part in parts:
            self._check(part)

    def _refused(self, node: ast.AST, remedy: str) -> InvalidValue:
        return InvalidValue(
            f"{type(node).__name__} in the condition {self.text!r:.200} is not understood: {remedy}."
        )

    def _value(self, node: ast.AST, columns: Mapping[str, Any]) -> Any:
        match node:
            case ast.Name(id=name):
                return self._column(self._quoted.get(name, name), columns)
            case ast.List() | ast.Tuple() | ast.Set() | ast.Constant():
                return _constants(node)
            case ast.BoolOp(op=kind, values=parts):
                values = [_truth(self._value(part, columns), self.text) for part in parts]
                result = values[0]
                for value in values[1:]:
                    result = OPERATORS[type(kind)](result, value)
                return result
            case ast.UnaryOp(op=ast.USub(), operand=one):
                return -self._value(one, columns)
            case ast.UnaryOp(operand=one):
                value = _truth(self._value(one, columns), self.text)
                return not value if isinstance(value, bool) else ~value
            case ast.BinOp(left=left, op=kind, right=right):
                return OPERATORS[type(kind)](self._value(left, columns), self._value(right, columns))
            case ast.Call(func=ast.Name(id=name), args=[one]):
                column = self._value(one, columns)
                return column.notna() if FUNCTIONS[name] else column.isna()
        assert isinstance(node, ast.Compare)
        return self._comparison(node, columns)

    def _comparison(self, node: ast.Compare, columns: Mapping[str, Any]) -> Any:
        values = [self._value(one, columns) for one in (node.left, *node.comparators)]
        result: Any = None
        for kind, left, right in zip(node.ops, values, values[1:], strict=False):
            if isinstance(kind, ast.In | ast.NotIn):
                if not isinstance(right, list) or not hasattr(left, "isin"):
                    raise WrongType(
                        f"`in` in the condition {self.text!r} has a column before and a list behind it."
                    )
                one = left.isin(right)
                one = ~one if isinstance(kind, ast.NotIn) else one
            else:
                one = COMPARISONS[type(kind)](left, right)
            result = one if result is None else result & one
        return result

    def _column(self, name: str, columns: Mapping[str, Any]) -> Any:
        try:
            return columns[name]
        except KeyError:
            raise MissingKey(
                f"There is no column {name!r}, which the condition {self.text!r} names."
            ) from None


def _truth(value: Any, text: str) -> Any:
    """Return a truth value, or a Series of them; `WrongType` for anything else."""
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "boolean"):
        return value
    what = getattr(value, "name", None) or value
    raise WrongType(f"The condition {text!r} has {what!r:.40} where a truth value stands: compare it.")


def _is_constant(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, str | int | float)


def _constants(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return -_constants(node.operand)
    assert isinstance(node, ast.List | ast.Tuple | ast.Set)
    return [_constants(one) for one in node.elts]
