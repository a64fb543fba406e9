"""Who reaches whom: policies, the paths of Ingress and HTTPRoute, and the ports they name."""

from __future__ import annotations

from tests.deployment.manifests import Object, by_name, container, jobs_of, pods_of, rendered

OBJECTS = by_name([one for objects in rendered().values() for one in objects])
PODS = {
    one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: one
    for one in pods_of(list(OBJECTS.values()))
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
    specs = [one["spec"] for one in OBJECTS.values() if one["kind"] == "NetworkPolicy"]
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
        assert peers(nodes, "to") == {"data-node"}
        assert nodes["ports"] == ports("data-node")
        assert store == {"ports": [{"port": 443, "protocol": "TCP"}]}


def test_a_sweep_reaches_names_and_the_store_and_nobody_reaches_it() -> None:
    (job,) = jobs_of(list(OBJECTS.values()))
    labels = job["spec"]["template"]["metadata"]["labels"].items()
    policies = [one["spec"] for one in OBJECTS.values() if one["kind"] == "NetworkPolicy"]
    (spec,) = [one for one in policies if one["podSelector"]["matchLabels"].items() <= labels]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in spec
    assert spec["egress"] == [
        rule for rule in policy("data-node")["egress"] if "podSelector" not in str(rule)
    ]
    assert selected(spec["podSelector"]) == set()
    assert not any(
        (one["spec"].get("selector") or {"no": "pods"}).items() <= labels
        for one in OBJECTS.values()
        if one["kind"] == "Service"
    )


def test_ports_that_are_named_exist() -> None:
    for one in PODS.values():
        assert [port["name"] for port in container(one)["ports"]] == ["http"]
    services = [
        one["spec"] for one in OBJECTS.values() if one["kind"] == "Service" and "selector" in one["spec"]
    ]
    assert len(services) == 2
    assert {port["targetPort"] for spec in services for port in spec["ports"]} == {"http"}


def test_private_paths_lead_to_a_service_without_pods() -> None:
    assert "selector" not in OBJECTS["Service", "hsparse-closed"]["spec"]
    (host,) = OBJECTS["Ingress", "hsparse"]["spec"]["rules"]
    (tls,) = OBJECTS["Ingress", "hsparse"]["spec"]["tls"]
    assert tls["hosts"] == [host["host"]]
    backends = {
        (path["path"], path["pathType"]): path["backend"]["service"] for path in host["http"]["paths"]
    }
    closed = {"name": "hsparse-closed", "port": {"name": "closed"}}
    opened = {"name": "hsparse", "port": {"name": "http"}}
    assert backends == {("/info", "Exact"): closed, ("/metrics", "Exact"): closed, ("/", "Prefix"): opened}
    for backend in backends.values():
        ports = OBJECTS["Service", backend["name"]]["spec"]["ports"]
        assert [port["name"] for port in ports] == [backend["port"]["name"]]


def test_a_route_has_the_paths_of_the_ingress() -> None:
    private, public = OBJECTS["HTTPRoute", "hsparse"]["spec"]["rules"]
    assert [one["path"] for one in private["matches"]] == [
        {"type": "Exact", "value": "/info"},
        {"type": "Exact", "value": "/metrics"},
    ]
    assert [one["path"] for one in public["matches"]] == [{"type": "PathPrefix", "value": "/"}]
    for rule, name in (private, "hsparse-closed"), (public, "hsparse"):
        (backend,) = rule["backendRefs"]
        assert backend["name"] == name
        assert backend["port"] in [port["port"] for port in OBJECTS["Service", name]["spec"]["ports"]]
