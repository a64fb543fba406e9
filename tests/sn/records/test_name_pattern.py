"""Patterns of names beside `fnmatch`."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hsparse.sn.records import name_pattern
from hsparse.sn.records.name_pattern import NamePattern

TOKENS = [
    "*",
    "?",
    "a",
    "b",
    "\n",
    "[ab]",
    "[!a]",
    "[a-c]",
    "[*]",
    "[]]",
    "[!]a]",
    "[?]",
    "[a",
    "]",
    "é",
    "**",
    ".",
]


@pytest.mark.parametrize("few", [0, 32])
@given(st.lists(st.sampled_from(TOKENS)).map("".join), st.text("ab*]?[\né.!", max_size=8))
@example("a*a", "a")
@example("*ab*ab", "aab")
@example("a?*?b", "ab")
@example("", "")
def test_it_is_what_fnmatch_says(few: int, pattern: str, name: str) -> None:
    """By expressions alone, and by bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_pattern, "MAX_BIT_ELEMENTS", few)
        assert NamePattern(pattern).matches(name) == fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*" + "a" * 251 + "z", "a" * 1000),
        ("*" + "a" * 200 + "?z*b", "a" * 1000),
        ("*a" * 126 + "*b", "a" * 1000),
        ("a*" * 126 + "z", "a" * 1000),
        ("*[ab]" * 50, "a" * 49),
    ],
)
def test_long_names_that_match_to_the_last(pattern: str, name: str) -> None:
    assert not NamePattern(pattern).matches(name)
