"""The manifests that the chart renders, their schemas and the rules of pod security."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from jsonschema_rs import Draft202012Validator, Registry

from hsparse.cli.main import parse_arguments
from tests.support.find_program import find_program

PROJECT = Path(__file__).parent.parent.parent
K8S = PROJECT / "k8s"
CHART = K8S / "chart"
RENDERED = K8S / "rendered"
Object = dict[str, Any]
"""An object of Kubernetes, or a part of one."""


def documents(text: str) -> list[Object]:
    """Return the objects of a YAML file."""
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


@cache
def rendered() -> dict[str, list[Object]]:
    """Return the objects that `make manifests` made from the chart, by file."""
    return {path.name: documents(path.read_text()) for path in sorted(RENDERED.glob("*.yaml"))}


@cache
def render_chart(*flags: str, release: str = "hsparse") -> list[Object]:
    """Return the objects of the chart, as helm renders it with `flags`; `AssertionError` has what helm says."""
    done = run("helm", "template", release, str(CHART), *flags)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def run(program: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run helm or kubectl, which may be beside this Python: no test reaches a cluster, or a user's settings."""
    found = find_program(program)
    assert found, f"{program} is not installed: make .venv/bin/helm"
    home = {"HOME": "/nonexistent", "KUBECONFIG": "/nonexistent"}
    return subprocess.run([found, *flags], capture_output=True, text=True, env=home, check=False)


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """Return objects by kind and name, each once."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert len(found) == len(objects)
    return found


def pods_of(objects: list[Object]) -> list[Object]:
    """Return the Deployments among objects."""
    return [one for one in objects if one["kind"] == "Deployment"]


def jobs_of(objects: list[Object]) -> list[Object]:
    """Return the jobs of the CronJobs among objects, with their names, in the form of Deployments."""
    crons = [one for one in objects if one["kind"] == "CronJob"]
    return [{**one["spec"]["jobTemplate"], "metadata": one["metadata"]} for one in crons]


def pod(workload: Object) -> Object:
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Object) -> Object:
    (one,) = pod(workload)["containers"]
    return dict(one)


def arguments(workload: Object) -> argparse.Namespace:
    """Return the container's arguments as the command parses them; exits when a flag is none."""
    return parse_arguments(container(workload)["args"])


VERSIONS = ("1.30.0", "1.37.0")
"""The oldest version that the chart allows, and the newest that kubernetes-validate knows."""
FOUND = find_spec("kubernetes_validate")  # its own imports take 0.1 s
assert FOUND is not None
assert FOUND.origin is not None
SCHEMAS = Path(FOUND.origin).parent / "kubernetes-json-schema"
CUSTOM: Object = yaml.safe_load(Path(__file__).with_name("custom_resources.yaml").read_text())
CUSTOM_KINDS = ("HTTPRoute", "PrometheusRule", "ServiceMonitor")


def errors(one: Object, version: str) -> list[str]:
    """Return what is wrong with an object for a version of Kubernetes; a field that it does not have is wrong, too."""
    validator = _custom(one["kind"]) if one["kind"] in CUSTOM_KINDS else _of_kind(_file(one), version)
    return [
        f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in validator.iter_errors(one)
    ]


def _file(one: Object) -> str:
    """Return the name of an object's schema: deployment-apps-v1, networkpolicy-networking-v1, service-v1."""
    group, _, version = one["apiVersion"].rpartition("/")
    return "-".join(part for part in (one["kind"].lower(), group.partition(".")[0], version) if part)


@cache
def _of_kind(name: str, version: str) -> Draft202012Validator:
    folder = SCHEMAS / f"v{version}-local-strict"
    return Draft202012Validator(
        json.loads((folder / f"{name}.json").read_text()), registry=_registry(version)
    )


@cache
def _registry(version: str) -> Registry:
    text = (SCHEMAS / f"v{version}-local-strict" / "_definitions.json").read_text()
    return Registry([("https://kubernetes.io/api/_definitions.json", json.loads(text))])


@cache
def _custom(kind: str) -> Draft202012Validator:
    return Draft202012Validator({**CUSTOM, "$ref": f"#/$defs/{kind}"})


VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SECCOMP = ("RuntimeDefault", "Localhost")


def violations(spec: Object) -> Iterator[str]:
    """Yield what the profile refuses of a pod's spec. A container's security context is over the pod's."""
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield name
    for volume in spec.get("volumes", ()):
        if volume.keys() - {"name"} - VOLUMES:
            yield f"volume {volume['name']}"
    shared = spec.get("securityContext", {})
    if shared.get("sysctls"):
        yield "sysctls"
    for one in [*spec["containers"], *spec.get("initContainers", ())]:
        yield from _of_container(one, {**shared, **one.get("securityContext", {})})


def _of_container(one: Object, context: Object) -> Iterator[str]:
    capabilities = context.get("capabilities", {})
    checks = {
        "privileged": not context.get("privileged"),
        "allowPrivilegeEscalation": context.get("allowPrivilegeEscalation") is False,
        "capabilities.drop": "ALL" in capabilities.get("drop", ()),
        "capabilities.add": set(capabilities.get("add", ())) <= {"NET_BIND_SERVICE"},
        "runAsNonRoot": context.get("runAsNonRoot") is True,
        "runAsUser": context.get("runAsUser") != 0,
        "seccompProfile": context.get("seccompProfile", {}).get("type") in SECCOMP,
        "hostPort": not any(port.get("hostPort") for port in one.get("ports", ())),
        "procMount": context.get("procMount", "Default") == "Default",
    }
    yield from (f"{one['name']}: {name}" for name, kept in checks.items() if not kept)
