"""Alerts, the dashboard, the adapter's rules and the autoscalers: they use metrics that there are, and their labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml

from tests.deployment.manifests import CHART, K8S, Object, rendered
from tests.deployment.metric_names import FAMILIES, labels_of_series

ALERTS: list[Object] = [
    rule for group in yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARD: Object = json.loads((CHART / "dashboard.json").read_text())
TARGETS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
ADAPTED: list[Object] = yaml.safe_load((K8S / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
EXPRESSIONS = [
    *(rule["expr"] for rule in ALERTS),
    *(text.replace("$__rate_interval", "5m").replace("$namespace", "lab") for text in TARGETS),
    *(
        rule["metricsQuery"].replace("<<.GroupBy>>", "namespace,pod").replace("<<.LabelMatchers>>", 'pod="a"')
        for rule in ADAPTED
    ),
    *(rule["seriesQuery"] for rule in ADAPTED),
]


def parts(node: Any) -> Iterator[Any]:
    """Yield an expression and all that it is made of."""
    yield node
    for name in ("expr", "lhs", "rhs", "param", "vector_selector", "vs"):
        if (part := getattr(node, name, None)) is not None and not isinstance(part, str | float):
            yield from parts(part)
    for part in getattr(node, "args", None) or ():
        yield from parts(part)


def used(expression: str) -> dict[str, set[str]]:
    """Return the series of an expression with the labels that it matches or groups by."""
    nodes = list(parts(promql_parser.parse(expression)))
    grouped = {
        label
        for node in nodes
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier
        for label in node.modifier.labels
    }
    return {
        node.name: grouped | {matcher.name for matcher in node.matchers.matchers}
        for node in nodes
        if isinstance(node, promql_parser.VectorSelector)
    }


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_uses_series_and_labels_that_there_are(expression: str) -> None:
    series, known = used(expression), labels_of_series()
    assert series.keys() == set(re.findall(r"hsparse_\w+", expression))  # all were found
    assert series
    for name, labels in series.items():
        assert name in known, (
            f"{name} is no series; a counter ends in _total, a histogram in _bucket, _sum, _count"
        )
        assert labels <= known[name] | {"le"}
        assert "le" not in labels or name.endswith("_bucket")


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {
        name for text in EXPRESSIONS for name in used(text) if text not in (rule["expr"] for rule in ALERTS)
    }
    stems = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in shown}
    assert stems == {name.removesuffix("_total") for name in FAMILIES}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize("rule", ALERTS, ids=lambda one: one["alert"])
def test_an_alert_says_what_it_is_about(rule: Object) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["annotations"].keys() == {"summary", "description"}
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert all(named <= labels for labels in used(rule["expr"]).values())


def test_alerts_are_what_the_operator_gets() -> None:
    (rules,) = [one for one in rendered()["monitoring.yaml"] if one["kind"] == "PrometheusRule"]
    assert [rule for group in rules["spec"]["groups"] for rule in group["rules"]] == ALERTS
    (board,) = [one for one in rendered()["monitoring.yaml"] if one["kind"] == "ConfigMap"]
    assert json.loads(board["data"]["hsparse.json"]) == DASHBOARD


def test_autoscalers_ask_for_what_the_adapter_has() -> None:
    asked = {
        metric["pods"]["metric"]["name"]
        for one in rendered()["autoscaling.yaml"]
        for metric in one["spec"]["metrics"]
    }
    assert asked == {rule["name"]["as"] for rule in ADAPTED}
    assert asked <= FAMILIES.keys()


def test_services_of_both_kinds_are_scraped() -> None:
    (monitor,) = [one for one in rendered()["monitoring.yaml"] if one["kind"] == "ServiceMonitor"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [one for objects in rendered().values() for one in objects if one["kind"] == "Service"]
    found = [one for one in services if wanted <= one["metadata"].get("labels", {}).items()]
    assert {one["metadata"]["name"] for one in found} == {"hsparse", "hsparse-dn"}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["path"] == "/metrics"
    assert all(endpoint["port"] in [port["name"] for port in one["spec"]["ports"]] for one in found)
