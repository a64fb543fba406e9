"""The commands, and what each of them loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hsparse.cli.main import MODULES, main, make_parser

LOADED = "import sys; from hsparse.cli.main import make_parser; make_parser(sys.argv[1]); print(*sys.modules)"


@pytest.mark.parametrize("command", ["import", "export"])
def test_a_command_does_not_load_the_server_nor_what_only_buckets_need(command: str) -> None:
    run = [sys.executable, "-c", LOADED, command]
    loaded = subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()
    assert f"hsparse.cli.{MODULES[command]}" in loaded
    assert not {"aiohttp", "aiobotocore", "hsparse.cli.serve"} & set(loaded)


def test_every_command_is_listed_and_has_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    whole = make_parser().format_help()
    for command in MODULES:
        assert f"\n    {command} " in whole
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert capsys.readouterr().out.startswith(f"usage: hsparse {command} ")


def test_an_unknown_command_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["improt"])
    assert "'improt'" in (told := capsys.readouterr().err)
    assert "'import'" in told
