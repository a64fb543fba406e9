"""The nodes that the Kubernetes files start, against the code: flags, variables, ports, probes, files, time to end.

What `make manifests` made of the chart is checked here; `tests/deployment/` holds the chart and the rest of `k8s/`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from hsparse import __version__
from hsparse.cli.data_node import serve_data_node
from hsparse.cli.serve import serve_service_node
from hsparse.cli.sweep import HOUR
from hsparse.config import SETTINGS, Settings, load_settings
from hsparse.dn.sweep import MIN_AGE
from hsparse.hdf5.jobs.job_run import UNDO_SECONDS
from tests.deployment.manifests import (
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
    assert made.store.bucket == ("experiment",)
    assert made.server.host == "0.0.0.0"
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
    assert container(job)["args"][0] == "sweep"
    assert given.min_age * HOUR == MIN_AGE
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
