"""The chart, rendered by helm: every value has its effect, and what the kustomization applies is what it makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hsparse import __version__
from hsparse.config import SETTINGS
from tests.deployment.manifests import (
    CHART,
    K8S,
    Object,
    arguments,
    by_name,
    container,
    documents,
    jobs_of,
    pod,
    pods_of,
    render_chart,
    rendered,
    run,
)
from tests.deployment.pod_security import violations
from tests.deployment.schemas import VERSIONS, errors

FILE = Path(__file__).with_name("other_values.yaml")
OTHER: Object = yaml.safe_load(FILE.read_text())
VALUES: Object = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Object = yaml.safe_load((CHART / "values.schema.json").read_text())
NONE = ("signIn.passwords=", "store.secret=", "networkPolicy.enabled=false", "restartOnChange=false")
INSTALLATIONS: dict[str, tuple[str, ...]] = {
    "default": (),
    "other": ("--values", str(FILE)),
    "least": ("--set", ",".join(NONE)),
    "scaled": ("--set", "dataNode.size=large,serviceNode.size=small,dataNode.replicas=1"),
}
installations = pytest.mark.parametrize("flags", INSTALLATIONS.values(), ids=INSTALLATIONS)
OPEN = ("annotations", "labels", "behavior", "podAnnotations", "nodeSelector", "dashboardLabels")
"""Values that are maps of the installation's own names."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values that are no maps, by their path; those of sizes and settings are named by the installation."""
    if isinstance(value, dict) and path.rpartition(".")[2] not in (*OPEN, "sizes", "settings"):
        for name, part in value.items():
            yield from leaves(part, f"{path}.{name}" if path else name)
    else:
        yield path, value


def scalars(value: Any) -> Iterator[Any]:
    """Yield all that is no list or map."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from scalars(part)
    else:
        yield value


@pytest.mark.needs("helm")
def test_the_kustomization_has_what_the_chart_makes() -> None:
    made = by_name(render_chart("--values", str(K8S / "values.yaml")))
    settings = made.pop(("ConfigMap", "hsparse"))
    committed = by_name([one for objects in rendered().values() for one in objects])
    assert committed == made, "run `make manifests`"
    (generator,) = yaml.safe_load((K8S / "kustomization.yaml").read_text())["configMapGenerator"]
    assert dict(item.split("=", 1) for item in generator["literals"]) == settings["data"]


@pytest.mark.needs("helm", "kubectl")
def test_the_kustomization_builds_what_the_chart_installs() -> None:
    done = run("kubectl", "kustomize", str(K8S))
    assert done.returncode == 0, done.stderr
    built, installed = documents(done.stdout), render_chart()
    namespaced = [one for one in built if one["kind"] != "Namespace"]
    assert {one["metadata"]["namespace"] for one in namespaced} == {"hsparse"}
    (config,) = [one["metadata"]["name"] for one in built if one["kind"] == "ConfigMap"]
    assert config.startswith("hsparse-")
    for one in pods_of(built):
        chart = by_name(installed)["Deployment", one["metadata"]["name"]]
        assert one["spec"]["replicas"] == chart["spec"]["replicas"]
        assert container(one)["envFrom"][0] == {"configMapRef": {"name": config}}
        assert container(one)["image"] == container(chart)["image"]
        assert pod(one)["serviceAccountName"] == pod(chart)["serviceAccountName"]
    names = {(one["kind"], one["metadata"]["name"].replace(config, "hsparse")) for one in namespaced}
    assert names == by_name(installed).keys()


@installations
@pytest.mark.needs("helm")
def test_an_installation_is_what_kubernetes_takes(flags: tuple[str, ...]) -> None:
    objects = render_chart(*flags)
    found = {f"{one['kind']} {one['metadata']['name']}": errors(one, VERSIONS[-1]) for one in objects}
    assert found == {name: [] for name in found}
    for one in pods_of(objects):
        assert list(violations(pod(one))) == []
        assert arguments(one).serving
        names = [item["name"] for item in container(one)["env"]]
        assert {name for name in names if name.startswith("HSPARSE_")} <= variables()
        mounted = {mount["name"] for mount in container(one).get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in pod(one).get("volumes", ())}
    (job,) = jobs_of(objects)
    assert list(violations(pod(job))) == []
    assert container(job)["args"][0] == "sweep"
    (config,) = [
        one for one in objects if one["metadata"]["name"] == "hsparse" and one["kind"] == "ConfigMap"
    ]
    assert config["data"].keys() <= variables()


def variables() -> set[str]:
    return {f"HSPARSE_{name.upper()}" for name in SETTINGS}


def test_other_values_are_all_values_and_differ() -> None:
    defaults, others = dict(leaves(VALUES)), dict(leaves(OTHER))
    assert others.keys() == defaults.keys()
    same = {path for path, value in others.items() if value == defaults[path]}
    assert same == {
        "restartOnChange",
        "networkPolicy.enabled",
        "monitoring.dashboard",
    }  # `least` has them off


def is_monitoring_text(one: Object) -> bool:
    """Whether an object's content is text that no value changes, in which one may be found by chance."""
    return one["kind"] == "PrometheusRule" or one["metadata"]["name"].endswith("-dashboard")


