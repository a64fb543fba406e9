"""Queries over attributes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.sn.domains.folder_handlers import parse_attribute_query
from tests.support.characters import CHARACTERS

SCALAR = {"class": "H5S_SCALAR"}


def attributes(**values: Any) -> dict[str, Any]:
    return {name: {"shape": SCALAR, "value": value} for name, value in values.items()}


NAMES = st.sampled_from(["a", "b", "c_1"])
LEAVES = st.tuples(
    NAMES,
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    st.integers(-3, 3) | st.sampled_from(["x", "y z"]),
)
TREES = st.recursive(
    LEAVES, lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR", "&", "|"]), inner), max_leaves=8
)
VALUES = st.dictionaries(NAMES, st.integers(-3, 3) | st.sampled_from(["x", "y z"]))


def spelled(tree: Any) -> str:
    if isinstance(tree[0], str):
        name, op, value = tree
        return f"{name} {op} {value!r}"
    return f"({spelled(tree[0])}) {tree[1]} ({spelled(tree[2])})"


def truth(tree: Any, values: dict[str, Any]) -> Any:
    first, op, second = tree
    if not isinstance(first, str):
        both = (truth(first, values), truth(second, values))
        return all(both) if op in ("AND", "&") else any(both)
    there = values.get(first)
    if there is None or isinstance(there, str) != isinstance(second, str):
        return False
    order = (there > second) - (there < second)
    return {
        "==": order == 0,
        "!=": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }[op]


@given(TREES, VALUES)
def test_a_query_is_what_it_says(tree: Any, values: dict[str, Any]) -> None:
    assert parse_attribute_query(spelled(tree)).matches(attributes(**values)) == truth(tree, values)


def test_and_binds_more_than_or() -> None:
    query = parse_attribute_query("a = 1 OR a = 2 AND b = 1")
    assert query.matches(attributes(a=1))
    assert not query.matches(attributes(a=2))


def test_only_scalars_are_compared() -> None:
    array = {"a": {"shape": {"class": "H5S_SIMPLE", "dims": [1]}, "value": [1]}}
    assert not parse_attribute_query("a = 1").matches(array)


@given(st.text(CHARACTERS, max_size=40))
def test_any_text_is_a_query_or_a_bad_request(text: str) -> None:
    try:
        query = parse_attribute_query(text)
    except BadRequest:
        return
    assert query.matches({}) is False


@pytest.mark.parametrize(
    "text", ["(" * 100 + "a = 1" + ")" * 100, "a = 1 " * 1000, "a", "a =", "= 1", "a = b"]
)
def test_what_is_no_query(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_attribute_query(text)


def test_comparisons_are_limited() -> None:
    assert parse_attribute_query(" | ".join(["a = 1"] * 64)).matches(attributes(a=1))
    with pytest.raises(BadRequest, match="more than 64 comparisons"):
        parse_attribute_query(" | ".join(["a = 1"] * 65))
