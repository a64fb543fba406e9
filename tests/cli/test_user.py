from __future__ import annotations

import argparse
import asyncio
import getpass
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from hsparse.cli import accounts
from hsparse.cli.main import parse_arguments
from hsparse.sn.auth.password_file import PasswordFile
from hsparse.sn.auth.password_hash import PasswordHash

HASH = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(accounts, "PasswordHash", lambda: PasswordHash(hasher))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "passwords"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def invoke(*words: str, default: str | None = None) -> int:
    with pytest.MonkeyPatch.context() as patch:
        if default is not None:
            patch.setenv("HSPARSE_PASSWORD_FILE", default)
        args = parse_arguments(["user", *words])
    run: Callable[[argparse.Namespace], int] = args.run
    return run(args)


def typed(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Make standard input a terminal at which `answers` are typed, then end-of-file; collect prompts."""
    prompts, left = [], list(answers)

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", answer)
    return prompts


def verifies(path: Path, name: str, password: str) -> bool:
    return asyncio.run(PasswordHash().verify(PasswordFile(path).entries()[name].hash, password))


def add(path: Path, monkeypatch: pytest.MonkeyPatch, text: str, *words: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return invoke("add", *words, "--password-file", str(path))


@pytest.mark.parametrize("text", ["pass word", "pass word\n", "pass word\r\n", "pass word\nsecond line\n"])
def test_add_reads_one_line_of_a_pipe(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert add(path, monkeypatch, text, "ada", "--admin", "--group", "x", "--group", "y", "--group", "x") == 0
    assert capsys.readouterr() == ("Added user ada.\n", "")
    ada = PasswordFile(path).entries()["ada"]
    assert (ada.admin, ada.groups) == (True, ("x", "y"))
    assert verifies(path, "ada", "pass word")


def test_spaces_around_a_password_are_part_of_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(path, monkeypatch, " pass \n", "ada") == 0
    assert verifies(path, "ada", " pass ")
    assert not verifies(path, "ada", "pass")


def test_add_again_is_refused_before_a_password_is_asked_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add(path, monkeypatch, "one", "ada", "--admin")
    prompts = typed(monkeypatch, "two", "two")
    assert invoke("add", "ada", "--password-file", str(path)) == 2
    assert prompts == []
    said = capsys.readouterr().err
    assert f"There is a user 'ada' in {path} already" in said
    assert "'hsparse user password ada'" in said
    assert PasswordFile(path).entries()["ada"].admin
    assert verifies(path, "ada", "one")


def test_a_password_is_changed_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add(path, monkeypatch, "one", "ada", "--admin", "--group", "x", "--group", "y")
    prompts = typed(monkeypatch, "two", "two")
    assert invoke("password", "ada", "--password-file", str(path)) == 0
    assert prompts == ["Password: ", "Again: "]
    assert capsys.readouterr().out == "Added user ada.\nChanged the password of user ada.\n"
    ada = PasswordFile(path).entries()["ada"]
    assert (ada.admin, ada.groups) == (True, ("x", "y"))
    assert verifies(path, "ada", "two")
    assert invoke("password", "bob", "--password-file", str(path)) == 2
    assert "There is no user 'bob'" in capsys.readouterr().err


def test_role_and_groups_are_changed_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add(path, monkeypatch, "one", "ada", "--admin", "--group", "x")
    assert invoke("role", "ada", "--group", "y", "--group", "z", "--password-file", str(path)) == 0
    ada = PasswordFile(path).entries()["ada"]
    assert (ada.admin, ada.groups) == (False, ("y", "z"))
    assert verifies(path, "ada", "one")
    assert capsys.readouterr().out.endswith("User ada has the role user; groups: y,z.\n")
    assert invoke("role", "ada", "--group", "a:b", "--password-file", str(path)) == 2
    assert PasswordFile(path).entries()["ada"] == ada


def test_add_asks_twice_at_a_terminal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = typed(monkeypatch, "secret", "secret")
    assert invoke("add", "ada", "--password-file", str(path)) == 0
    assert prompts == ["Password: ", "Again: "]
    assert verifies(path, "ada", "secret")


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (["secret", "Secret"], "The two passwords differ; nothing was changed.\n"),
        (["", ""], "The password is empty; give one.\n"),
        ([], "No password was typed; nothing was changed.\n"),
    ],
)
def test_what_is_typed_wrong_is_refused(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: list[str],
    message: str,
) -> None:
    typed(monkeypatch, *answers)
    assert invoke("add", "ada", "--password-file", str(path)) == 2
    assert capsys.readouterr() == ("", message)
    assert not path.exists()


@pytest.mark.parametrize("text", ["", "\n", "\r\n", "\nsecond line\n"])
def test_an_empty_line_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert add(path, monkeypatch, text, "ada") == 2
    assert capsys.readouterr() == ("", "The password is empty; give one.\n")
    assert not path.exists()


def test_a_pipe_that_is_not_utf8_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"secret\xff\n"), encoding="utf-8"))
    assert invoke("add", "ada", "--password-file", str(path)) == 2
    assert capsys.readouterr() == ("", "The password is not valid Unicode; type it in UTF-8.\n")


def test_a_name_no_user_can_have_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(path, monkeypatch, "secret", "g:staff") == 2
    assert "'g:staff' cannot be a user's name" in capsys.readouterr().err
    assert not path.exists()


def test_list_shows_who_there_is_and_no_hash(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add(path, monkeypatch, "x", "robert", "--group", "b", "--group", "a")
    add(path, monkeypatch, "x", "ada", "--admin")
    capsys.readouterr()
    assert invoke("list", "--password-file", str(path)) == 0
    assert capsys.readouterr().out == "ada     admin\nrobert  user   b,a\n"


def test_remove(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    add(path, monkeypatch, "x", "ada")
    add(path, monkeypatch, "x", "bob")
    capsys.readouterr()
    assert invoke("remove", "ada", default=str(path)) == 0
    assert capsys.readouterr() == ("Removed user ada.\n", "")
    assert list(PasswordFile(path).entries()) == ["bob"]
    assert invoke("remove", "ada", default=str(path)) == 2
    assert "There is no user 'ada'" in capsys.readouterr().err


def test_list_without_a_file_says_what_to_do(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke("list", default=str(path)) == 2
    assert "make one with 'hsparse user add'" in capsys.readouterr().err


def test_an_option_wins_over_the_default(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret"))
    assert invoke("add", "ada", "--password-file", str(path), default=str(tmp_path / "other")) == 0
    assert path.exists()
    assert not (tmp_path / "other").exists()


def test_without_default_the_file_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        invoke("list")
    assert "--password-file" in capsys.readouterr().err


def test_users_of_hsds_are_added_with_hashes(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "passwd.txt"
    theirs.write_bytes(
        b"\xef\xbb\xbf# HSDS password file\r\nadmin:admin\r\ntest_user1:pa:ss\r\n\r\nben:x\r\n"
    )
    assert invoke("import", str(theirs), "--admin", "ben", "--password-file", str(path)) == 0
    assert capsys.readouterr().out.startswith("Added 3 users; admins: admin, ben.")
    users = PasswordFile(path).entries()
    assert {name: user.admin for name, user in users.items()} == {
        "admin": True,
        "test_user1": False,
        "ben": True,
    }
    assert verifies(path, "test_user1", "pa")  # HSDS ignores what follows a second colon
    assert "pa:ss" not in path.read_text()
    before = path.read_bytes()
    assert invoke("import", str(theirs), "--password-file", str(path)) == 2
    assert "There is a user 'admin'" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ann:a\nben\n", "Line 2 of .* is not name:password"),
        ("ann:\n", "Line 1 of .* is not name:password"),
        ("ann:a\nann:b\n", "Line 2 of .* names ann a second time"),
        ("a b:c\n", "Line 1 of .*a b"),
        (f"ann:{HASH}:user:\n", "Line 1 of .* is not name:password"),
        ("ann:secret\x01\n", "control characters"),
        ("\udcff:a", "cannot be read as text"),
        (None, "cannot be read as text"),
    ],
)
def test_a_file_of_hsds_that_is_wrong_adds_nobody(
    text: str | None, told: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "passwd.txt"
    if text is not None:
        theirs.write_bytes(text.encode(errors="surrogateescape"))
    assert invoke("import", str(theirs), "--password-file", str(path)) == 2
    assert re.search(told, said := capsys.readouterr().err)
    assert "secret" not in said
    assert not path.exists()
