"""The query language: what it says, what it refuses, and that nothing else ever happens."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.format.query import bind_query
from hsparse.format.query_syntax import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_TESTS,
    And,
    Compare,
    Member,
    Not,
    Null,
    Or,
    Term,
    parse_query,
)
from tests.support.characters import CHARACTERS

A, B, C = Compare("a", ">", 1), Compare("b", "==", b"x"), Compare("c", "!=", -2.5)
SAYS: dict[str, Term] = {
    "a > 1": A,
    "a>1": A,
    "  ( a\n>\t1 ) ": A,
    "a = 1": Compare("a", "==", 1),
    "a <= 1e-3": Compare("a", "<=", 0.001),
    "a >= .5": Compare("a", ">=", 0.5),
    "a < -7": Compare("a", "<", -7),
    'a == "it\'s"': Compare("a", "==", "it's"),
    "a == b'é'": Compare("a", "==", "é".encode()),
    "a == AAPL": Compare("a", "==", "AAPL"),
    "a == True": Compare("a", "==", True),
    "a == false": Compare("a", "==", False),
    "_ > 1": Compare("_", ">", 1),
    "'a b' > 1": Compare("a b", ">", 1),
    "field('and') > 1": Compare("and", ">", 1),
    "field(a) > 1": A,
    "field > 1 and field(field) > 2": And((Compare("field", ">", 1), Compare("field", ">", 2))),
    "a > 1 & b == b'x'": And((A, B)),
    "a > 1 AND b == b'x' & c != -2.5": And((A, B, C)),
    "a > 1 | b == b'x' & c != -2.5": Or((A, And((B, C)))),
    "(a > 1 or b == b'x') & c != -2.5": And((Or((A, B)), C)),
    "~a > 1 & b == b'x'": And((Not(A), B)),
    "not (a > 1 | not b == b'x')": Not(Or((A, Not(B)))),
    "a in (1, 2)": Member("a", (1, 2)),
    "a in (b'x',)": Member("a", (b"x",)),
    "a not in ('x', y)": Not(Member("a", ("x", "y"))),
    "a.isin(1,2)": Member("a", (1, 2)),
    "field('a').is_null()": Null("a"),
    "a.is_valid()": Not(Null("a")),
    "where a in (b'A', b'B')": Member("a", (b"A", b"B")),
    "a > 1 where b in ('x')": And((A, Member("b", ("x",)))),
    "where > 1": Compare("where", ">", 1),
    "where in (1)": Member("where", (1,)),
    "where where in (1)": Member("where", (1,)),
}
REFUSES = [
    "",
    " ",
    "a",
    "a >",
    "> 1",
    "1 < a",
    "1",
    "a > 1 2",
    "a > b'x",
    "a > 1 &",
    "& a > 1",
    "a > 1 && b > 2",
    "a > 1 || b > 2",
    "(a > 1",
    "a > 1)",
    "()",
    "a + 1 > 2",
    "a * 2 > 1",
    "a[0] > 1",
    "a.b > 1",
    "a.isin()",
    "a.isin(1",
    "a.is_null(1)",
    "a.__class__()",
    "a.tofile('x')",
    "__import__('os').system('true')",
    "eval('1')",
    "a > __import__('os')",
    "lambda: 1",
    "a > 1; a > 2",
    "a > 1 # b",
    "a > `1`",
    "a > 1 if 1 else 2",
    "a == 1 == 1",
    "1 < a < 3",
    "a > 1..2",
    "a > 0x10",
    "a > 1j",
    "a > 1_000",
    "a in 1",
    "a in ()",
    "a in (1,,2)",
    "a not (1)",
    "where a",
    "where a == 1",
    "a > 1 where b in (1) where c in (2)",
    "where b in (1) & a > 1",
    "and > 1",
    "field() > 1",
    "field(1) > 1",
    "field('a' > 1",
    "a == and",
    "a > 1\0",
    "a > \\x31",
    "a == f'{b}'",
    "a > " + "9" * 100,
]


@pytest.mark.parametrize("text", SAYS)
def test_what_a_query_says(text: str) -> None:
    assert parse_query(text) == SAYS[text]


@pytest.mark.parametrize("text", REFUSES)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_query(text)
    assert caught.value.message.endswith(".")
    assert len(caught.value.message) < 200


def test_queries_have_limits() -> None:
    parse_query("(" * MAX_DEPTH + "a > 1" + ")" * MAX_DEPTH)
    parse_query(" | ".join(["a > 1"] * MAX_TESTS))
    for text in (
        "(" * (MAX_DEPTH + 1) + "a > 1" + ")" * (MAX_DEPTH + 1),
        "~" * 2000 + "a > 1",
        "not " * 2000 + "a > 1",
        "(" * 5000,
        " | ".join(["a > 1"] * (MAX_TESTS + 1)),
        "a > 1" + " " * MAX_LENGTH,
        f"a in ({','.join('1' * 20_000)})",
    ):
        with pytest.raises(BadRequest):
            parse_query(text)


WORDS = ["a", "where", "in", "not", "and", "field", "isin", "is_null", "_", "true", "nan", "__class__"]
SIGNS = [*"()&|~.,=<>!+-*/%[]{}:;@#$^`\\'\"\0\n ", "==", "!=", "<=", ">=", "b'", "é", "\ud800", "\uff19"]
VALUES = ["1", "-2.5", "1e308", "1e999", "'x'", 'b"y"', "b''", "''"]


ELEMENTS = np.zeros(3, [("a", "<i4"), ("_", "<f8"), ("field", "S3"), ("where", "?")])


@given(
    st.lists(st.sampled_from(WORDS + SIGNS + VALUES), max_size=40).map("".join)
    | st.text(CHARACTERS, max_size=60)
)
def test_hostile_queries_are_read_or_refused(text: str) -> None:
    with suppress(BadRequest):
        mask = bind_query(text, ELEMENTS.dtype).mask(ELEMENTS)
        assert (mask.dtype, mask.shape) == (np.bool_, ELEMENTS.shape)


@st.composite
def terms(draw: st.DrawFn, depth: int = 3) -> tuple[str, Term]:
    """Draw a query and what it says, with parentheses around whatever is joined."""
    kind = draw(st.sampled_from(["test", "not", "and", "or"])) if depth else "test"
    if kind == "test":
        op = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
        number = draw(st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False))
        return f"a {op} {number!r}", Compare("a", op, number)
    if kind == "not":
        text, term = draw(terms(depth=depth - 1))
        return f"~({text})", Not(term)
    some = draw(st.lists(terms(depth=depth - 1), min_size=2, max_size=3))
    sign = "&" if kind == "and" else "|"
    return sign.join(f"({text})" for text, _ in some), (And if kind == "and" else Or)(
        tuple(term for _, term in some)
    )
