"""Queries over a root group's attributes, in listings of folders: `a > 7 AND b != 'x'`.

Comparisons (`==`, `=`, `!=`, `<`, `<=`, `>`, `>=`) of an attribute's name with a number or a quoted text,
joined by `AND` (`&`) and `OR` (`|`), which binds less, with parentheses. Only scalar numbers and strings are
compared; a comparison with an attribute that does not exist, or is of another type, is false.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hsparse.errors import BadRequest

MAX_QUERY = 4096
MAX_COMPARISONS = 64
"""The most comparisons: each is made with every domain of a folder."""
MAX_DEPTH = 32
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>b?'[^']*'|b?"[^"]*")|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<name>[^\W\d][\w.\-]*)|(?P<op>==|!=|<=|>=|=|<|>)|(?P<sign>[()&|]))""",
    re.VERBOSE,
)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Attributes = dict[str, Any]
AttributeTest = Callable[[Attributes], bool]


@dataclass(frozen=True, slots=True)
class AttributeQuery:
    """A parsed query."""

    test: AttributeTest

    def matches(self, attributes: Attributes) -> bool:
        """Say whether an object with these stored attributes matches the query."""
        return self.test(attributes)


def parse_attribute_query(text: str) -> AttributeQuery:
    """Parse a query; `BadRequest` names the error."""
    if len(text) > MAX_QUERY:
        raise BadRequest(f"The query has {len(text)} characters; the limit is {MAX_QUERY}.")
    parser = _Parser(_tokens(text))
    test = parser.either(0)
    parser.expect_end()
    return AttributeQuery(test)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    place, text = 0, text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise BadRequest(f"The query cannot be read from {text[place : place + 20]!r} on.")
        kind = str(match.lastgroup)
        tokens.append((kind, match.group(kind)))
        place = match.end()
    return tokens


class _Parser:
    """Recursive descent over (kind, text) tokens."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._place = 0
        self._comparisons = 0

    def either(self, depth: int) -> AttributeTest:
        tests = [self._both(depth)]
        while self._take("|", "OR"):
            tests.append(self._both(depth))
        return tests[0] if len(tests) == 1 else lambda attributes: any(test(attributes) for test in tests)

    def expect_end(self) -> None:
        if self._place < len(self._tokens):
            raise BadRequest(
                f"The query has {self._tokens[self._place][1]!r} where it should end, or AND or OR."
            )

    def _both(self, depth: int) -> AttributeTest:
        tests = [self._one(depth)]
        while self._take("&", "AND"):
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda attributes: all(test(attributes) for test in tests)

    def _one(self, depth: int) -> AttributeTest:
        if depth > MAX_DEPTH:
            raise BadRequest(f"The query has more than {MAX_DEPTH} parentheses in each other.")
        if self._take("("):
            test = self.either(depth + 1)
            if not self._take(")"):
                raise BadRequest("The query has a parenthesis that is not closed.")
            return test
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise BadRequest(f"The query has more than {MAX_COMPARISONS} comparisons.")
        name = self._next("name", "an attribute's name")
        compare = _OPERATORS[self._next("op", "a comparison")]
        value = self._value()
        return lambda attributes: _compare(compare, attributes.get(name), value)

    def _value(self) -> Any:
        kind, text = self._tokens[self._place] if self._place < len(self._tokens) else ("", "")
        self._place += 1
        if kind == "text":
            return text.removeprefix("b")[1:-1]
        if kind == "number":
            return float(text) if any(c in text for c in ".eE") else int(text)
        raise BadRequest(f"The query needs a number or a quoted text, not {text!r}.")

    def _next(self, wanted: str, meaning: str) -> str:
        kind, text = self._tokens[self._place] if self._place < len(self._tokens) else ("", "")
        self._place += 1
        if kind != wanted:
            raise BadRequest(f"The query needs {meaning}, not {text!r}.")
        return text

    def _take(self, *texts: str) -> bool:
        if self._place < len(self._tokens):
            kind, text = self._tokens[self._place]
            if kind in ("sign", "name") and text.upper() in texts:
                self._place += 1
                return True
        return False


def _compare(compare: Callable[[Any, Any], bool], stored: Any, value: Any) -> bool:
    if not isinstance(stored, dict) or stored.get("shape", {}).get("class") != "H5S_SCALAR":
        return False
    there = stored.get("value")
    if isinstance(value, str):
        return isinstance(there, str) and compare(there, value)
    return isinstance(there, int | float) and compare(there, value)
