"""The machine and the software of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import sys
from pathlib import Path


def facts(packages: tuple[str, ...] = ("numpy", "aiohttp", "nanoarrow")) -> dict[str, str]:
    """Return the machine, the interpreter, the packages and the command, each as a line of text."""
    return {
        "machine": f"{os.cpu_count()} cores ({_processor()}), {_memory() / 2**30:.1f} GiB memory",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages),
        "load when started": " ".join(f"{load:.1f}" for load in os.getloadavg()) + " (1, 5, 15 minutes)",
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
