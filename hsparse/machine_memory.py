"""The memory available to this process, from which defaults of cache and queue sizes are derived."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

UNKNOWN_MEMORY = 12 << 30
"""Assumed bytes of memory if the machine does not report its memory."""


def machine_memory(root: Path = Path("/")) -> int:
    """Return the memory of the machine in bytes, or the memory limit of the container or service if lower."""
    return min([_physical(), *_cgroup_limits(root)])


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN_MEMORY


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Yield the memory limits in bytes of this process's cgroup and its ancestors (cgroups(7), versions 1 and 2)."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePosixPath(path)
        for one in (group, *group.parents):
            # In a container the path may be the host's; the container's limit is then at the mount itself.
            try:
                text = (mount / one.relative_to("/") / name).read_text().strip()
            except OSError:
                continue
            if text.isdigit():
                yield int(text)
