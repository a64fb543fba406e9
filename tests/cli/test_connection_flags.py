"""Flags, variables and completions of commands, how they sign in, and text of others on a terminal."""

from __future__ import annotations

import argparse
import base64
import io
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.api_keys.api_key import KeyFile, Role, new_key
from hsparse.cli import connection_flags, environment
from hsparse.cli.completion import SHELLS
from hsparse.cli.connection_flags import (
    ENDPOINT,
    Credential,
    add_server_flags,
    connector,
    parse_header,
    read_credential,
)
from hsparse.cli.file_arguments import S3Url, check_target
from hsparse.cli.main import COMMANDS, all_commands, main, parse_arguments
from hsparse.cli.service_node import service_parts
from hsparse.cli.sign_in import make_authenticator
from hsparse.cli.terminal_text import terminal_text
from hsparse.config import SETTINGS, Settings, load_settings
from hsparse.errors import BadRequest, Misconfigured, Unauthenticated
from hsparse.extension import Command
from hsparse.model.acl import Principal
from hsparse.sn.auth.authenticator import BASIC, BEARER, Authenticator
from tests.testing.manual_clock import ManualClock

PIPED = """
import argparse, threading
from hsparse.cli import connection_flags
parser = argparse.ArgumentParser()
connection_flags.add_sign_in_flags(parser, piped=True)
try:
    found = connection_flags.read_credential(parser.parse_args(["--piped"]))
    print(found.token, found.user, found.password, flush=True)
    threading.Event().wait(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def parsed(*flags: str) -> Credential:
    parser = argparse.ArgumentParser()
    add_server_flags(parser, piped=True)
    return read_credential(parser.parse_args(flags))


def test_nobody_a_user_or_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed() == Credential()
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
    assert parsed("--user", "ada") == Credential("ada", "secret")
    (tmp_path / "key").write_text("hsk_1\n")
    assert parsed("--token-file", str(tmp_path / "key")) == Credential(token="hsk_1")
    with pytest.raises(BadRequest, match="cannot be read"):
        parsed("--token-file", str(tmp_path / "none"))
    with pytest.raises(BadRequest, match="one of"):
        parsed("--token-file", str(tmp_path / "key"), "--piped")


def test_a_password_that_is_no_text_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"s\xffcret\n"), "utf-8"))
    with pytest.raises(BadRequest, match="not valid Unicode") as raised:
        parsed("--user", "ada")
    assert raised.value.__cause__ is None


def test_headers() -> None:
    pair = base64.b64encode(b"ada:s:cret").decode()
    assert (parse_header(""), parse_header("Bearer a.b.c")) == (Credential(), Credential(token="a.b.c"))
    assert parse_header(f"basic {pair}") == Credential("ada", "s:cret")
    with pytest.raises(Unauthenticated, match="Basic or Bearer"):
        parse_header("Digest x")
    assert "s:cret" not in repr(parse_header(f"basic {pair}"))


@pytest.mark.parametrize("at_once", [False, True])
def test_the_end_of_the_pipe_interrupts_also_where_ctrl_c_is_ignored(at_once: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PIPED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"Bearer abc\n")
        if not at_once:
            process.stdin.flush()
            assert process.stdout.readline() == b"abc None None\n"
        process.stdin.close()
        assert process.stdout.read().endswith(b"interrupted\n")
    assert process.returncode == 0


def test_what_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr(connection_flags, "UNDO_SECONDS", 0.0)
    monkeypatch.setattr(connection_flags.os, "read", lambda fd, size: b"")
    monkeypatch.setattr(connection_flags.os, "_exit", ends.append)
    sent: list[int] = []
    monkeypatch.setattr(connection_flags.signal, "pthread_kill", lambda thread, number: sent.append(number))
    connection_flags._watch()
    assert (sent, ends) == ([signal.SIGINT], [connection_flags.INTERRUPTED])


def server_arguments(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_server_flags(parser)
    return parser.parse_args(flags)


def test_a_server_without_users() -> None:
    with connector(server_arguments(), "/home/a.h5")() as connection:
        assert (connection.url, connection.domain) == (ENDPOINT, "/home/a.h5")


def test_a_password_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\nmore\n"))
    opening = connector(server_arguments("--user", "ada"))
    with opening(), opening():
        pass
    assert input() == "more"


def test_a_token_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        connector(server_arguments("--token-file", str(tmp_path / "none")))


HOME, OTHER = "https://home.example.org", "http://evil.example:5101"


def test_variables_are_for_the_server_among_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text("hsk_2")
    monkeypatch.setenv("HSPARSE_ENDPOINT", HOME)
    for name, value, sent in (
        ("TOKEN", "hsk_1", Credential(token="hsk_1")),
        ("TOKEN_FILE", str(tmp_path / "key"), Credential(token="hsk_2")),
        ("USER", "ada", Credential("ada", "secret")),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(f"HSPARSE_{name}", value)
            patch.setenv("HSPARSE_PASSWORD", "secret")
            assert parsed() == parsed("--endpoint", HOME + "/") == sent
            assert not capsys.readouterr().err
            assert parsed("--endpoint", OTHER) == Credential()
            assert "not sent to" in capsys.readouterr().err
    assert parsed("--endpoint", OTHER) == Credential()
    assert not capsys.readouterr().err


def test_a_password_in_a_variable_is_not_for_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSPARSE_PASSWORD", "secret")
    assert parsed("--user", "ada", "--endpoint", OTHER) == Credential("ada", "secret")
    monkeypatch.setenv("HSPARSE_ENDPOINT", HOME)
    monkeypatch.setattr(sys, "stdin", io.StringIO("typed\n"))
    assert parsed("--user", "ada", "--endpoint", OTHER) == Credential("ada", "typed")
    assert parsed("--user", "ada") == Credential("ada", "secret")


def test_a_token_for_no_server_stays_on_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HSPARSE_TOKEN", "hsk_1")
    for place in ("http://localhost:5101", "http://127.0.0.1:1", "http://[::1]:5101"):
        assert parsed("--endpoint", place) == Credential(token="hsk_1")
    for place in (OTHER, "http://localhost@evil.example", "http://127.0.0.1.evil.example"):
        with pytest.raises(BadRequest, match="set HSPARSE_ENDPOINT"):
            parsed("--endpoint", place)
    (tmp_path / "key").write_text("hsk_2")
    assert parsed("--endpoint", OTHER, "--token-file", str(tmp_path / "key")) == Credential(token="hsk_2")


TRUSTED = {"oidc_issuer": "https://login.example.org", "oidc_audience": "hsparse"}


def signed_in(settings: Settings) -> Authenticator:
    clock = ManualClock()
    schemes = [scheme for one in service_parts(settings, clock) for scheme in one.schemes]
    return make_authenticator(settings.sign_in, schemes, clock)


def challenges(**flags: Any) -> tuple[str, ...]:
    return signed_in(load_settings(**flags)).challenges


async def test_without_any_everybody_is_the_one_user() -> None:
    authenticator = signed_in(load_settings(user="me"))
    assert await authenticator.principal("Bearer x") == Principal("me", admin=True)


def test_each_way_is_set_up_alone(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    (tmp_path / "keys").write_text("")
    assert challenges(password_file=tmp_path / "passwords") == (BASIC,)
    assert challenges(key_file=tmp_path / "keys") == (BASIC, BEARER)
    assert challenges(**TRUSTED) == (BEARER,)


async def test_groups_and_admins_are_of_everybody_who_signs_in(tmp_path: Path) -> None:
    text, key = new_key(ManualClock(), "a", "ann", Role.USER, (), None)
    KeyFile(tmp_path / "keys").add(key)
    (tmp_path / "groups").write_text("ops: ann\n")
    settings = load_settings(key_file=tmp_path / "keys", group_file=tmp_path / "groups", admins="bob, g:ops")
    principal = await signed_in(settings).principal(f"Bearer {text}")
    assert principal == Principal("ann", admin=True, groups=frozenset({"ops"}))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"key_file": "none"}, "There is no key file none; make one"),
        ({"password_file": "none"}, "There is no password file none"),
        ({**TRUSTED, "group_file": "none"}, "There is no group file none"),
        ({"oidc_issuer": "https://login.example.org"}, "needs --oidc-audience"),
        ({"oidc_audience": "hsparse"}, "--oidc-audience needs --oidc-issuer"),
        ({**TRUSTED, "oidc_issuer": "http://login.example.org"}, "must begin with https"),
        ({"oidc_client_id": "explorer"}, "--oidc-client-id needs --oidc-issuer"),
        ({"admins": "ann"}, "need sign-in"),
        ({"group_file": "none"}, "need sign-in"),
    ],
)
def test_settings_that_cannot_work_are_found_at_the_start(
    flags: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misconfigured, match=message):
        challenges(**flags)


def test_an_object() -> None:
    url = S3Url.parse("s3://bucket/a/b.h5")
    assert (url.bucket, url.key, str(url)) == ("bucket", "a/b.h5", "s3://bucket/a/b.h5")


@pytest.mark.parametrize(
    "url", ["s3://", "s3://bucket", "s3://bucket/", "s3:///a", "http://bucket/a", "a.h5"]
)
def test_what_is_none(url: str) -> None:
    with pytest.raises(BadRequest, match="does not name an object"):
        S3Url.parse(url)


def test_what_may_be_made(tmp_path: Path) -> None:
    there = tmp_path / "there"
    check_target(there, replace=False)
    there.touch()
    check_target(there, replace=True)
    with pytest.raises(BadRequest, match="there exists; add --force"):
        check_target(there, replace=False)
    with pytest.raises(BadRequest, match="is a directory"):
        check_target(tmp_path, replace=True)
    with pytest.raises(BadRequest, match=r"There is no directory .*none: create"):
        check_target(tmp_path / "none" / "file", replace=True)


class Terminal(io.StringIO):
    """A file that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_steers_a_terminal_is_escaped() -> None:
    text = "a\x1b]0;title\x07\x9b2J \u202efdp.exe\n/caf\u00e9 \ud800"
    assert terminal_text(text, Terminal()) == (
        "a\\x1b]0;title\\x07\\x9b2J \\u202efdp.exe\n/caf\u00e9 \\ud800"
    )
    assert terminal_text(text, io.StringIO()) == text


