"""What is deployed on Kubernetes: the files of the kustomization, and the chart rendered by helm."""

from __future__ import annotations

import argparse
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

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
