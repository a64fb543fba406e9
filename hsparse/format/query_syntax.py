"""The query language over elements: `price > 2.5 & (name == b'x' | name in (b'A', b'B'))`.

The grammar is the grammar of HSDS 1.0 (h5col's, with words as alternatives to signs) and HSDS 0.9's clause `where`:

    query     := [ either ] [ "where" field "in" values ]
    either    := both { ("|" | "or") both }
    both      := one { ("&" | "and") one }
    one       := ("~" | "not") one | "(" either ")" | predicate
    predicate := field ( ("==" | "=" | "!=" | "<" | "<=" | ">" | ">=") value
                       | [ "not" ] "in" values | ".isin" values | ".is_null()" | ".is_valid()" )
    field     := name | text | "field" "(" (name | text) ")"
    values    := "(" value { "," value } ")"
    value     := number | text | b text | "true" | "false" | name

Words are case-insensitive. A bare name in the position of a value is text. `_` names an element that has no fields.
Nothing is evaluated as code: text outside this grammar raises `BadRequest`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from hsparse.bounded_cache import remember
from hsparse.errors import BadRequest

MAX_LENGTH = 16 * 1024
MAX_DEPTH = 32
MAX_TESTS = 256
"""The most comparisons in a query, because each comparison is applied to every selected element."""
MAX_DIGITS = 40
CACHE_BYTES = 8 * 1024 * 1024
"""Bytes of memory for cached parsed queries."""
TERM_BYTES = 20
"""Estimated bytes of memory of a parsed query per character of its text; a long list of numbers takes this much."""
WORDS = frozenset({"true", "false", "and", "or", "not", "in"})
"""Reserved words. In `field(...)` or in quotes, a reserved word is a name."""

Literal: TypeAlias = int | float | bool | bytes | str


@dataclass(frozen=True, slots=True)
class Compare:
    """The comparison `field op value`; `op` is one of `== != < <= > >=`."""

    field: str
    op: str
    value: Literal


@dataclass(frozen=True, slots=True)
class Member:
    """The membership test `field in (values)`."""

    field: str
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Null:
    """The test `field.is_null()`, true for floats that are NaN."""

    field: str


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a term."""

    term: Term


