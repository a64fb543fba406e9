"""Names: no public name is a word that the vocabulary has another one for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "hsparse"
MODULES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py") and path.stat().st_size
)

OTHER_WORDS = {
    "anybody": "its role",
    "aside": "offload",
    "buried": "deleted names",
    "bury": "deleted names",
    "counted": "length-prefixed",
    "door": "driver",
    "everybody": "its role",
    "everything": "bulk listing",
    "grave": "deleted names",
    "graves": "deleted names",
    "held": "cached object",
    "helper": "what it does",
    "helpers": "what they do",
    "linked": "file-backed",
    "lossy": "a fault wrapper's name",
    "made": "transcoded, or what it is",
    "met": "visited set",
    "moment": "crash point",
    "mortal": "crashing store",
    "owned": "cached object",
    "refusal": "error middleware",
    "refusals": "error middleware",
    "several": "multi-object request",
    "share": "chunk selection",
    "shares": "chunk selections",
    "shown": "to_json, ..._json",
    "somebody": "its role",
    "standing": "roles",
    "stuff": "what it is",
    "thing": "what it is",
    "things": "what they are",
    "turn": "keyed lock",
    "turns": "keyed lock",
    "untold": "undescribed",
    "util": "what it does",
    "utils": "what they do",
    "variable": "vlen",
    "whoever": "its role",
}
"""Words that name nothing here, and the word for what they would name."""
ALLOWED = {
    "connection_made": "what asyncio calls a protocol by",
}
"""Names that have such a word in another meaning, with the reason."""


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the parsed module."""
    return ast.parse(path.read_text())


def statements(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes of a tree without those of expressions, which are most of them."""
    nodes = [tree]
    for node in nodes:  # which grows
        nodes += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    return nodes


def words_of(name: str) -> list[str]:
    """Return the words of a name in snake case or camel case."""
    return [
        word.lower() for part in name.split("_") for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", part)
    ]


def public_names(path: Path) -> Iterator[str]:
    """Yield the public names of a module: its own, its classes', functions', methods', fields' and parameters'."""
    yield path.stem
    for node in statements(tree_of(path)):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = [node.name]
        if not isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            names += [one.arg for one in (*node.args.args, *node.args.kwonlyargs)]
        yield from (name for name in names if not name.startswith("_"))
    for node in tree_of(path).body:
        for one in [node, *(node.body if isinstance(node, ast.ClassDef) else ())]:
            targets: list[ast.expr] = []
            if isinstance(one, ast.Assign):
                targets = one.targets
            elif isinstance(one, ast.AnnAssign):
                targets = [one.target]
            yield from (
                target.id for target in targets if isinstance(target, ast.Name) and target.id[0] != "_"
            )


def test_no_public_name_is_another_word_for_something() -> None:
    found = {
        f"{path.relative_to(PACKAGE)} {name}": OTHER_WORDS[word]
        for path in MODULES
        for name in public_names(path)
        for word in words_of(name)
        if word in OTHER_WORDS and name not in ALLOWED
    }
    assert found == {}


SAME_CLASS_NAMES = {
    "Batches": "hsparse.torch has the loader's form of the client's batches",
    "OutOfRange": "the client's is an IndexError, as numpy's, and the server's an answer",
}
"""Names that two classes share, with the reason."""


def test_each_class_has_a_name_of_its_own() -> None:
    found: dict[str, list[str]] = {}
    for path in MODULES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1}.keys() == SAME_CLASS_NAMES.keys()
