"""The flags that reach a server and sign in, and what `--piped` does with standard input."""

from __future__ import annotations

import argparse
import base64
import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hsparse.cli import connection_flags
from hsparse.cli.connection_flags import (
    ENDPOINT,
    Credential,
    add_server_flags,
    connector,
    parse_header,
    read_credential,
)
from hsparse.errors import BadRequest, Unauthenticated

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
    assert parse_header("") == Credential()
    assert parse_header("Bearer a.b.c") == Credential(token="a.b.c")
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
