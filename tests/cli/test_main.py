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
CLIENT = (
    "hsparse.client",
    "hsparse.format",
    "hsparse.model",
    "hsparse.clock",
    "hsparse.errors",
    "hsparse.machine_memory",
)
"""What `import hsparse` loads parts of."""


def loaded(*arguments: str) -> set[str]:
    """Return the modules that a command line loads, in a process of its own."""
    run = [sys.executable, "-c", RUN, *arguments]
    return set(subprocess.run(run, check=True, capture_output=True, text=True).stderr.split())


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_what_needs_no_command_loads_the_client_and_no_package_but_numpy(flag: str) -> None:
    found = loaded(flag)
    ours = {one for one in found if one.startswith("hsparse") and not one.startswith(CLIENT)}
    own = {"hsparse.cli.main", "hsparse.cli.terminal_text", "hsparse.optional_module", "hsparse.extension"}
    own |= {f"hsparse.{name}" for name in BUILT_IN}
    assert ours == {"hsparse", "hsparse.cli"} | own
    before = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], check=True, capture_output=True, text=True
    )
    started = set(before.stdout.split())  # what the environment loads by itself
    assert {one.partition(".")[0] for one in found - started} - set(sys.stdlib_module_names) <= {
        "hsparse",
        "numpy",
    }
    assert len(found - started) < 335


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
        assert re.search(rf"\n    {command}\s", whole)
        assert one.help in " ".join(whole.split())
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert capsys.readouterr().out.startswith(f"usage: hsparse {command} ")


def test_an_unknown_command_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["improt"])
    assert "'improt'" in (told := capsys.readouterr().err)
    assert "'import'" in told


def test_what_is_missing_names_the_extra_where_one_has_it() -> None:
    with pytest.raises(Misconfigured, match=r'needs no_such_module.*pip install "hsparse\[server\]"'):
        OptionalModule("no_such_module.part", "server").load()
    for part in (OptionalModule("no_such_module"), OptionalModule("hsparse.no_such_module", "server")):
        with pytest.raises(ModuleNotFoundError):
            part.load()
