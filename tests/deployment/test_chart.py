"""The chart: its network, security, schemas and sizes."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hsparse import __version__
from hsparse.config import SETTINGS
from hsparse.setting import MIB, parse_size
from tests.deployment.manifests import (
    CHART,
    CUSTOM_KINDS,
    K8S,
    PROJECT,
    VERSIONS,
    Object,
    arguments,
    by_name,
    container,
    documents,
    errors,
    jobs_of,
    pod,
    pods_of,
    render_chart,
    rendered,
    run,
    violations,
)
from tests.docs_pages import rows

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
    assert (list(violations(pod(job))), container(job)["args"][0]) == ([], "sweep")
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


NETWORK_OBJECTS = by_name([one for objects in rendered().values() for one in objects])
PODS = {
    one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: one
    for one in pods_of(list(NETWORK_OBJECTS.values()))
}


def selected(selector: Object) -> set[str]:
    """Return the components of the pods that a selector finds."""
    return {
        component
        for component, one in PODS.items()
        if selector["matchLabels"].items() <= one["spec"]["template"]["metadata"]["labels"].items()
    }


def policy(component: str) -> Object:
    """Return the spec of the one policy of a component's pods."""
    specs = [one["spec"] for one in NETWORK_OBJECTS.values() if one["kind"] == "NetworkPolicy"]
    (found,) = [spec for spec in specs if component in selected(spec["podSelector"])]
    assert found["policyTypes"] == ["Ingress", "Egress"]
    assert selected(found["podSelector"]) == {component}
    return dict(found)


def peers(rule: Object, direction: str) -> set[str]:
    """Return the components that a rule is about; of other peers their kind."""
    found: set[str] = set()
    for peer in rule[direction]:
        found |= selected(peer["podSelector"]) if "podSelector" in peer else set(peer)
    return found


def ports(component: str) -> list[Object]:
    """Return the ports of a component's pods, as a policy names them."""
    return [{"port": one["containerPort"], "protocol": "TCP"} for one in container(PODS[component])["ports"]]


def test_data_nodes_answer_nodes_and_prometheus_alone() -> None:
    (rule,) = policy("data-node")["ingress"]
    assert peers(rule, "from") == {"service-node", "data-node", "namespaceSelector"}
    assert rule["ports"] == ports("data-node")


def test_service_nodes_answer_everybody_at_their_port_alone() -> None:
    assert policy("service-node")["ingress"] == [{"ports": ports("service-node")}]


def test_nodes_reach_names_data_nodes_and_the_store_alone() -> None:
    for component in PODS:
        names, nodes, store = policy(component)["egress"]
        assert peers(names, "to") == {"namespaceSelector", "ipBlock"}
        assert {(port["port"], port["protocol"]) for port in names["ports"]} == {(53, "UDP"), (53, "TCP")}
        assert (peers(nodes, "to"), nodes["ports"]) == ({"data-node"}, ports("data-node"))
        assert store == {"ports": [{"port": 443, "protocol": "TCP"}]}


def test_a_sweep_reaches_names_and_the_store_and_nobody_reaches_it() -> None:
    (job,) = jobs_of(list(NETWORK_OBJECTS.values()))
    labels = job["spec"]["template"]["metadata"]["labels"].items()
    policies = [one["spec"] for one in NETWORK_OBJECTS.values() if one["kind"] == "NetworkPolicy"]
    (spec,) = [one for one in policies if one["podSelector"]["matchLabels"].items() <= labels]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in spec
    assert spec["egress"] == [
        rule for rule in policy("data-node")["egress"] if "podSelector" not in str(rule)
    ]
    assert selected(spec["podSelector"]) == set()
    assert not any(
        (one["spec"].get("selector") or {"no": "pods"}).items() <= labels
        for one in NETWORK_OBJECTS.values()
        if one["kind"] == "Service"
    )


def test_ports_that_are_named_exist() -> None:
    for one in PODS.values():
        assert [port["name"] for port in container(one)["ports"]] == ["http"]
    services = [
        one["spec"]
        for one in NETWORK_OBJECTS.values()
        if one["kind"] == "Service" and "selector" in one["spec"]
    ]
    assert len(services) == 2
    assert {port["targetPort"] for spec in services for port in spec["ports"]} == {"http"}


