"""The memory of a machine, and of containers with the files of both versions of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparse import machine_memory as module
from hsparse.machine_memory import UNKNOWN_MEMORY, machine_memory

PHYSICAL = 4096 * 3_000_000


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 3_000_000}
    monkeypatch.setattr(module.os, "sysconf", sizes.__getitem__)


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


def test_a_machine_without_cgroups(tmp_path: Path) -> None:
    assert machine_memory(tmp_path) == PHYSICAL


def test_a_machine_that_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(module.os, "sysconf", unknown)
    assert machine_memory(tmp_path) == UNKNOWN_MEMORY


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/memory.max": "1000"}, 1000),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/memory.max": "max"}, PHYSICAL),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/memory.max": "max",
                "sys/fs/cgroup/a/memory.max": "500",
            },
            500,
        ),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "700"}, 700),
        ({"proc/self/cgroup": "0::/of/the/host", "sys/fs/cgroup/memory.max": "700"}, 700),
        (
            {
                "proc/self/cgroup": "8:pids:/\n4:cpu,memory:/a",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "900",
            },
            900,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/a",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712",
            },
            PHYSICAL,
        ),
    ],
)
def test_the_limit_of_a_cgroup_counts(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    put(tmp_path, files)
    assert machine_memory(tmp_path) == expected
