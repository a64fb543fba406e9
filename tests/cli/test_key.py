from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hsparse.api_keys.api_key import KeyFile, Role, is_api_key
from hsparse.cli.main import parse_arguments
from hsparse.sn.auth.password_file import PasswordFile, User
from tests.testing.manual_clock import ManualClock

HASH = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"


class Shell:
    """The command over two files; `out` and `err` are what the last one printed."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.keys = folder / "keys"
        self.passwords = folder / "passwords"
        self.clock = ManualClock()
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: str, passwords: bool = False) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HSPARSE_KEY_FILE", str(self.keys))
            if passwords:
                patch.setenv("HSPARSE_PASSWORD_FILE", str(self.passwords))
            args = parse_arguments(["key", *words])
        run: Callable[..., int] = args.run
        status = run(args, self.clock)
        self.out, self.err = self._capsys.readouterr()
        return status

    def kept(self, name: str) -> tuple[str, Role, tuple[str, ...], int | None]:
        (found,) = [one for one in KeyFile(self.keys).entries().values() if one.name == name]
        return found.user, found.role, found.groups, found.expires


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)


def test_a_key_is_printed_alone_and_kept_without_its_secret(shell: Shell) -> None:
    assert shell("add", "laptop", "--of", "ann", "--group", "x", "--group", "y", "--group", "x") == 0
    text = shell.out.removesuffix("\n")
    assert is_api_key(text)
    assert shell.err == "Added key laptop of ann, valid until 20020909T014640Z. It is not shown again.\n"
    assert text.rpartition("_")[2] not in shell.keys.read_text()
    assert shell.kept("laptop") == ("ann", Role.USER, ("x", "y"), int(shell.clock.time) + 365 * 86400)


def test_how_long_a_key_is_valid(shell: Shell) -> None:
    assert shell("add", "short", "--of", "ann", "--days", "1") == 0
    assert shell.kept("short")[3] == int(shell.clock.time) + 86400
    assert shell("add", "long", "--of", "ann", "--days", "0", "--admin") == 0
    assert "until it is revoked" in shell.err
    assert shell.kept("long") == ("ann", Role.ADMIN, (), None)
    for days in ("-1", "99999999"):
        assert shell("add", "bad", "--of", "ann", "--days", days) == 2
        assert "--days must be" in shell.err


def test_with_a_password_file_a_key_is_of_its_user(shell: Shell) -> None:
    PasswordFile(shell.passwords).put(User("ann", HASH, admin=True))
    assert shell("add", "laptop", "--of", "ann", passwords=True) == 0
    assert shell.kept("laptop")[:3] == ("ann", Role.ACCOUNT, ())
    assert shell("add", "other", "--of", "an", passwords=True) == 2
    assert "There is no user 'an'" in shell.err
    assert shell("add", "other", "--of", "ann", "--admin", passwords=True) == 2
    assert "'hsparse user role'" in shell.err
    assert shell("add", "backup", "--of", "backup", "--service", "--admin", passwords=True) == 0
    assert shell.kept("backup")[:2] == ("backup", Role.ADMIN)


def test_list_shows_no_secret(shell: Shell) -> None:
    shell("add", "laptop", "--of", "ann", "--days", "1")
    text = shell.out
    shell("add", "robot", "--of", "bob", "--days", "0", "--group", "staff")
    shell.clock.time += 86400
    assert shell("list") == 0
    lines = [re.split(r"  +", line) for line in shell.out.splitlines()]
    assert lines[0] == ["id", "name", "user", "role", "groups", "created", "expires"]
    assert lines[1][1:] == ["laptop", "ann", "user", "-", "20010909T014640Z", "20010910T014640Z (expired)"]
    assert lines[2][1:] == ["robot", "bob", "user", "staff", "20010909T014640Z", "never"]
    assert text.rpartition("_")[2].strip() not in shell.out


def test_keys_are_revoked_by_name_id_user_or_age(shell: Shell) -> None:
    for name, user, days in (("a", "ann", "0"), ("b", "ann", "1"), ("c", "bob", "0"), ("d", "bob", "0")):
        shell("add", name, "--of", user, "--days", days)
    (id,) = [one.id for one in KeyFile(shell.keys).entries().values() if one.name == "c"]
    assert shell("revoke", id) == 0
    assert shell.out == f"Revoked key c ({id}) of bob.\n"
    shell.clock.time += 86400
    assert shell("revoke", "--expired") == 0
    assert "Revoked key b" in shell.out
    assert shell("revoke", "d") == 0
    assert shell("revoke", "--of", "ann") == 0
    assert dict(KeyFile(shell.keys).entries()) == {}
    assert shell("revoke", "a") == 2
    assert "There is no such key" in shell.err


@pytest.mark.parametrize("words", [[], ["a", "--expired"], ["--of", "ann", "--expired"]])
def test_which_keys_to_revoke_is_said_once(shell: Shell, words: list[str]) -> None:
    assert shell("revoke", *words) == 2
    assert "Say which keys to revoke" in shell.err


def test_help_tells_how_keys_are_sent(capsys: pytest.CaptureFixture[str]) -> None:
    for command, told in (("add", "Authorization: Bearer hsk_"), ("revoke", "running servers too")):
        with pytest.raises(SystemExit):
            parse_arguments(["key", command, "--help"])
        text = capsys.readouterr().out
        assert told in text
        assert f"hsparse key {command}" in text
    with pytest.raises(SystemExit):
        parse_arguments(["key", "list"])
    assert "--key-file" in capsys.readouterr().err