@dataclass(frozen=True, slots=True)
class And:
    """The conjunction of terms."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """The disjunction of terms."""

    terms: tuple[Term, ...]


Term: TypeAlias = Compare | Member | Null | Not | And | Or
"""A parsed query, or a part of a parsed query."""

_TOKEN = re.compile(
    r"""(?P<bytes>[bB](?:'[^']*'|"[^"]*"))|(?P<text>'[^']*'|"[^"]*")
    |(?P<number>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?![\w.])
    |(?P<name>[^\W\d]\w*)|(?P<op>==|!=|<=|>=|=|<|>)|(?P<sign>[()&|~.,])""",
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*")
_END = ("end", "")
Token = tuple[str, str]


@remember(CACHE_BYTES, lambda _, text: TERM_BYTES * len(text))
def parse_query(text: str) -> Term:
    """Return the parsed query; raise `BadRequest` if it is malformed. Fields and their types are not checked."""
    if len(text) > MAX_LENGTH:
        raise BadRequest(f"The query has {len(text)} characters; the limit is {MAX_LENGTH}.")
    return _Parser(_tokens(text)).query()


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    place = _skip(text, 0)
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise BadRequest(f"The query has an unexpected character at {text[place : place + 20]!r}.")
        kind = str(match.lastgroup)
        tokens.append((kind, match.group(kind)))
        place = _skip(text, match.end())
    return tokens


def _skip(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return place if match is None else match.end()


class _Parser:
    """A recursive descent parser over (kind, text) tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._place = 0
        self._tests = 0

    def query(self) -> Term:
        terms = [] if self._at_where() else [self._either(0)]
        if self._at_where():
            self._place += 1
            field = self._field()
            if not self._word("in"):
                raise BadRequest(f"The query needs 'in' after 'where {field[:40]}', not {self._seen()}.")
            terms.append(Member(field, self._values()))
        if self._peek() != _END:
            raise BadRequest(f"The query has {self._seen()} where it should end or continue with & or |.")
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def _either(self, depth: int) -> Term:
        terms = [self._both(depth)]
        while self._sign("|") or self._word("or"):
            terms.append(self._both(depth))
        return terms[0] if len(terms) == 1 else Or(tuple(terms))

    def _both(self, depth: int) -> Term:
        terms = [self._one(depth)]
        while self._sign("&") or self._word("and"):
            terms.append(self._one(depth))
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def _one(self, depth: int) -> Term:
        if depth > MAX_DEPTH:
            raise BadRequest(f"The query is nested more than {MAX_DEPTH} levels deep.")
        if self._sign("~") or self._word("not"):
            return Not(self._one(depth + 1))
        if self._sign("("):
            term = self._either(depth + 1)
            self._expect(")")
            return term
        return self._predicate()

    def _predicate(self) -> Term:
        self._tests += 1
        if self._tests > MAX_TESTS:
            raise BadRequest(f"The query has more than {MAX_TESTS} comparisons: use 'in (...)' for lists.")
        field = self._field()
        if self._sign("."):
            return self._method(field)
        if self._word("in"):
            return Member(field, self._values())
        if self._word("not"):
            if not self._word("in"):
                raise BadRequest(f"The query needs 'in' after 'not', not {self._seen()}.")
            return Not(Member(field, self._values()))
        kind, op = self._peek()
        if kind != "op":
            raise BadRequest(f"The query needs a comparison after {field[:40]!r}, not {self._seen()}.")
        self._place += 1
        return Compare(field, "==" if op == "=" else op, self._value())

    def _method(self, field: str) -> Term:
        kind, name = self._peek()
        method = name.lower() if kind == "name" else ""
        if method not in ("isin", "is_null", "is_valid"):
            raise BadRequest(f"A field's methods are isin(...), is_null(), is_valid(), not {self._seen()}.")
        self._place += 1
        if method == "isin":
            return Member(field, self._values())
        self._expect("(")
        self._expect(")")
        return Null(field) if method == "is_null" else Not(Null(field))

    def _field(self) -> str:
        kind, text = self._peek()
        if kind == "name" and text.lower() == "field" and self._peek(1) == ("sign", "("):
            self._place += 2
            kind, text = self._peek()
            name = self._name(kind, text)
            self._expect(")")
            return name
        if kind == "name" and text.lower() in WORDS:
            raise BadRequest(f"The query needs a field, not the word {text!r}; write field('{text}').")
        return self._name(kind, text)

    def _name(self, kind: str, text: str) -> str:
        if kind not in ("name", "text"):
            raise BadRequest(f"The query needs the name of a field, not {self._seen()}.")
        self._place += 1
        return text[1:-1] if kind == "text" else text

    def _values(self) -> tuple[Literal, ...]:
        self._expect("(")
        values = [self._value()]
        while self._sign(","):
            if self._peek() == ("sign", ")"):  # a trailing comma, as in Python's (b'A',)
                break
            values.append(self._value())
        self._expect(")")
        return tuple(values)

    def _value(self) -> Literal:
        kind, text = self._peek()
        word = text.lower() if kind == "name" else ""
        if kind not in ("bytes", "text", "number", "name") or (
            word in WORDS and word not in ("true", "false")
        ):
            raise BadRequest(f"The query needs a number or a text, not {self._seen()}.")
        self._place += 1
        if kind == "number":
            return _number(text)
        if kind == "bytes":
            return text[2:-1].encode("utf-8", "surrogatepass")
        return text[1:-1] if kind == "text" else text if word not in WORDS else word == "true"

    def _at_where(self) -> bool:
        """Return whether the clause `where field in` begins here; `where` may also be the name of a field."""
        kind, text = self._peek()
        return (
            kind == "name"
            and text.lower() == "where"
            and self._peek(1)[0] in ("name", "text")
            and (self._peek(1)[1].lower() not in ("in", "not"))
        )

    def _peek(self, ahead: int = 0) -> Token:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else _END

    def _seen(self) -> str:
        kind, text = self._peek()
        return "its end" if kind == "end" else repr(text[:40])

    def _sign(self, sign: str) -> bool:
        found = self._peek() == ("sign", sign)
        self._place += found
        return found

    def _word(self, word: str) -> bool:
        kind, text = self._peek()
        found = kind == "name" and text.lower() == word
        self._place += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._sign(sign):
            raise BadRequest(f"The query needs {sign!r}, not {self._seen()}.")


def _number(text: str) -> int | float:
    if len(text) > MAX_DIGITS:
        raise BadRequest(f"A number in the query has more than {MAX_DIGITS} characters: shorten it.")
    return float(text) if any(sign in text for sign in ".eE") else int(text)
