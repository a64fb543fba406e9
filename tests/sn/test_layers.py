"""The layers of the service node: each folder and module of `sn` imports only what stands below it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SN = Path(__file__).parents[2] / "hsparse" / "sn"

LAYERS = (
    "service_settings",
    "metrics",
    "body_memory",
    "coding",
    "route",
    "auth",
    "data_nodes",
    "service",
    "request",
    "http",
    "about",
    "records",
    "values",
    "statistics",
    "objects",
    "chunks",
    "domains",
    "policies",
    "routes",
    "app",
    "server",
)
"""The folders and modules of `sn`, from the bottom up."""


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SN).with_suffix("").parts)


MODULES = [(name_of(path), path) for path in sorted(SN.rglob("*.py")) if path.name != "__init__.py"]


def imports_of(path: Path) -> set[str]:
    """Return the modules of `sn` that a file imports, with or without `if TYPE_CHECKING`."""
    known = {name for name, _ in MODULES}
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            rest = name.removeprefix("hsparse.sn.")
            while rest != name and rest and rest not in known:
                rest = rest.rpartition(".")[0]
            if rest != name and rest:
                found.add(rest)
    return found


def layer_of(module: str) -> int:
    return LAYERS.index(module.partition(".")[0])


def test_every_folder_and_module_has_a_layer() -> None:
    assert {name.partition(".")[0] for name, _ in MODULES} == set(LAYERS)


@pytest.mark.parametrize(("module", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_a_module_imports_only_what_stands_below_it(module: str, path: Path) -> None:
    own = module.partition(".")[0]
    for target in imports_of(path):
        if target.partition(".")[0] != own:
            assert layer_of(target) < layer_of(module), (
                f"sn.{module} imports sn.{target}, which stands above it"
            )
    assert "TYPE_CHECKING" not in path.read_text(), f"sn.{module} hides an import behind TYPE_CHECKING"


def test_a_dataset_is_a_leaf() -> None:
    """What all that reads and writes values shares imports nothing that does."""
    below = {"request", "data_nodes.owners"}
    assert imports_of(SN / "records" / "dataset.py") <= below
