"""The profile `restricted` of the Pod Security Standards: what a namespace that enforces it refuses."""

from __future__ import annotations

from collections.abc import Iterator

from tests.deployment.manifests import Object

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
