"""What the image installs: versions and hashes that are written down, and a bill of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deployment.manifests import PROJECT
from tests.deployment.test_dockerfile import stages

ABOUT = tomllib.loads((PROJECT / "pyproject.toml").read_text())
LOCK = PROJECT / "requirements.lock"


def locked() -> dict[tuple[str, str], int]:
    """Return how many hashes each package has in the lock, by name and version; some have one for each Python."""
    entries = re.split(r"\n(?=[a-z])", LOCK.read_text().partition("\n")[2])
    found = {}
    for entry in entries:
        if "==" in entry.partition("\n")[0]:
            one = Requirement(entry.partition("\\")[0].strip())
            (version,) = [part.version for part in one.specifier]
            found[canonicalize_name(one.name), version] = entry.count("--hash=sha256:")
    return found


def wanted(extra: str) -> list[Requirement]:
    """Return what the package with an extra requires, those of extras in it too."""
    found = []
    for text in ABOUT["project"]["optional-dependencies"][extra]:
        one = Requirement(text)
        found += [item for name in one.extras for item in wanted(name)] if one.name == "hsparse" else [one]
    return found


def test_the_lock_has_what_the_server_requires() -> None:
    required = [*ABOUT["project"]["dependencies"], *ABOUT["build-system"]["requires"]]
    for one in (*map(Requirement, required), *wanted("server")):
        versions = [version for name, version in locked() if name == canonicalize_name(one.name)]
        assert versions, (str(one), "run make lock")
        assert all(map(one.specifier.contains, versions)), (str(one), versions, "run make lock")


def test_each_file_of_the_image_has_a_known_hash() -> None:
    assert all(locked().values())
    installs = [
        part
        for stage in stages()
        for step in stage
        for part in step.rest.split("&&")
        if step.instruction == "RUN" and "pip install" in part
    ]
    assert len(installs) == 2
    assert all("--require-hashes" in part or "--no-deps --no-build-isolation" in part for part in installs)


def test_the_bill_of_materials_has_what_is_locked(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx_py", reason="cyclonedx-bom is installed by make alone")
    (command,) = re.findall(r"\$\(BIN\)/cyclonedx-py (.*) --output-file", (PROJECT / "Makefile").read_text())
    bill = tmp_path / "bill.json"
    subprocess.run(
        [sys.executable, "-m", "cyclonedx_py", *command.split(), "--output-file", bill],
        cwd=PROJECT,
        check=True,
    )
    found = json.loads(bill.read_text())
    assert found["metadata"]["component"]["name"] == "hsparse"
    assert {(one["name"], one["version"]) for one in found["components"]} == locked().keys()
    assert all(one["externalReferences"][0]["hashes"] for one in found["components"])
