"""The nodes that the Kubernetes files start, and what watches them, against the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from hsparse import __version__
from hsparse.cli.data_node import serve_data_node
from hsparse.cli.serve import serve_service_node
from hsparse.cli.sweep import HOUR
from hsparse.config import SETTINGS, Settings, load_settings
from hsparse.dn.metrics import NODE_METRICS
from hsparse.dn.sweep import MIN_AGE
from hsparse.hdf5.jobs.job_run import UNDO_SECONDS
from hsparse.sn.metrics import METRICS
from tests.deployment.manifests import (
    CHART,
    K8S,
    PROJECT,
    Object,
    arguments,
    by_name,
    container,
    documents,
    jobs_of,
    pod,
    pods_of,
    rendered,
)
from tests.support.rest_client import ROUTES

KUSTOMIZATION: Object = yaml.safe_load((K8S / "kustomization.yaml").read_text())
VARIABLES = {f"HSPARSE_{name.upper()}": name for name in SETTINGS}
OBJECTS = by_name([one for objects in rendered().values() for one in objects])
WORKLOADS = pods_of(list(OBJECTS.values()))
DATA_NODES, SERVICE_NODES = OBJECTS["Deployment", "hsparse-dn"], OBJECTS["Deployment", "hsparse-sn"]
workloads = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one["metadata"]["name"])
(GENERATOR,) = KUSTOMIZATION["configMapGenerator"]
CONFIG: dict[str, str] = dict(item.split("=", 1) for item in GENERATOR["literals"])
SECRETS = {
    one["metadata"]["name"]: one["stringData"] for one in documents((K8S / "secret.example.yaml").read_text())
}


def environment(workload: Object) -> dict[str, str]:
    """Return the variables that the container gets, with what the examples have for values."""
    found: dict[str, str] = {}
    for source in container(workload)["envFrom"]:
        if "configMapRef" in source:
            assert source["configMapRef"]["name"] == GENERATOR["name"]
            found |= CONFIG
        else:
            found |= SECRETS[source["secretRef"]["name"]]
    return found | {item["name"]: _value(item) for item in container(workload).get("env", ())}


def _value(item: Object) -> str:
    """Return what a variable is set to; of the pod, some text."""
    if "value" in item:
        return str(item["value"])
    if "secretKeyRef" in item["valueFrom"]:
        reference = item["valueFrom"]["secretKeyRef"]
        return str(SECRETS[reference["name"]][reference["key"]])
    assert item["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    return "10.0.0.7"


def settings(workload: Object, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the settings that the container starts with."""
    for name, value in environment(workload).items():
        monkeypatch.setenv(name, value)
    given = vars(arguments(workload))
    return load_settings(**{name: value for name, value in given.items() if name in SETTINGS})


def answered(workload: Object) -> set[str]:
    """Return the paths that a node answers without a credential."""
    if arguments(workload).serving is serve_service_node:
        return {route.path for route in ROUTES if route.method == "GET" and route.right is None}
    sources = [path.read_text() for path in (PROJECT / "hsparse" / "dn").glob("*.py")]
    return {path for text in sources for path in re.findall(r'\.add_get\("(/[^"]*)"', text)}


def test_rendered_files_are_in_the_kustomization_or_are_offered_there() -> None:
    lines = (K8S / "kustomization.yaml").read_text().splitlines()
    offered = {
        line.strip().removeprefix("# - ") for line in lines if line.strip().startswith("# - rendered/")
    }
    applied = set(KUSTOMIZATION["resources"])
    assert not offered & applied
    assert offered | applied == {f"rendered/{name}" for name in rendered()} | {"namespace.yaml"}
    (image,) = KUSTOMIZATION["images"]
    assert image["newTag"] == __version__
    assert {container(one)["image"] for one in WORKLOADS} == {f"{image['name']}:{__version__}"}


@workloads
def test_variables_are_settings(workload: Object) -> None:
    names = environment(workload)
    assert {name for name in names if name.startswith("HSPARSE_")} <= VARIABLES.keys()
    assert {name for name in names if not name.startswith(("HSPARSE_", "AWS_"))} <= {"POD_IP"}


@workloads
def test_nodes_start_with_what_they_are_given(workload: Object, monkeypatch: pytest.MonkeyPatch) -> None:
    made = settings(workload, monkeypatch)
    command = arguments(workload).serving
    if command is serve_data_node:
        made.check_node_token()
    else:
        assert command is serve_service_node
        made.check_exposure()
        made.check_node_token()
    assert (made.store.bucket, made.server.host) == (("experiment",), "0.0.0.0")
    assert [port["containerPort"] for port in container(workload)["ports"]] == [made.server.port]


def test_a_data_node_says_where_it_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    port = settings(DATA_NODES, monkeypatch).server.port
    (flag,) = [text for text in container(DATA_NODES)["args"] if text.startswith("--advertise=")]
    assert flag == f"--advertise=http://$(POD_IP):{port}"
    assert "POD_IP" in environment(DATA_NODES)  # Kubernetes leaves $(NAME) as it is without such a variable


@workloads
def test_probes_ask_what_the_node_answers(workload: Object) -> None:
    ports = {port["name"] for port in container(workload)["ports"]}
    asked = {
        name: container(workload)[name]["httpGet"]
        for name in ("startupProbe", "readinessProbe", "livenessProbe")
    }
    assert {request["path"] for request in asked.values()} <= answered(workload)
    assert asked["readinessProbe"]["path"] != asked["livenessProbe"]["path"]
    assert {request["port"] for request in asked.values()} <= ports


