"""Conditions on the rows of a data frame: `cell_type == 'B cell' and n_genes > 500`.

The language is a subset of Python's expressions, with the meaning of `DataFrame.query`: comparisons (chained, `in` and
`not in`), `and`, `or`, `not` (or `&` and `|`, which have the same precedence, and `~`), `+ - * /`, numbers, text, lists
of these, `x.isin([...])`, and `isnull(x)` and `notnull(x)`, which are also methods. A name is a column; backticks quote
a name that is no identifier; `index` is the index, unless a column has this name; `@name` is a variable of the caller.
A condition is parsed to Python's syntax tree, checked for other forms, and evaluated over columns, never executed.

Missing values behave as in pandas: they equal nothing, and a row whose result is missing does not match.
"""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import InvalidValue, MissingKey, WrongType

TOKEN = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?P<column>[^`]+)`|@(?P<variable>[^\W\d]\w*)|(?P<both>[&|])"
    r"|(?<![=!<>])(?P<set>=)(?!=)"
)
"""Matches quoted text, which is kept, and tokens that mean something else in Python, which are replaced."""
COMPARISONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
COMPARED = {*COMPARISONS, ast.In, ast.NotIn}
OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.And: operator.and_,
    ast.Or: operator.or_,
}
FUNCTIONS = {"isnull": False, "notnull": True, "isna": False, "notna": True}
"""Maps each function or method that tests a column for missing values to whether it negates the test."""
IS_IN = "isin"
PLAIN = (str, int, float, np.bool_, np.integer, np.floating)
"""The types of a caller's variable, or of the elements of a list in such a variable."""
INDEX = "index"


