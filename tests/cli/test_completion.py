"""The completions of the shells: bash is asked, the scripts of others are searched."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hsparse.cli.completion import SHELLS
from hsparse.cli.main import COMMANDS, all_commands, main
from hsparse.errors import Misconfigured
from hsparse.extension import Command

ASK = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_hsparse; echo "${COMPREPLY[@]}"'


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    capture = pytest.MonkeyPatch()
    for shell in SHELLS:
        with (folder / shell).open("w") as file:
            capture.setattr("sys.stdout", file)
            main(["completion", shell])
            capture.undo()
    return folder


def complete(scripts: Path, folder: Path, *words: str) -> set[str]:
    """Return what bash offers for the last word."""
    command = ["bash", "-c", ASK, "bash", str(scripts / "bash"), "hsparse", *words]
    return set(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.needs("bash")
def test_bash_completes_commands_flags_choices_and_files(scripts: Path, tmp_path: Path) -> None:
    (tmp_path / "run1.h5").touch()
    assert {*COMMANDS} <= complete(scripts, tmp_path, "")
    assert complete(scripts, tmp_path, "mk") == {"mkdir"}
    assert {"add", "list"} <= complete(scripts, tmp_path, "user", "")
    assert "--password-file" in complete(scripts, tmp_path, "user", "add", "--pass")
    assert complete(scripts, tmp_path, "ls", "--ca") == {"--ca-file"}
    assert complete(scripts, tmp_path, "completion", "f") == {"fish"}
    assert complete(scripts, tmp_path, "import", "ru") == {"run1.h5"}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_has_every_command_and_flags_of_all(scripts: Path, shell: str) -> None:
    text = (scripts / shell).read_text()
    for name in all_commands():
        assert name in text
    flag = "-l ca-file" if shell == "fish" else "--ca-file"
    assert text.count(flag) > 5


def test_a_command_without_its_extra_is_completed_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = Command.load

    def missing(command: Command) -> object:
        if command.extra == "server":
            raise Misconfigured("not installed")
        return load(command)

    monkeypatch.setattr(Command, "load", missing)
    assert main(["completion", "bash"]) == 0
    printed = capsys.readouterr().out
    assert "serve" in printed
    assert "--password-file" not in printed.partition("_user_")[0]
