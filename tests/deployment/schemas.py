"""Validation against the schemas of Kubernetes, which kubernetes-validate has, and against those of custom resources.

Its own function reads two MB of definitions for each object, in 20 ms. Here jsonschema-rs takes 60 ms for all objects.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import yaml
from jsonschema_rs import Draft202012Validator, Registry

from tests.deployment.manifests import Object

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
