"""The patterns of sentences that are read twice do not come back: a short check, which judges no other sentence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PATTERNS = {
    "a sentence begins with its subject": re.compile(r"^(Of|What|Who|Whoever|Whose|Those|Such|So|In such)\b"),
    "name the noun": re.compile(r"\b(of|by|from|with|for|to|than|is|are) (what|who|whom|whoever)\b"),
    "say it with a verb": re.compile(r"\b(of which|of whom|that of (it|them)|each of which)\b"),
    "subject before verb": re.compile(r"(^|[;:] )(Then|So|Here|Only|Nor|Too) (is|are|was|has|have|does)\b"),
}
MOST = 0.005
"""The part of the sentences of a room that may match: a few are good English."""


def texts(path: Path) -> Iterator[str]:
    """Yield the docstrings of a module, or the paragraphs of a page."""
    if path.suffix == ".md":
        page = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        yield from (one for one in re.split(r"\n\s*\n", page) if not one.lstrip().startswith("|"))
        return
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                yield re.sub(r"^\s*(>>>|\.\.\.).*$", "", text, flags=re.MULTILINE)


def sentences(text: str) -> list[str]:
    return [one for one in re.split(r"(?<=[.;!?])\s+|\n\s*\n", text.strip()) if len(one) > 12]


@pytest.mark.parametrize("room", ["hsparse", "docs"])
def test_sentences_are_read_once(room: str) -> None:
    paths = [path for kind in ("*.py", "*.md") for path in sorted((ROOT / room).rglob(kind))]
    every = [(path, one) for path in paths for text in texts(path) for one in sentences(text)]
    found = [
        f"{path.relative_to(ROOT)}: {why}: {one}"
        for path, one in every
        for why, pattern in PATTERNS.items()
        if pattern.search(" ".join(one.split()))
    ]
    assert len(every) > 100
    assert len(found) <= MOST * len(every), "\n".join(found)
