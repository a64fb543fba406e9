"""All objects against the schemas of the oldest and the newest version of Kubernetes, strictly."""

from __future__ import annotations

import copy
import tomllib

import pytest
import yaml

from tests.deployment.manifests import CHART, K8S, PROJECT, Object, by_name, documents, rendered
from tests.deployment.schemas import CUSTOM_KINDS, VERSIONS, errors

OBJECTS = [
    *(one for objects in rendered().values() for one in objects),
    *documents((K8S / "namespace.yaml").read_text()),
    *documents((K8S / "secret.example.yaml").read_text()),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_what_kubernetes_takes(version: str) -> None:
    assert {f"{one['kind']} {one['metadata']['name']}": errors(one, version) for one in OBJECTS} == {
        f"{kind} {name}": [] for kind, name in by_name(OBJECTS)
    }


def test_the_oldest_version_is_the_charts() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={VERSIONS[0]}-0"
    extra = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dev"]
    assert f"kubernetes-validate>={VERSIONS[1].removesuffix('.0')}" in extra


@pytest.mark.parametrize("kind", ["Deployment", "Ingress", "NetworkPolicy", *CUSTOM_KINDS])
def test_a_misspelt_field_and_a_wrong_type_are_found(kind: str) -> None:
    one: Object = copy.deepcopy(next(one for one in OBJECTS if one["kind"] == kind))
    one["spec"]["misspelt"] = True
    one["metadata"]["name"] = 7
    assert len(errors(one, VERSIONS[1])) == 2


def test_every_custom_resource_is_rendered() -> None:
    assert {one["kind"] for one in OBJECTS} >= set(CUSTOM_KINDS)
