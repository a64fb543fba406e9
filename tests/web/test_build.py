"""The built files against their sources: the digest that they hold, and, at full length, a build of the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from hsparse.explorer.handlers import static_file, static_files
from tests.support.endurance import ENDURANCE

WEB = Path(__file__).parents[2] / "web"
SOURCES = (
    "bundle.ts",
    "docs.html",
    "index.html",
    "package-lock.json",
    "package.json",
    "sign-in.html",
    "src",
    "tsconfig.json",
    "vite.config.ts",
)


def test_the_files_are_built_from_these_sources() -> None:
    paths = [path for name in SOURCES for path in (WEB / name, *(WEB / name).rglob("*")) if path.is_file()]
    digest = sha256()
    for path in sorted(paths, key=str):
        digest.update(path.relative_to(WEB).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    built = static_file("sources.txt").body().decode().strip()
    assert built == digest.hexdigest(), "web/ was changed: run make explorer and commit what it builds"


def test_the_licences_of_what_is_bundled_are_there() -> None:
    text = static_file("licences.txt").body().decode()
    for name in ("@h5web/app", "react", "three"):
        assert f"\n{name} " in f"\n{text}"
    assert ": undefined" not in text
    # What Swagger UI has in it, and its notice.
    assert "SmartBear Software Inc." in text
    assert "jedwatson.github.io/classnames" in text
    of_fiber = text.partition("@react-three/fiber ")[2]
    assert of_fiber.partition("\n")[2].strip().startswith("Copyright (c)")


def test_the_lock_has_all_that_npm_ci_asks_for() -> None:
    packages = json.loads((WEB / "package-lock.json").read_text())["packages"]
    for package in packages.values():
        for name in package.get("optionalDependencies", {}):
            assert f"node_modules/{name}" in packages, f"npm ci refuses a lock without {name}"
    for name in ("linux-x64-gnu", "linux-arm64-gnu"):
        assert "integrity" in packages[f"node_modules/@rollup/rollup-{name}"]


@pytest.mark.endurance
@pytest.mark.timeout(900)
@pytest.mark.needs("node", "npm")
def test_a_build_gives_the_same_files(tmp_path: Path) -> None:
    if not ENDURANCE.full:
        pytest.skip("a build takes a minute: make endure has it, and the digest is compared above")
    for name in SOURCES:
        copy = shutil.copytree if (WEB / name).is_dir() else shutil.copy
        copy(WEB / name, tmp_path / name)
    environment = os.environ | {"EXPLORER_OUT": str(tmp_path / "built")}
    for command in (["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], ["npx", "vite", "build"]):
        subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, timeout=600, stdout=subprocess.DEVNULL
        )
    built = {path.name.removesuffix(".gz"): path.read_bytes() for path in (tmp_path / "built").iterdir()}
    assert built.keys() == static_files().keys()
    assert [name for name, data in built.items() if data != static_files()[name].compressed] == []