class Expression:
    """A condition on the columns of a data frame; `names` are the columns that it uses."""

    def __init__(self, text: str) -> None:
        """Parse `text`; raise `InvalidValue` for unknown syntax, `MissingKey` or `WrongType` for a bad variable."""
        self.text = text
        self._quoted: dict[str, str] = {}
        self._variables: dict[str, Any] = {}
        try:
            self._tree = ast.parse(TOKEN.sub(self._unquote, text.strip()), mode="eval").body
        except InvalidValue:
            raise
        except (SyntaxError, ValueError, RecursionError) as error:
            reason = getattr(error, "msg", None) or error
            raise InvalidValue(
                f"The condition {text!r:.200} cannot be read: {reason}; a column's name with spaces needs `backticks`."
            ) from error
        self.names: set[str] = set()
        self._check(self._tree)

    def evaluate(self, columns: Mapping[str, Any], length: int) -> NDArray[np.bool_]:
        """Return the mask of the rows that match, (length,); `columns` are pandas Series by name.

        Raise `WrongType` for a condition that is not boolean, or that compares values of incomparable types.
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
        if found["set"]:
            raise InvalidValue(f"The condition {self.text!r:.200} has a single =: write == to compare.")
        if found["both"]:  # pandas gives & and | the precedence of `and` and `or`
            return " and " if found["both"] == "&" else " or "
        if found["variable"]:
            stand_in = f"_variable_{found['variable']}"
            self._variables[stand_in] = _caller_value(found["variable"], self.text)
            return stand_in
        if found["column"] is None:
            return found.group()
        stand_in = f"_quoted_{len(self._quoted)}"
        self._quoted[stand_in] = found["column"]
        return stand_in

    def _check(self, node: ast.AST) -> None:
        """Raise `InvalidValue` for a node that is not in the language, and collect the names of columns."""
        match node:
            case ast.Name(id=name):
                if name not in self._variables:
                    self.names.add(self._quoted.get(name, name))
                return
            case ast.Constant(value=str() | int() | float()):
                return
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                if all(_is_constant(one) for one in parts):
                    return
                raise self._refused(node, "lists may have numbers and text only")
            case ast.BoolOp(values=parts):
                pass
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=one):
                parts = [one]
            case ast.BinOp(left=left, op=kind, right=right) if type(kind) in OPERATORS:
                parts = [left, right]
            case ast.Compare(left=left, ops=kinds, comparators=others) if COMPARED.issuperset(
                map(type, kinds)
            ):
                parts = [left, *others]
            case ast.Call() if (called := _called(node)) is not None:
                parts = called[1]
            case _:
                functions = ", ".join((IS_IN, *FUNCTIONS))
                raise self._refused(
                    node,
                    f"conditions may use ==, !=, <, <=, >, >=, in, not in, and, or, not, + - * /, and {functions}",
                )
        for part in parts:
            self._check(part)

    def _refused(self, node: ast.AST, remedy: str) -> InvalidValue:
        return InvalidValue(
            f"{type(node).__name__} in the condition {self.text!r:.200} is not understood: {remedy}."
        )

    def _value(self, node: ast.AST, columns: Mapping[str, Any]) -> Any:
        match node:
            case ast.Name(id=name) if name in self._variables:
                return self._variables[name]
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
            case ast.Call():
                return self._call(node, columns)
        assert isinstance(node, ast.Compare)
        return self._comparison(node, columns)

    def _comparison(self, node: ast.Compare, columns: Mapping[str, Any]) -> Any:
        values = [self._value(one, columns) for one in (node.left, *node.comparators)]
        result: Any = None
        for kind, left, right in zip(node.ops, values, values[1:], strict=False):
            if isinstance(kind, ast.In | ast.NotIn):
                one = self._is_in(left, right)
                one = ~one if isinstance(kind, ast.NotIn) else one
            else:
                one = COMPARISONS[type(kind)](left, right)
            result = one if result is None else result & one
        return result

    def _call(self, node: ast.Call, columns: Mapping[str, Any]) -> Any:
        called = _called(node)
        assert called is not None
        name, (column, *others) = called[0], [self._value(one, columns) for one in called[1]]
        if name == IS_IN:
            return self._is_in(column, others[0])
        return column.notna() if FUNCTIONS[name] else column.isna()

    def _is_in(self, column: Any, values: Any) -> Any:
        if not isinstance(values, list) or not hasattr(column, "isin"):
            raise WrongType(
                f"In the condition {self.text!r}, `in` needs a column on its left and a list on its right."
            )
        return column.isin(values)

    def _column(self, name: str, columns: Mapping[str, Any]) -> Any:
        try:
            return columns[name]
        except KeyError:
            raise MissingKey(
                f"There is no column {name!r}, which the condition {self.text!r} names."
            ) from None


def _called(node: ast.Call) -> tuple[str, list[ast.expr]] | None:
    """Return a pair: a call's name and arguments (a method's object first), or None for an unsupported call."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]):
            pass
        case ast.Call(func=ast.Attribute(value=one, attr=name), args=others, keywords=[]):
            parts = [one, *others]
        case _:
            return None
    wanted = 2 if name == IS_IN else 1 if name in FUNCTIONS else None
    return (name, parts) if len(parts) == wanted else None


def _caller_value(name: str, text: str) -> Any:
    """Return the variable `name` of the innermost caller outside hsparse: a number, a text or a list of these."""
    frame: Any = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "hsparse":
        frame = frame.f_back
    for names in (frame.f_locals, frame.f_globals):
        if name in names:
            value = names[name]
            break
    else:
        raise MissingKey(
            f"The variable {name!r} of the condition {text!r:.200} does not exist: write its value instead."
        )
    if isinstance(value, PLAIN):
        return value
    found = [] if isinstance(value, Mapping) or not hasattr(value, "__iter__") else list(value)
    if not found or not all(isinstance(one, PLAIN) for one in found):
        raise WrongType(
            f"@{name} in the condition {text!r:.200} is neither a number, a text nor a list of these."
        )
    return found


def _truth(value: Any, text: str) -> Any:
    """Return `value` if it is a bool or a boolean Series; raise `WrongType` for anything else."""
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "boolean"):
        return value
    what = getattr(value, "name", None) or value
    raise WrongType(f"The condition {text!r} uses {what!r:.40} as a truth value: compare it with a value.")


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