def test_private_paths_lead_to_a_service_without_pods() -> None:
    assert "selector" not in NETWORK_OBJECTS["Service", "hsparse-closed"]["spec"]
    (host,) = NETWORK_OBJECTS["Ingress", "hsparse"]["spec"]["rules"]
    (tls,) = NETWORK_OBJECTS["Ingress", "hsparse"]["spec"]["tls"]
    assert tls["hosts"] == [host["host"]]
    backends = {
        (path["path"], path["pathType"]): path["backend"]["service"] for path in host["http"]["paths"]
    }
    closed = {"name": "hsparse-closed", "port": {"name": "closed"}}
    opened = {"name": "hsparse", "port": {"name": "http"}}
    assert backends == {("/info", "Exact"): closed, ("/metrics", "Exact"): closed, ("/", "Prefix"): opened}
    for backend in backends.values():
        ports = NETWORK_OBJECTS["Service", backend["name"]]["spec"]["ports"]
        assert [port["name"] for port in ports] == [backend["port"]["name"]]


def test_a_route_has_the_paths_of_the_ingress() -> None:
    private, public = NETWORK_OBJECTS["HTTPRoute", "hsparse"]["spec"]["rules"]
    assert [one["path"] for one in private["matches"]] == [
        {"type": "Exact", "value": "/info"},
        {"type": "Exact", "value": "/metrics"},
    ]
    assert [one["path"] for one in public["matches"]] == [{"type": "PathPrefix", "value": "/"}]
    for rule, name in (private, "hsparse-closed"), (public, "hsparse"):
        (backend,) = rule["backendRefs"]
        assert backend["name"] == name
        assert backend["port"] in [port["port"] for port in NETWORK_OBJECTS["Service", name]["spec"]["ports"]]


SECURITY_OBJECTS = [one for objects in rendered().values() for one in objects]
WORKLOADS = [*pods_of(SECURITY_OBJECTS), *jobs_of(SECURITY_OBJECTS)]
workloads = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one["metadata"]["name"])


@workloads
def test_the_namespace_would_take_the_pods(workload: Object) -> None:
    labels = yaml.safe_load((K8S / "namespace.yaml").read_text())["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert list(violations(pod(workload))) == []


@pytest.mark.parametrize(
    ("where", "value", "refused"),
    [
        (("hostNetwork",), True, "hostNetwork"),
        (("volumes",), [{"name": "disk", "hostPath": {"path": "/"}}], "volume disk"),
        (("securityContext", "runAsNonRoot"), False, "hsparse: runAsNonRoot"),
        (("securityContext", "runAsUser"), 0, "hsparse: runAsUser"),
        (("securityContext", "seccompProfile"), {"type": "Unconfined"}, "hsparse: seccompProfile"),
        (("containers", 0, "securityContext", "privileged"), True, "hsparse: privileged"),
        (("containers", 0, "securityContext", "capabilities"), {}, "hsparse: capabilities.drop"),
        (
            ("containers", 0, "securityContext", "allowPrivilegeEscalation"),
            None,
            "hsparse: allowPrivilegeEscalation",
        ),
        (("containers", 0, "ports", 0, "hostPort"), 80, "hsparse: hostPort"),
    ],
)
def test_what_the_profile_refuses_is_found(where: tuple[Any, ...], value: Any, refused: str) -> None:
    spec = copy.deepcopy(pod(WORKLOADS[0]))
    part: Any = spec
    for name in where[:-1]:
        part = part[name]
    part[where[-1]] = value
    assert list(violations(spec)) == [refused]


@workloads
def test_pods_have_no_more_than_they_need(workload: Object) -> None:
    assert container(workload)["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod(workload)["automountServiceAccountToken"] is False
    resources = container(workload)["resources"]
    assert resources["requests"].keys() == {"cpu", "memory", "ephemeral-storage"}
    assert resources["limits"].keys() == {
        "memory",
        "ephemeral-storage",
    }  # a limit of CPU would only slow it down


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
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"] == f">={VERSIONS[0]}-0"
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
