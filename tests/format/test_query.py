"""Queries: what the language says and refuses, and how they are evaluated, against numpy and exact numbers."""

from __future__ import annotations

import operator
import tracemalloc
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.query import CACHE_BYTES, Ranges, _bound, bind_query, queried
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
from hsparse.model.element import FIELD_BYTES
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
    "", " ", "a", "a >", "> 1", "1 < a", "1", "a > 1 2", "a > b'x", "a > 1 &", "& a > 1", "a > 1 && b > 2",
    "a > 1 || b > 2", "(a > 1", "a > 1)", "()", "a + 1 > 2", "a * 2 > 1", "a[0] > 1", "a.b > 1", "a.isin()",
    "a.isin(1", "a.is_null(1)", "a.__class__()", "a.tofile('x')", "__import__('os').system('true')",
    "eval('1')", "a > __import__('os')", "lambda: 1", "a > 1; a > 2", "a > 1 # b", "a > `1`",
    "a > 1 if 1 else 2", "a == 1 == 1", "1 < a < 3", "a > 1..2", "a > 0x10", "a > 1j", "a > 1_000",
    "a in 1", "a in ()", "a in (1,,2)", "a not (1)", "where a", "where a == 1",
    "a > 1 where b in (1) where c in (2)", "where b in (1) & a > 1", "and > 1", "field() > 1",
    "field(1) > 1", "field('a' > 1", "a == and", "a > 1\0", "a > \\x31", "a == f'{b}'", "a > " + "9" * 100,
]  # fmt: skip


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


OPERATORS: dict[str, Any] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
DTYPE = np.dtype([("n", ">i4"), ("x", "<f8"), ("s", "S4"), ("ok", "?"), ("u", "<u8"), ("xyz", "<f4", (3,))])


def rows() -> NDArray[Any]:
    values = np.zeros(40, DTYPE)
    values["n"] = np.arange(40) - 20
    values["x"] = np.arange(40) / 4
    values["x"][7] = np.nan
    values["s"] = [b"", b"a", b"ab", b"abcd"] * 10
    values["ok"] = np.arange(40) % 2
    values["u"] = np.arange(40, dtype="u8") + 2**63
    return values


R = rows()
FINDS: dict[str, NDArray[np.bool_]] = {
    "n > 3": R["n"] > 3,
    "n >= 3.5": R["n"] >= 3.5,
    "n == 3.5": np.zeros(40, bool),
    "n != 3.5": np.ones(40, bool),
    "n < 1e300": np.ones(40, bool),
    "n > 1e999": np.zeros(40, bool),
    "n < 99999999999999999999": np.ones(40, bool),
    "n == 99999999999999999999": np.zeros(40, bool),
    "n in (1, 2.0, 2.5, 99999999999)": np.isin(R["n"], [1, 2]),
    "x <= 2.5 & n != 1": (R["x"] <= 2.5) & (R["n"] != 1),
    "x != 2.5": R["x"] != 2.5,
    "x.is_null()": np.isnan(R["x"]),
    "x.is_valid()": ~np.isnan(R["x"]),
    "n.is_null()": np.zeros(40, bool),
    "~(x < 5)": ~(R["x"] < 5),
    "x in (1, 2.25)": np.isin(R["x"], [1, 2.25]),
    "s == b'ab'": R["s"] == b"ab",
    "s == ab": R["s"] == b"ab",
    "s > 'a'": R["s"] > b"a",
    "s == ''": R["s"] == b"",
    "s == 'abcde'": np.zeros(40, bool),
    "where s in (b'a', b'abcd')": np.isin(R["s"], [b"a", b"abcd"]),
    "ok == True": R["ok"],
    "ok == 1 & n > 0": R["ok"] & (R["n"] > 0),
    "ok != 2": np.ones(40, bool),
    "ok in (false)": ~R["ok"],
    "n == true": R["n"] == 1,
    "u == 9223372036854775809": R["u"] == np.uint64(2**63 + 1),
    "u > 9223372036854775840.5": R["u"] > np.uint64(2**63),
    "u > -1": np.ones(40, bool),
}
QUERY_REFUSES = [
    "q > 1", "_ > 1", "n > 'x'", "n in ('x')", "n == b'1'", "s == 1.5", "s == true", "xyz > 1",
    "xyz.is_null()", "x == nan",
]  # fmt: skip


@pytest.mark.parametrize("text", FINDS)
def test_what_queries_find(text: str) -> None:
    np.testing.assert_array_equal(bind_query(text, DTYPE).mask(R), FINDS[text])
    np.testing.assert_array_equal(bind_query(text, DTYPE).mask(R.reshape(4, 10)).ravel(), FINDS[text])


@pytest.mark.parametrize("text", QUERY_REFUSES)
def test_what_cannot_be_compared_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        bind_query(text, DTYPE)


def test_elements_without_fields_are_named_by_an_underscore() -> None:
    values = np.arange(6, dtype="<i2")
    assert bind_query("_ > 3", values.dtype).mask(values).tolist() == [False] * 4 + [True] * 2
    for text in ("value > 3", "n > 3"):
        with pytest.raises(BadRequest, match="name the element _"):
            bind_query(text, values.dtype)
    assert bind_query("_ == 0.1", np.dtype("<f4")).takes(np.array(0.1, "<f4"))
    assert not bind_query("_ > 1e39", np.dtype("<f4")).takes(np.array(3e38, "<f4"))
    assert not bind_query("_ == 1e39", np.dtype("<f2")).takes(np.array(np.inf, "<f2"))
    assert bind_query("s == 2017", np.dtype([("s", "S8")])).takes(np.array((b"2017",), [("s", "S8")]))


NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.sampled_from([2**53 + 1, 2.0**63])
KINDS = st.sampled_from(["i1", "u1", "<i2", ">u2", "<i4", ">i8", "<u8", "?"])


@given(KINDS, st.sampled_from(list(OPERATORS)), NUMBERS, st.data())
def test_integers_compare_exactly(kind: str, op: str, number: float, data: st.DataObject) -> None:
    dtype = np.dtype(kind)
    low, high = (0, 1) if kind == "?" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    near = (
        st.integers(max(low, int(number) - 2), min(high, int(number) + 2))
        if (abs(number) < 2**71 and low <= int(number) <= high)
        else st.integers(low, high)
    )
    column = data.draw(st.lists(near | st.integers(low, high), max_size=5))
    literal = repr(number).replace("inf", "1e999")
    found = bind_query(f"_ {op} {literal}", dtype).mask(np.array(column, dtype))
    assert found.tolist() == [OPERATORS[op](value, number) for value in column]
    member = bind_query(f"_ in ({literal}, 1)", dtype).mask(np.array(column, dtype))
    assert member.tolist() == [value in (number, 1) for value in column]


@given(
    st.sampled_from(["<f2", "<f4", ">f4", "<f8", ">f8"]),
    st.sampled_from(list(OPERATORS)),
    st.floats(-60000, 60000),
    st.data(),
)
def test_floats_compare_as_numpy_compares_them(
    kind: str, op: str, number: float, data: st.DataObject
) -> None:
    dtype = np.dtype(kind)
    values = st.floats(width=8 * dtype.itemsize) | st.just(float(dtype.newbyteorder("=").type(number)))
    column = np.array(data.draw(st.lists(values, max_size=5)), dtype)
    found = bind_query(f"_ {op} {number!r}", dtype).mask(column)
    np.testing.assert_array_equal(found, OPERATORS[op](column, number))


@given(
    st.sampled_from(list(OPERATORS)),
    st.binary(max_size=6).filter(lambda text: not set(text) & set(b"'\"\0") and text.isascii()),
    st.lists(st.binary(max_size=4), max_size=5),
)
def test_strings_compare_as_numpy_compares_them(op: str, text: bytes, column: list[bytes]) -> None:
    values = np.array(column, "S4")
    found = bind_query(f"_ {op} b'{text.decode()}'", values.dtype).mask(values)
    np.testing.assert_array_equal(found, OPERATORS[op](values, np.bytes_(text)))


def test_the_fields_that_a_query_looks_at() -> None:
    assert queried("n > 1 & not (x.is_null() | s in (a, b)) where n in (1, 2)") == {"n", "x", "s"}


def test_fields_of_variable_length_cannot_be_compared() -> None:
    dtype = np.dtype([("n", "<i4"), ("t", object)])
    assert bind_query("n == 1", dtype).dtype == dtype
    with pytest.raises(BadRequest, match="no fixed size"):
        bind_query("t == 'a'", dtype)


NUMBERS = st.one_of(st.integers(-5, 5), st.sampled_from([0.5, -1.25, 1e300, 2**63, -(2**63)]))


@example("i1", [0.5], [(0, 1, False)])
@given(
    st.sampled_from(["i1", "<u8", ">i4", "f2", ">f4", "?", "S2"]),
    st.lists(NUMBERS, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans())),
)
def test_a_list_may_be_found_where_one_of_its_members_may(
    kind: str, members: list[float], groups: list[tuple[int, int, bool]]
) -> None:
    dtype = np.dtype(kind)
    texts = [repr(f"{n}"[:2]) if dtype.kind == "S" else repr(n) for n in members]
    least = np.array([low for low, _, _ in groups]).astype(dtype)
    greatest = np.array([low + more for low, more, _ in groups]).astype(dtype)
    has_nan = np.array([nan for _, _, nan in groups], bool)
    if dtype.kind == "f":
        least[has_nan] = greatest[has_nan] = np.nan
    ranges = {"_": Ranges(least, greatest, has_nan)}
    found = bind_query(f"_ in ({', '.join(texts)})", dtype).may_find(ranges, len(groups))
    one_by_one = np.zeros(len(groups), bool)
    for member, text in zip(members, texts, strict=True):
        if dtype.kind in "Sf" or member == int(member):  # a list leaves out what no integer can be
            one_by_one |= bind_query(f"_ == {text}", dtype).may_find(ranges, len(groups))
    np.testing.assert_array_equal(found, one_by_one)


def test_a_long_list_takes_no_memory_for_each_range_and_member() -> None:
    count = 10_000
    query = bind_query(f"_ in ({','.join(['1', '2', '3'] * 2500)})", np.dtype("i4"))
    ranges = {"_": Ranges(np.zeros(count, "i4"), np.ones(count, "i4"), np.zeros(count, bool))}
    tracemalloc.start()
    try:
        assert query.may_find(ranges, count).all()
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_types_of_many_fields_are_not_remembered() -> None:
    """Their memory is the types', not that of the texts."""
    inner = np.dtype([(f"f{number}", "<i4") for number in range(CACHE_BYTES // 8 // FIELD_BYTES)])
    before = _bound.results.size
    for dtype in (inner, np.dtype([("a", "<i4"), ("b", inner, (2,))])):
        bind_query(f"{dtype.names[0]} > 1", dtype)  # type: ignore[index]
        assert _bound.results.size == before
