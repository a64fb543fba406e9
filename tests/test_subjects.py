"""Each module has one subject: its definitions name each other, directly or through others."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "hsparse"
LEAST = 40
"""Lines of definitions from which on a part of a module counts as a subject."""
SEVERAL = {
    "format/selections/encoded_selection.py": "the encoder and the decoder of one byte layout",
}
"""Modules with several parts that are one subject, and why."""
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def names_in(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that nodes refer to, also those in strings, which annotations may be."""
    for node in (inner for one in nodes for inner in ast.walk(one)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def subjects_of(text: str) -> list[list[str]]:
    """Return the names of the definitions in each part of a module that has at least `LEAST` lines."""
    body = ast.parse(text).body
    definitions = {node.name: node for node in body if isinstance(node, Definition)}
    part = {name: name for name in definitions}

    def join(first: str, second: str) -> None:
        old, new = part[first], part[second]
        part.update({name: new for name, one in part.items() if one == old})

    for name, node in definitions.items():
        for other in definitions.keys() & set(names_in([node])) - {name}:
            join(name, other)
    for node in body:  # a table that lists definitions ties them together
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            listed = [name for name in names_in([node.value]) if name in definitions]
            for first, second in pairwise(listed):
                join(first, second)
    parts: dict[str, list[str]] = defaultdict(list)
    for name, one in part.items():
        parts[one].append(name)
    lines = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in definitions.items()}
    return [names for names in parts.values() if sum(map(lines.__getitem__, names)) >= LEAST]


def test_parts_that_do_not_name_each_other_are_found() -> None:
    long = "    pass\n" * LEAST
    two = f"def a() -> None:\n{long}\n\ndef b() -> None:\n{long}"
    assert subjects_of(two) == [["a"], ["b"]]
    assert len(subjects_of(f"{two}\n\nTABLE = (a, b)\n")) == 1
    assert len(subjects_of(f"{two}\n\ndef c() -> None:\n    a()\n    b()\n")) == 1


@pytest.mark.parametrize(
    "room", ["", *sorted(one.name for one in PACKAGE.iterdir() if (one / "__init__.py").exists())]
)
def test_a_module_has_one_subject(room: str) -> None:
    several = {
        name: subjects
        for path in sorted((PACKAGE / room).rglob("*.py") if room else PACKAGE.glob("*.py"))
        if (name := str(path.relative_to(PACKAGE))) not in SEVERAL
        and len(subjects := subjects_of(path.read_text())) > 1
    }
    assert several == {}, "cut the module where its parts part"