@given(st.text(st.characters()))
def test_all_on_a_terminal_prints(text: str) -> None:
    shown = terminal_text(text, Terminal())
    assert shown.replace("\n", "").isprintable()
    assert shown.count("\n") == text.count("\n")


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


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in environment.CLIENT_SETTINGS.values():
        monkeypatch.delenv(one.env_var, raising=False)


def test_the_base_install_knows_all_settings_of_servers() -> None:
    assert environment.SERVER_SETTINGS == SETTINGS


@pytest.mark.parametrize(
    "command", [["serve"], ["sn"], ["dn"], ["ls"], ["user", "list", "--password-file", "x"]]
)
def test_a_misspelling_prevents_every_command(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HSPARSE_PASWORD_FILE", "passwords")
    assert main(command) == 2
    assert capsys.readouterr().err == (
        "hsparse: There is no variable HSPARSE_PASWORD_FILE: do you mean HSPARSE_PASSWORD_FILE?\n"
    )


def test_help_is_printed_still(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HSPARSE_PASWORD_FILE", "passwords")
    with pytest.raises(SystemExit):
        main(["ls", "--help"])
    assert "HSPARSE_ENDPOINT" in capsys.readouterr().out


def test_help_of_servers_is_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    out = capsys.readouterr().out
    titles = [line[:-1] for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert {"Server", "Storage", "Cluster", "Sign-in", "Answers", "Jobs", "Log"} <= set(titles)
    assert "Memory and limits" in titles
    assert "default 256MiB" in out


def test_the_endpoint(embedded_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSPARSE_ENDPOINT", embedded_url)
    assert (main(["ls", "/home"]), parse_arguments(["job", "list"]).endpoint) == (0, embedded_url)
    assert parse_arguments(["ls", "--endpoint", "http://other:1"]).endpoint == "http://other:1"


def credential(*flags: str) -> Credential:
    return read_credential(parse_arguments(["import", "file", "/domain", *flags]))


def test_who_signs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert credential() == Credential()
    monkeypatch.setenv("HSPARSE_USER", "ann")
    monkeypatch.setattr("sys.stdin", io.StringIO("typed\n"))
    assert credential() == Credential("ann", "typed")
    monkeypatch.setenv("HSPARSE_PASSWORD", "secret")
    assert credential() == Credential("ann", "secret")
    assert credential("--user", "ann") == Credential("ann", "secret")
    monkeypatch.setattr("sys.stdin", io.StringIO("bens\n"))
    assert credential("--user", "ben") == Credential("ben", "bens")
    (tmp_path / "key").write_text("hsk_1\n")
    assert credential("--token-file", str(tmp_path / "key")) == Credential(token="hsk_1")
    monkeypatch.delenv("HSPARSE_USER")
    assert credential("--user", "ben") == Credential("ben", "secret")
    monkeypatch.setenv("HSPARSE_TOKEN_FILE", str(tmp_path / "key"))
    assert credential() == Credential(token="hsk_1")
    monkeypatch.setenv("HSPARSE_TOKEN", "hsk_2")
    with pytest.raises(
        BadRequest, match="HSPARSE_USER, HSPARSE_TOKEN and HSPARSE_TOKEN_FILE; unset the others"
    ):
        credential()
    monkeypatch.setenv("HSPARSE_TOKEN_FILE", "")
    assert credential() == Credential(token="hsk_2")


def test_the_s3_service_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSPARSE_S3_REGION", "eu-central-1")
    assert parse_arguments(["import", "s3://bucket/key", "/domain"]).s3_region == "eu-central-1"
