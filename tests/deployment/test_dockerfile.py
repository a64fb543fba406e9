"""The Dockerfile: what its steps say, what they copy, and, where asked for, the steps themselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from hsparse.cli.main import parse_arguments
from hsparse.cli.serve import serve
from hsparse.config import SETTINGS
from tests.deployment.manifests import PROJECT, container, pod, pods_of, rendered


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


WORKLOADS = pods_of([one for objects in rendered().values() for one in objects])
MOUNT = "mkdir -p upper work root && mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root"


def last(instruction: str) -> str:
    """Return what the image has for an instruction."""
    return [step.rest for step in stages()[-1] if step.instruction == instruction][-1]


def test_the_image_runs_the_command() -> None:
    assert last("ENTRYPOINT") == '["hsparse"]'
    assert parse_arguments(yaml.safe_load(last("CMD"))).serving is serve
    assert (int(last("EXPOSE")), last("STOPSIGNAL")) == (SETTINGS["port"].default, "SIGTERM")
    assert all("command" not in container(one) for one in WORKLOADS)  # the entrypoint is the image's


def test_the_image_is_not_root() -> None:
    user, group = last("USER").split(":")
    for one in WORKLOADS:
        context = pod(one)["securityContext"]
        assert (str(context["runAsUser"]), str(context["runAsGroup"])) == (user, group)
    added = " ".join(step.rest for step in stages()[-1] if step.instruction == "RUN")
    assert f"--gid {group} " in added
    assert f"--uid {user} " in added


def test_folders_are_bound_and_never_a_file_alone() -> None:
    made = " ".join(step.rest for step in stages()[-1] if step.instruction == "RUN").split()
    commands = (PROJECT / "docs" / "deploy.md").read_text()
    bound = re.findall(r"(?:-v|--volume) \S+?:(/[^\s:]+)", commands)
    assert bound
    assert set(bound) <= set(made), "the image has no such folder"
    mounts = [mount for one in WORKLOADS for mount in container(one).get("volumeMounts", [])]
    assert not any("subPath" in mount for mount in mounts)


def test_what_is_copied_is_in_the_context() -> None:
    copied = [step.rest.split()[:-1] for stage in stages() for step in stage if step.instruction == "COPY"]
    names = [name for sources in copied if not sources[0].startswith("--from") for name in sources]
    assert sorted(names) == sorted(kept())
    assert all((PROJECT / name).exists() for name in names)


def run_copies(context: Path, workdir: Path) -> None:
    """Carry out the COPY steps of the first stage."""
    make_context(context)
    for step in stages()[0]:
        if step.instruction == "COPY":
            copy_step(step, context, workdir)


def test_what_is_copied_makes_the_whole_package(tmp_path: Path) -> None:
    context, workdir = tmp_path / "context", tmp_path / "source"
    context.mkdir()
    workdir.mkdir()
    run_copies(context, workdir)
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(tmp_path / "dist"),
    ]
    done = subprocess.run(build, cwd=workdir, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").iterdir()
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == {
        str(path.relative_to(context)) for path in context.rglob("hsparse/**/*") if path.is_file()
    }


@pytest.mark.image
def test_every_step_of_the_dockerfile_runs(tmp_path: Path) -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux, to mount a view of the files")
    context = tmp_path / "context"
    context.mkdir()
    make_context(context)
    built = run_stage(tmp_path / "build", stages()[0], context, None)
    image = run_stage(tmp_path / "image", stages()[1], context, built)
    version = in_root(
        image, "setpriv --reuid 10001 --regid 10001 --clear-groups /opt/hsparse/bin/hsparse --version"
    )
    assert version.returncode == 0, version.stderr
    assert version.stdout.startswith("hsparse ")
    written = in_root(image, "setpriv --reuid 10001 --regid 10001 --clear-groups touch /data/file")
    assert written.returncode == 0, written.stderr
    assert (
        in_root(
            image, "setpriv --reuid 10001 --regid 10001 --clear-groups touch /opt/hsparse/file"
        ).returncode
        != 0
    )


def run_stage(directory: Path, steps: list[Step], context: Path, built: Path | None) -> Path:
    """Run a stage's steps over an empty upper layer; return the layer's directory, where its changes are."""
    directory.mkdir()
    workdir = Path("/")
    for step in steps:
        if step.instruction == "WORKDIR":
            workdir = Path(step.rest)
            assert in_root(directory, f"mkdir -p {workdir}").returncode == 0
        elif step.instruction == "COPY" and step.rest.startswith("--from=build "):
            assert built is not None
            _, source, target = step.rest.split()
            place = Path(f"{directory}/upper{target}").parent
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", f"{built}/upper{source}", str(place)], check=True)
        elif step.instruction == "COPY":
            copy_step(step, context, Path(f"{directory}/upper{workdir}"))
        elif step.instruction == "RUN":
            done = in_root(directory, f"cd {workdir} && {step.rest}")
            assert done.returncode == 0, f"{step.rest}\n{done.stdout}{done.stderr}"
    return directory


def in_root(directory: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a shell's command over this machine's files; what it changes stays in `directory`."""
    mounted = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'{MOUNT} && exec "$@"',
        "sh",
        "chroot",
        "root",
        "sh",
        "-c",
        command,
    ]
    return subprocess.run(mounted, cwd=directory, capture_output=True, text=True, check=False)
