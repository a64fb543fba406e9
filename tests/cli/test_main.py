"""The commands: each is listed, has its own help, and loads what it needs when it is given."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from hsparse.cli.main import COMMANDS, main, make_parser
from hsparse.errors import Misconfigured
from hsparse.extension import BUILT_IN
from hsparse.optional_module import OptionalModule

RUN = """
import sys
from hsparse.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def loaded(*arguments: str) -> set[str]:
    """Return the modules that a command line loads, in a process of its own."""
    run = [sys.executable, "-c", RUN, *arguments]
    return set(subprocess.run(run, check=True, capture_output=True, text=True).stderr.split())


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_what_needs_no_command_loads_neither_the_client_nor_a_package(flag: str) -> None:
    found = loaded(flag)
    ours = {one for one in found if one.startswith("hsparse")}
    own = {
        "hsparse.cli.main",
        "hsparse.cli.command_parser",
        "hsparse.cli.terminal_text",
        "hsparse.errors",
        "hsparse.optional_module",
        "hsparse.api",
        "hsparse.extension",
    }
    own |= {f"hsparse.{name}" for name in BUILT_IN}
    assert ours == {"hsparse", "hsparse.cli"} | own
    before = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], check=True, capture_output=True, text=True
    )
    started = set(before.stdout.split())  # what the environment loads by itself
    assert {one.partition(".")[0] for one in found - started} - set(sys.stdlib_module_names) == {"hsparse"}
    assert len(found - started) < 150


@pytest.mark.parametrize(
    "command",
    ["import", "export", "map", "job", "ls", "info", "mkdir", "cp", "mv", "rm", "quota", "user", "key"],
)
def test_a_command_does_not_load_the_server_nor_what_only_buckets_need(command: str) -> None:
    found = loaded(command, "--help")
    assert COMMANDS[command].module in found
    assert not {"aiohttp", "aiobotocore", "pydantic", "pyarrow", "hsparse.cli.serve"} & found


def test_every_command_is_listed_and_has_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    whole = make_parser().format_help()
    for command, one in COMMANDS.items():
        assert len(re.findall(rf"\n  {command}\s", whole)) == 1
        assert one.help in " ".join(whole.split())
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert capsys.readouterr().out.startswith(f"usage: hsparse {command} ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "improt",
            r"usage: hsparse .*there is no command 'improt'; did you mean import\? hsparse --help lists all",
        ),
        ("zzzz", r"there is no command 'zzzz'; hsparse --help lists all"),
        ("import a.h5 /a.h5 --forse", r"usage: hsparse import .*--forse; did you mean --force\?"),
        ("serve --bukcet=a", r"usage: hsparse serve .*--bukcet=a; did you mean --bucket\?"),
        (
            "user add ann --password-file p --amdin",
            r"usage: hsparse user add .*--amdin; did you mean --admin\?",
        ),
        ("ls --zzzz", r"usage: hsparse ls .*unrecognized arguments: --zzzz$"),
        ("user ad", r"usage: hsparse user .*'ad'.*add"),
    ],
)
def test_a_wrong_word_is_told_with_the_usage_of_its_command(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    assert re.search(told, " ".join(capsys.readouterr().err.split()))


def test_what_is_missing_names_the_extra_where_one_has_it() -> None:
    with pytest.raises(
        Misconfigured, match=r'needs the package no_such_module.*pip install "hsparse\[server\]"'
    ):
        OptionalModule("no_such_module.part", "server").load()
    for part in (OptionalModule("no_such_module"), OptionalModule("hsparse.no_such_module", "server")):
        with pytest.raises(ModuleNotFoundError):
            part.load()
