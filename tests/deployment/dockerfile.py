"""The Dockerfile's steps, and the context that `.dockerignore` leaves."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.deployment.manifests import PROJECT


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the Dockerfile: its instruction, and what follows it."""

    instruction: str
    rest: str


def stages() -> list[list[Step]]:
    """Return the steps of each stage; the first of each is its FROM."""
    found: list[list[Step]] = []
    text = re.sub(r"\\\n\s*", "", (PROJECT / "Dockerfile").read_text())
    for line in (line for line in text.splitlines() if line and not line.startswith("#")):
        step = Step(*line.split(" ", 1))
        if step.instruction == "FROM":
            found.append([])
        found[-1].append(step)
    return found


def kept() -> list[str]:
    """Return the names that `.dockerignore` leaves in the context."""
    everything, *lines = (PROJECT / ".dockerignore").read_text().splitlines()
    assert everything == "*"
    assert [line for line in lines if not line.startswith("!")] == ["**/__pycache__"]
    return [line.removeprefix("!") for line in lines if line.startswith("!")]


def make_context(target: Path) -> None:
    """Make the context that a build gets, in a directory that there is."""
    for name in kept():
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(PROJECT / name, target / name)


def copy_step(step: Step, context: Path, workdir: Path) -> None:
    """Carry out a COPY from the context, relative to the working directory."""
    *sources, target = step.rest.split()
    for name in sources:
        if (context / name).is_dir():  # its content, as COPY does
            shutil.copytree(context / name, workdir / target, dirs_exist_ok=True)
        else:
            shutil.copy2(context / name, workdir / target)