def test_a_node_has_the_time_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    server = settings(SERVICE_NODES, monkeypatch).server
    assert server.drain_time >= 5  # Services and proxies learn of it meanwhile
    needed = server.drain_time + UNDO_SECONDS + server.stop_timeout
    assert pod(SERVICE_NODES)["terminationGracePeriodSeconds"] > needed
    needed = 2 * settings(DATA_NODES, monkeypatch).server.stop_timeout
    assert pod(DATA_NODES)["terminationGracePeriodSeconds"] >= needed
    # Each is told at once: it says so by /readyz, and goes on answering by itself.
    assert not any("lifecycle" in container(workload) for workload in WORKLOADS)


def test_sweeps_are_of_the_store_that_nodes_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    cron = OBJECTS["CronJob", "hsparse-sweep"]["spec"]
    assert (cron["suspend"], cron["concurrencyPolicy"]) == (False, "Forbid")
    (job,) = jobs_of(list(OBJECTS.values()))
    swept = settings(job, monkeypatch)
    given = arguments(job)
    assert (container(job)["args"][0], given.min_age * HOUR) == ("sweep", MIN_AGE)
    assert swept.store == settings(DATA_NODES, monkeypatch).store
    assert pod(job)["serviceAccountName"] == pod(DATA_NODES)["serviceAccountName"]
    assert pod(job)["restartPolicy"] == "Never"


@workloads
def test_variables_of_services_are_not_taken_for_settings(workload: Object) -> None:
    # A Service `hsparse` gives every pod HSPARSE_PORT=tcp://..., unless links are switched off.
    assert pod(workload)["enableServiceLinks"] is False


@workloads
def test_selectors_find_their_pods(workload: Object) -> None:
    labels, name = workload["spec"]["template"]["metadata"]["labels"].items(), workload["metadata"]["name"]
    others = [one for one in WORKLOADS if one is not workload]
    selectors = [
        workload["spec"]["selector"]["matchLabels"],
        OBJECTS["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"],
        *(spread["labelSelector"]["matchLabels"] for spread in pod(workload)["topologySpreadConstraints"]),
    ]
    services = [one["spec"].get("selector") for one in OBJECTS.values() if one["kind"] == "Service"]
    found = [one for one in services if one and one.items() <= labels]
    assert len(found) == 1
    for selector in [*selectors, *found]:
        assert selector.items() <= labels
        for other in others:
            assert not selector.items() <= other["spec"]["template"]["metadata"]["labels"].items()
    assert pod(workload)["serviceAccountName"] == name
    assert ("ServiceAccount", name) in OBJECTS


def test_scaled_deployments_exist_and_do_not_say_how_many() -> None:
    scalers = [one for one in OBJECTS.values() if one["kind"] == "HorizontalPodAutoscaler"]
    targets = [one["spec"]["scaleTargetRef"] for one in scalers]
    assert {one["name"] for one in targets} == {one["metadata"]["name"] for one in WORKLOADS}
    for one in targets:
        workload = OBJECTS[one["kind"], one["name"]]
        assert workload["apiVersion"] == one["apiVersion"]
        assert "replicas" not in workload["spec"]
    assert {one["name"]: one["count"] for one in KUSTOMIZATION["replicas"]} == {
        one["spec"]["scaleTargetRef"]["name"]: one["spec"]["minReplicas"] for one in scalers
    }


def test_the_password_file_is_mounted_where_it_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    (mount,) = container(SERVICE_NODES)["volumeMounts"]
    (volume,) = pod(SERVICE_NODES)["volumes"]
    (source,) = volume["projected"]["sources"]
    (item,) = source["secret"]["items"]
    assert item["key"] in SECRETS[source["secret"]["name"]]
    assert settings(SERVICE_NODES, monkeypatch).sign_in.password_file == Path(
        mount["mountPath"], item["path"]
    )
    assert mount["name"] == volume["name"]
    assert mount["readOnly"] is True
    # Owned by root; readable for the group of the pod.
    assert volume["projected"]["defaultMode"] == 0o440
    assert (
        pod(SERVICE_NODES)["securityContext"]["fsGroup"]
        == pod(SERVICE_NODES)["securityContext"]["runAsGroup"]
    )


def test_secrets_are_examples_that_no_server_would_take() -> None:
    assert all(re.fullmatch(r"<.*>", value) for secret in SECRETS.values() for value in secret.values())


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


TARGET_LABELS = {"namespace", "pod"}
"""Labels that Prometheus adds to what it scrapes in Kubernetes."""
SUFFIXES = {
    Counter: {"": ("_total",)},
    Gauge: {"": ("",)},
    Histogram: {"": ("_count", "_sum"), "le": ("_bucket",)},
}


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its class, and the names of its labels."""

    kind: type
    labels: tuple[str, ...] = ()


FAMILIES: dict[str, Family] = {
    one.name: Family(one.kind, one.labels)  # type: ignore[arg-type]
    for one in (*METRICS, *NODE_METRICS)
}


def labels_of_series() -> dict[str, set[str]]:
    """Return the labels of every series that is scraped, by its name in queries."""
    return {
        name.removesuffix("_total") + suffix: {*family.labels, *TARGET_LABELS, *([extra] if extra else [])}
        for name, family in FAMILIES.items()
        for extra, suffixes in SUFFIXES[family.kind].items()
        for suffix in suffixes
    }
