"""The pods against the profile that the namespace enforces, and what else they do without."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from tests.deployment.manifests import K8S, Object, container, jobs_of, pod, pods_of, rendered
from tests.deployment.pod_security import violations

OBJECTS = [one for objects in rendered().values() for one in objects]
WORKLOADS = [*pods_of(OBJECTS), *jobs_of(OBJECTS)]
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
