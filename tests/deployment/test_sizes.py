"""The sizes of nodes: the page has those of the chart, and each has the memory that its settings may take."""

from __future__ import annotations

import re

import pytest
import yaml

from hsparse.setting import MIB, parse_size
from tests.deployment.manifests import CHART, Object
from tests.docs_pages import rows

VALUES: Object = yaml.safe_load((CHART / "values.yaml").read_text())
NODES = {"dataNode": "data node", "serviceNode": "service node"}
FACTORS = {"dataNode": 1.25, "serviceNode": 2.0}
"""How many times what its settings bound a node may take, beside `BASE`."""
BASE = 256 * MIB
SIZES = [(size, kind, node) for size, kinds in VALUES["sizes"].items() for kind, node in kinds.items()]
sizes = pytest.mark.parametrize(
    ("size", "kind", "node"), SIZES, ids=lambda one: one if isinstance(one, str) else ""
)


def quantity(text: str) -> int:
    """Return the bytes of a quantity of Kubernetes, `768Mi` or `2Gi`."""
    assert re.fullmatch(r"\d+[MG]i", text)
    return parse_size(f"{text}B")


def test_the_page_has_every_size() -> None:
    listed = [[cell.replace("`", "") for cell in row] for row in rows("docs/deploy.md", "size")]
    assert listed == [
        [
            size,
            NODES[kind],
            node["requests"]["cpu"],
            node["requests"]["memory"],
            node["limits"]["memory"],
            ", ".join(f"{name}={value}" for name, value in node["settings"].items()),
        ]
        for size, kind, node in SIZES
    ]


@sizes
def test_a_node_has_the_memory_that_its_settings_may_take(size: str, kind: str, node: Object) -> None:
    bounded = sum(parse_size(value) for value in node["settings"].values())
    requested, limit = quantity(node["requests"]["memory"]), quantity(node["limits"]["memory"])
    assert BASE + FACTORS[kind] * bounded <= requested < limit


def test_nodes_have_a_size_that_there_is() -> None:
    assert all(VALUES[kind]["size"] in VALUES["sizes"] for kind in NODES)
    assert all(kinds.keys() == NODES.keys() for kinds in VALUES["sizes"].values())
