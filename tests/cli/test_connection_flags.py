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
    add_sign_in_flags,
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
    add_sign_in_flags(parser, piped=True)
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
    monkeypatch.setattr(connection_flags, "GRACE", 0.0)
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
