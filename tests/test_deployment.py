"""The Kubernetes files and the Dockerfile against the code: flags, variables, ports, probes, names."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hsparse import __version__
from hsparse.cli.data_node import serve_data_node
from hsparse.cli.main import parse_arguments
from hsparse.cli.serve import serve, serve_service_node
from hsparse.cluster.membership import Membership
from hsparse.config import SETTINGS, Settings, load_settings
from hsparse.sn.routes import ROUTES

PROJECT = Path(__file__).parent.parent
K8S = PROJECT / "k8s"
Object = dict[str, Any]
KUSTOMIZATION: Object = yaml.safe_load((K8S / "kustomization.yaml").read_text())
VARIABLES = {f"HSPARSE_{name.upper()}": name for name in SETTINGS}


def documents(name: str) -> list[Object]:
    return [one for one in yaml.safe_load_all((K8S / name).read_text()) if one]


OBJECTS = {
    (one["kind"], one["metadata"]["name"]): one
    for name in KUSTOMIZATION["resources"]
    for one in documents(name)
}
WORKLOADS = [OBJECTS["StatefulSet", "hsparse-dn"], OBJECTS["Deployment", "hsparse-sn"]]
workloads = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one["metadata"]["name"])
(GENERATOR,) = KUSTOMIZATION["configMapGenerator"]
CONFIG: dict[str, str] = dict(item.split("=", 1) for item in GENERATOR["literals"])
SECRETS = {one["metadata"]["name"]: one["stringData"] for one in documents("secret.example.yaml")}


def pod(workload: Object) -> Object:
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Object) -> Object:
    (one,) = pod(workload)["containers"]
    return dict(one)


def arguments(workload: Object) -> argparse.Namespace:
    """Return the container's arguments as the command parses them; exits when a flag is none."""
    return parse_arguments(container(workload)["args"])


def environment(workload: Object) -> dict[str, str]:
    """Return the variables that the container gets, with what the examples have for values."""
    found: dict[str, str] = {}
    for source in container(workload)["envFrom"]:
        if "configMapRef" in source:
            assert source["configMapRef"]["name"] == GENERATOR["name"]
            found |= CONFIG
        else:
            found |= SECRETS[source["secretRef"]["name"]]
    return found | {item["name"]: item.get("value", "text") for item in container(workload).get("env", ())}


def settings(workload: Object, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the settings that the container starts with."""
    for name, value in environment(workload).items():
        monkeypatch.setenv(name, value)
    given = vars(arguments(workload))
    return load_settings(**{name: value for name, value in given.items() if name in SETTINGS})


def test_all_files_are_in_the_kustomization() -> None:
    there = {path.name for path in K8S.glob("*.yaml")} - {"kustomization.yaml", "secret.example.yaml"}
    assert set(KUSTOMIZATION["resources"]) == there
    (image,) = KUSTOMIZATION["images"]
    assert image["newTag"] == __version__


@workloads
def test_variables_are_settings(workload: Object) -> None:
    names = environment(workload)
    assert {name for name in names if name.startswith("HSPARSE_")} <= VARIABLES.keys()
    assert {name for name in names if not name.startswith(("HSPARSE_", "AWS_"))} <= {"passwords"}


@workloads
def test_nodes_start_with_what_they_are_given(workload: Object, monkeypatch: pytest.MonkeyPatch) -> None:
    made = settings(workload, monkeypatch)
    command = arguments(workload).serving
    if command is serve_data_node:
        made.check_node_exposure()
        assert made.store.bucket
    else:
        assert command is serve_service_node
        made.check_exposure()
        assert made.cluster.node_token
    assert made.server.host == "0.0.0.0"
    assert [port["containerPort"] for port in container(workload)["ports"]] == [made.server.port]


def test_every_data_node_is_in_the_list_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    data_nodes, service_nodes = WORKLOADS
    name, service = data_nodes["metadata"]["name"], OBJECTS["Service", data_nodes["spec"]["serviceName"]]
    assert service["spec"]["clusterIP"] == "None"
    port = settings(data_nodes, monkeypatch).server.port
    assert [item["port"] for item in service["spec"]["ports"]] == [port]
    names = [
        f"{name}-{number}.{service['metadata']['name']}" for number in range(data_nodes["spec"]["replicas"])
    ]
    urls = tuple(f"http://{one}:{port}" for one in names)
    assert settings(data_nodes, monkeypatch).cluster.nodes == urls
    assert Membership.of_urls(settings(service_nodes, monkeypatch).cluster.nodes) == Membership.of_urls(urls)


@workloads
def test_probes_ask_what_the_node_answers(workload: Object) -> None:
    answered = {"/info"}  # of a data node
    if arguments(workload).serving is not serve_data_node:
        answered = {route.path for route in ROUTES if route.method == "GET" and route.right is None}
    ports = {port["name"] for port in container(workload)["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        request = container(workload)[probe]["httpGet"]
        assert request["path"] in answered
        assert request["port"] in ports


@workloads
def test_pods_have_no_more_rights_than_they_need(workload: Object) -> None:
    security = container(workload)["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod(workload)["securityContext"]["runAsNonRoot"] is True
    assert pod(workload)["automountServiceAccountToken"] is False
    assert {"requests", "limits"} <= container(workload)["resources"].keys()


@workloads
def test_variables_of_services_are_not_taken_for_settings(workload: Object) -> None:
    # A Service `hsparse` gives every pod HSPARSE_PORT=tcp://..., unless links are switched off.
    assert pod(workload)["enableServiceLinks"] is False


@workloads
def test_selectors_find_their_pods(workload: Object) -> None:
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"] == labels
    name = workload["metadata"]["name"]
    assert OBJECTS["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"] == labels
    assert any(one["spec"].get("selector") == labels for one in OBJECTS.values() if one["kind"] == "Service")


def test_the_password_file_is_mounted_where_it_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = WORKLOADS[1]
    (mount,) = container(workload)["volumeMounts"]
    (volume,) = pod(workload)["volumes"]
    (key,) = SECRETS[volume["secret"]["secretName"]]
    assert settings(workload, monkeypatch).sign_in.password_file == Path(mount["mountPath"], key)
    assert mount["name"] == volume["name"]
    assert mount["readOnly"] is True


def test_secrets_are_examples_that_no_server_would_take() -> None:
    assert all(re.fullmatch(r"<.*>", value) for secret in SECRETS.values() for value in secret.values())


def test_the_dockerfile_runs_the_command_and_is_not_root() -> None:
    lines = (PROJECT / "Dockerfile").read_text().splitlines()
    steps = [line.split(" ", 1) for line in lines if re.match(r"[A-Z]+ ", line)]
    last = dict(steps)
    assert last["ENTRYPOINT"] == '["hsparse"]'
    args = parse_arguments(yaml.safe_load(last["CMD"]))
    assert args.serving is serve
    assert int(last["EXPOSE"]) == SETTINGS["port"].default
    user = last["USER"].split(":")[0]
    assert user == str(pod(WORKLOADS[0])["securityContext"]["runAsUser"]) != "0"
    copied = [rest.split()[:-1] for step, rest in steps if step == "COPY" and "--from" not in rest]
    kept = set((PROJECT / ".dockerignore").read_text().splitlines())
    for name in (name for names in copied for name in names):
        assert (PROJECT / name).exists()
        assert f"!{name}" in kept, f"{name} is copied, and left out of the context by .dockerignore"
