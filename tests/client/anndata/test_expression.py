"""Conditions beside pandas' own language for them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.client.errors import InvalidValue, MissingKey, WrongType
from hsparse.client.integrations.anndata.expression import Expression

FRAME = pd.DataFrame(
    {
        "kind": pd.Categorical(["a", "b", "c", "a", None, "b"], categories=["c", "a", "b", "d"]),
        "stage": pd.Categorical.from_codes([0, 1, 2, -1, 1, 0], ["low", "mid", "top"], ordered=True),
        "n": [1, 5, 3, 0, -2, 5],
        "x": [0.5, np.nan, 2.5, 3.0, -1.0, np.inf],
        "flag": [True, False, True, True, False, False],
        "text": ["p", "q", "", "p", "r's", "q"],
    },
    index=[f"cell{n}" for n in range(6)],
)
WANTED, LEAST, WORD = [5, -2], 2, "q"
COLUMNS = {name: FRAME[name].reset_index(drop=True) for name in FRAME} | {"index": pd.Series(FRAME.index)}

NUMBERS = st.sampled_from(["n", "x", "n + 1", "x * 2 - n", "-n", "n / 2"])
TERMS = st.one_of(
    st.tuples(
        NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), st.sampled_from(["0", "2.5", "-1", "n"])
    ).map(" ".join),
    st.sampled_from(
        [
            "kind == 'a'",
            "kind != 'b'",
            "kind == 'z'",
            "kind in ['a', 'c']",
            "kind not in ('a', 'zz')",
            "stage < 'top'",
            'stage >= "mid"',
            "flag",
            "flag == False",
            "text in ['p', \"r's\"]",
            "text == ''",
            "n in [5, 0]",
            "0 < n < 5",
            "index == 'cell3'",
            "kind.isnull()",
            "x.notnull()",
            "kind.isna()",
            "kind.isin(['a', 'zz'])",
            "text.isin([\"r's\", 'p'])",
            "n.isin(@WANTED)",
            "n > @LEAST",
            "text != 'a & b | c = d'",
            "text == @WORD",
        ]
    ),
)
CONDITIONS = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda one: f"({one[0]} {one[1]} {one[2]})"
        ),
        st.tuples(inner, st.sampled_from(["&", "|"]), inner).map(
            lambda one: f"(({one[0]}) {one[1]} ({one[2]}))"
        ),
        st.tuples(inner, st.sampled_from(["&", "|", "and", "or"]), inner).map(" ".join),
        inner.map(lambda one: f"not ({one})"),
    ),
    max_leaves=5,
)


@given(CONDITIONS)
def test_rows_are_those_of_pandas(text: str) -> None:
    found = Expression(text).evaluate(COLUMNS, len(FRAME))
    assert FRAME.index[found].tolist() == FRAME.query(text, engine="python").index.tolist()


def test_names_are_those_of_columns() -> None:
    found = Expression("`cell type` == 'B `x` cell' and `n (raw)` > 500 or not is_primary")
    assert found.names == {"cell type", "n (raw)", "is_primary"}
    columns = {
        "cell type": pd.Series(["B `x` cell", "B `x` cell", "T"]),
        "n (raw)": pd.Series([501, 3, 900]),
        "is_primary": pd.Series([True, True, True]),
    }
    assert found.evaluate(columns, 3).tolist() == [True, False, False]


def test_missing_values_match_nothing() -> None:
    columns = {
        "age": pd.Series(pd.array([1, None, 7], dtype="Int8")),
        "smoker": pd.Series(pd.array([None, True, False], dtype="boolean")),
    }
    for text, wanted in {
        "age > 0": [True, False, True],
        "not age > 3": [True, False, False],
        "smoker": [False, True, False],
        "isnull(age) or smoker": [False, True, False],
        "isnull(smoker)": [True, False, False],
        "smoker or age == 1": [True, True, False],
    }.items():
        assert Expression(text).evaluate(columns, 3).tolist() == wanted, text


def test_a_condition_without_columns_is_for_all_rows() -> None:
    assert Expression("1 < 2").evaluate({}, 3).tolist() == [True] * 3
    assert Expression("not 1 < 2").evaluate({}, 2).tolist() == [False] * 2


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "n.__class__ == 1",
        "(lambda: 1)() == 1",
        "[n for n in x] == 1",
        "n[0] == 1",
        "f'{n}' == 'x'",
        "isnull(n, x)",
        "isnull(n, axis=1)",
        "eval('1')",
        "n is None",
        "n == None",
        "n in [x]",
        "n ** 9 > 1",
        "n if x else 1",
        "(n := 1)",
        "n; x",
        "n ==",
        "",
        "b'x' == n",
        "... == n",
        "(" * 5000 + "n" + ")" * 5000,
    ],
)
def test_what_is_not_in_the_language_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"[Tt]he condition"):
        Expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "kind",
        "n",
        "n > 'a'",
        "text < 3",
        "kind < 'b'",
        "n and flag",
        "'a'",
        "n + text > 1",
        "1 in n",
        "3 in [3]",
    ],
)
def test_what_does_not_fit_the_columns_is_refused(text: str) -> None:
    with pytest.raises(WrongType, match="condition"):
        Expression(text).evaluate(COLUMNS, len(FRAME))


@pytest.mark.parametrize("text", ["n = 5", "kind='a'", "n > 1 and text = 'a=b'", "`n` =5"])
def test_a_single_equals_sign_names_the_remedy(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"^The condition [^:]* has a single =: write == to compare\.$"):
        Expression(text)
    assert Expression("n <= 3 and n >= 1 and n != 2 and n == 1").evaluate(COLUMNS, len(FRAME)).sum() == 1


def test_what_cannot_be_read_is_said_without_pythons_file() -> None:
    with pytest.raises(InvalidValue, match=r"cannot be read: [^<>]*\.$"):
        Expression("n == == 5")


@pytest.mark.parametrize("wanted", [{5, -2}, (5, -2), np.array([5, -2]), pd.Series([5, -2]), range(-2, 6, 7)])
def test_variables_are_those_of_the_caller(wanted: object) -> None:
    most = np.int64(4)
    assert most
    found = Expression("n in @wanted or n.isin(@WANTED) and n > @most").evaluate(COLUMNS, len(FRAME))
    assert found.tolist() == [False, True, False, False, True, True]
    with pytest.raises(MissingKey, match="variable 'nobody' of the condition"):
        Expression("n > @nobody")
    with pytest.raises(WrongType, match="@pytest"):
        Expression("n > @pytest")
    with pytest.raises(WrongType, match="@COLUMNS"):
        Expression("n in @COLUMNS")


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingKey, match="no column 'kinds'"):
        Expression("kinds == 'a'").evaluate(COLUMNS, len(FRAME))


def test_a_name_with_a_space_names_the_remedy() -> None:
    with pytest.raises(InvalidValue, match="a column's name with spaces needs `backticks`"):
        Expression("pct mt < 0.1")
