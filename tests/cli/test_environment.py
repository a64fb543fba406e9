"""Variables of commands: those that there are, and those that no setting has."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hsparse.cli import environment
from hsparse.cli.connection_flags import Credential, read_credential
from hsparse.cli.main import main, parse_arguments
from hsparse.config import SETTINGS
from hsparse.errors import BadRequest


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


def test_help_is_printed_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HSPARSE_PASWORD_FILE", "passwords")
    with pytest.raises(SystemExit):
        main(["ls", "--help"])
    assert "HSPARSE_ENDPOINT" in capsys.readouterr().out


def test_help_of_servers_is_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    out = capsys.readouterr().out
    titles = [line[:-1] for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert set(titles) >= {
        "Server",
        "Storage",
        "Cluster",
        "Sign-in",
        "Memory and limits",
        "Answers",
        "Jobs",
        "Log",
    }
    assert "default 256MiB" in out


def test_the_endpoint(embedded_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSPARSE_ENDPOINT", embedded_url)
    assert main(["ls", "/home"]) == 0
    assert parse_arguments(["job", "list"]).endpoint == embedded_url
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