@pytest.mark.needs("helm")
def test_every_value_has_its_effect() -> None:
    objects = render_chart("--values", str(FILE))
    varying = [one["metadata"] if is_monitoring_text(one) else one for one in objects]
    texts = [str(one) for one in scalars(varying)]
    unused = {"own", "1"}  # a name of sizes; replicas, as they are scaled
    for value in {str(one) for one in scalars(OTHER) if not isinstance(one, bool)} - unused:
        word = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
        assert any(word.search(text) for text in texts), f"{value} is nowhere"
    images = {container(one)["image"] for one in (*pods_of(objects), *jobs_of(objects))}
    assert images == {"other.example.org/sparse:7.7.7"}


@pytest.mark.needs("helm")
def test_values_that_are_switches_switch() -> None:
    least, default = by_name(render_chart("--set", ",".join(NONE))), by_name(render_chart())
    assert {kind for kind, _ in default.keys() - least.keys()} == {"NetworkPolicy"}
    for one in pods_of(list(least.values())):
        before = default["Deployment", one["metadata"]["name"]]
        assert "annotations" not in one["spec"]["template"]["metadata"]
        assert before["spec"]["template"]["metadata"]["annotations"].keys() == {"checksum/settings"}
        assert "volumes" not in pod(one)
        assert [next(iter(source)) for source in container(one)["envFrom"]] == ["configMapRef"]


@pytest.mark.needs("helm")
def test_a_change_of_settings_restarts_the_pods() -> None:
    changed = by_name(render_chart("--set", "dataNode.size=large,store.bucket=another"))
    for key, before in by_name(render_chart()).items():
        if key[0] == "Deployment":
            was, now = (one["spec"]["template"]["metadata"]["annotations"] for one in (before, changed[key]))
            assert was != now


@pytest.mark.needs("helm")
def test_releases_have_names_of_their_own() -> None:
    one, other = (by_name(render_chart(release=name)) for name in ("lab", "hsparse-lab"))
    assert {name.split("-hsparse")[0] for _, name in one} == {"lab"}
    assert all(name.startswith("hsparse-lab") for _, name in other)
    assert not one.keys() & other.keys()
    for workload in pods_of(list(one.values())):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert not any(
            service["spec"]["selector"].items() <= labels.items()
            for (kind, _), service in other.items()
            if kind == "Service"
        )


@pytest.mark.needs("helm")
@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("dataNodes.replicas=3", "Additional property dataNodes is not allowed"),
        ("dataNode.size=huge", "dataNode.size is none of sizes: huge"),
        ("store.bucket=", "store.bucket is the bucket that holds everything"),
        ("store.endpoint=s3.example.org", "store.endpoint: Does not match pattern"),
        ("settings.HSPARSE_NODE_TOKEN=x", "settings"),
        ("serviceNode.port=80", "serviceNode.port"),
        ("sweep.schedule=weekly", "sweep.schedule"),
        ("sweep.minAgeHours=0", "sweep.minAgeHours"),
    ],
)
def test_a_wrong_value_is_refused(flag: str, said: str) -> None:
    done = run("helm", "template", "hsparse", str(CHART), "--set", flag)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.needs("helm")
def test_helm_finds_nothing_wrong() -> None:
    done = run("helm", "lint", "--strict", str(CHART))
    assert "[WARNING]" not in done.stdout
    assert done.returncode == 0, done.stdout


def test_the_schema_has_the_values_and_no_others() -> None:
    def named(schema: Object) -> Object | None:
        if "$ref" in schema:
            schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
        properties = schema.get("properties")
        return {name: named(part) for name, part in properties.items()} if properties else None

    values = {path for path, _ in leaves(VALUES)}
    known = {path for path, _ in leaves(named(SCHEMA))} - {"global"}  # which Helm gives every chart
    assert known == values


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
