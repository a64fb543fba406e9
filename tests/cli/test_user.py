"""`hsparse user`, `key` and `job`."""

from __future__ import annotations

import asyncio
import getpass
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import h5py
import pytest
from argon2 import PasswordHasher

from hsparse.api_keys.api_key import KeyFile, Role, is_api_key
from hsparse.cli import accounts
from hsparse.cli.main import main, parse_arguments
from hsparse.hdf5.jobs import command as job
from hsparse.sn.auth.password_file import PasswordFile, User
from hsparse.sn.auth.password_hash import PasswordHash
from tests.support.server_process import server_process
from tests.testing.manual_clock import ManualClock

HASH = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"
ADA = ("ada", "--admin", "--group", "x", "--group", "y")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(accounts, "PasswordHash", lambda: PasswordHash(hasher))
    monkeypatch.setattr(job, "POLL_SECONDS", 0.05)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Users:
    """The command over a password file; `out`, `err` and `prompts` are what the last one printed and asked."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = folder / "passwords"
        self._capsys = capsys
        self.out = self.err = ""
        self.prompts: list[str] = []

    def __call__(
        self, *words: str, text: str | bytes = "", typed: list[str] | None = None, default: str = ""
    ) -> int:
        """Run it with standard input from a pipe, or a terminal at which answers are typed, then end-of-file."""
        data = text if isinstance(text, bytes) else text.encode()
        stdin = io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="") if typed is None else Terminal()
        left, self.prompts = [*(typed or [])], []

        def answer(prompt: str) -> str:
            self.prompts.append(prompt)
            if not left:
                raise EOFError
            return left.pop(0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", stdin)
            patch.setattr(getpass, "getpass", answer)
            if default:
                patch.setenv("HSPARSE_PASSWORD_FILE", default)
            named = [] if default == str(self.path) else ["--password-file", str(self.path)]
            args = parse_arguments(["user", *words, *named])
            status: int = args.run(args)
        self.out, self.err = self._capsys.readouterr()
        return status

    @property
    def kept(self) -> dict[str, tuple[bool, tuple[str, ...]]]:
        return {name: (one.admin, one.groups) for name, one in PasswordFile(self.path).entries().items()}

    def verifies(self, name: str, password: str) -> bool:
        return asyncio.run(PasswordHash().verify(PasswordFile(self.path).entries()[name].hash, password))


@pytest.fixture
def users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Users:
    return Users(tmp_path, capsys)


@pytest.mark.parametrize("text", ["pass word", "pass word\n", "pass word\r\n", "pass word\nsecond line\n"])
def test_add_reads_one_line_of_a_pipe(users: Users, text: str) -> None:
    assert users("add", *ADA, "--group", "x", text=text) == 0
    assert (users.out, users.err, users.kept) == ("Added user ada.\n", "", {"ada": (True, ("x", "y"))})
    assert users.verifies("ada", "pass word")


def test_spaces_around_a_password_are_part_of_it(users: Users) -> None:
    assert users("add", "ada", text=" pass \n") == 0
    assert users.verifies("ada", " pass ")
    assert not users.verifies("ada", "pass")


def test_add_again_is_refused_before_a_password_is_asked_for(users: Users) -> None:
    users("add", *ADA, text="one")
    assert (users("add", "ada", typed=["two", "two"]), users.prompts) == (2, [])
    assert f"There is a user 'ada' in {users.path} already" in users.err
    assert "'hsparse user password ada'" in users.err
    assert users.kept == {"ada": (True, ("x", "y"))}
    assert users.verifies("ada", "one")


def test_a_password_is_changed_and_nothing_else(users: Users) -> None:
    users("add", *ADA, text="one")
    assert users("password", "ada", typed=["two", "two"]) == 0
    assert (users.prompts, users.out) == (["Password: ", "Again: "], "Changed the password of user ada.\n")
    assert users.kept == {"ada": (True, ("x", "y"))}
    assert users.verifies("ada", "two")
    assert users("password", "bob") == 2
    assert "There is no user 'bob'" in users.err


def test_role_and_groups_are_changed_and_nothing_else(users: Users) -> None:
    users("add", *ADA, text="one")
    assert users("role", "ada", "--group", "y", "--group", "z") == 0
    assert (users.out, users.kept) == (
        "User ada has the role user; groups: y,z.\n",
        {"ada": (False, ("y", "z"))},
    )
    assert users.verifies("ada", "one")
    assert users("role", "ada", "--group", "a:b") == 2
    assert users.kept == {"ada": (False, ("y", "z"))}


def test_add_asks_twice_at_a_terminal(users: Users) -> None:
    assert (users("add", "ada", typed=["secret", "secret"]), users.prompts) == (0, ["Password: ", "Again: "])
    assert users.verifies("ada", "secret")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"typed": ["secret", "Secret"]},
            "The two typed passwords differ, so nothing was changed; run the command again.\n",
        ),
        ({"typed": ["", ""]}, "The password is empty; give a password.\n"),
        ({"typed": []}, "No password was typed, so nothing was changed; run the command again.\n"),
        ({"text": ""}, "The password is empty; give a password.\n"),
        ({"text": "\n"}, "The password is empty; give a password.\n"),
        ({"text": "\r\n"}, "The password is empty; give a password.\n"),
        ({"text": "\nsecond line\n"}, "The password is empty; give a password.\n"),
        ({"text": b"secret\xff\n"}, "The password is not valid Unicode; type it in UTF-8.\n"),
    ],
)
def test_a_wrong_password_is_refused(users: Users, given: dict[str, Any], said: str) -> None:
    assert (users("add", "ada", **given), users.out, users.err) == (2, "", said)
    assert not users.path.exists()


def test_a_name_no_user_can_have_is_refused(users: Users) -> None:
    assert users("add", "g:staff", text="secret") == 2
    assert "'g:staff' cannot be a user's name" in users.err
    assert not users.path.exists()


def test_list_shows_who_there_is_and_no_hash(users: Users) -> None:
    users("add", "robert", "--group", "b", "--group", "a", text="x")
    users("add", "ada", "--admin", text="x")
    assert (users("list"), users.out) == (0, "ada     admin\nrobert  user   b,a\n")


def test_remove(users: Users) -> None:
    for name in ("ada", "bob"):
        users("add", name, text="x")
    assert users("remove", "ada", default=str(users.path)) == 0
    assert (users.out, users.err, list(users.kept)) == ("Removed user ada.\n", "", ["bob"])
    assert users("remove", "ada", default=str(users.path)) == 2
    assert "There is no user 'ada'" in users.err


def test_list_without_a_file_says_what_to_do(users: Users) -> None:
    assert users("list", default=str(users.path)) == 2
    assert "make one with 'hsparse user add'" in users.err


def test_an_option_wins_over_the_default(users: Users, tmp_path: Path) -> None:
    assert users("add", "ada", text="secret", default=str(tmp_path / "other")) == 0
    assert users.path.exists()
    assert not (tmp_path / "other").exists()


def test_without_default_the_file_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["user", "list"])
    assert "--password-file" in capsys.readouterr().err


def test_users_of_hsds_are_added_with_hashes(users: Users, tmp_path: Path) -> None:
    theirs = tmp_path / "passwd.txt"
    theirs.write_bytes(
        b"\xef\xbb\xbf# HSDS password file\r\nadmin:admin\r\ntest_user1:pa:ss\r\n\r\nben:x\r\n"
    )
    assert users("import", str(theirs), "--admin", "ben") == 0
    assert users.out.startswith("Added 3 users; admins: admin, ben.")
    assert users.kept == {"admin": (True, ()), "test_user1": (False, ()), "ben": (True, ())}
    assert users.verifies("test_user1", "pa")  # HSDS ignores what follows a second colon
    before = users.path.read_bytes()
    assert b"pa:ss" not in before
    assert users("import", str(theirs)) == 2
    assert "There is a user 'admin'" in users.err
    assert users.path.read_bytes() == before


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
def test_a_wrong_file_of_hsds_adds_nobody(text: str | None, told: str, users: Users, tmp_path: Path) -> None:
    theirs = tmp_path / "passwd.txt"
    if text is not None:
        theirs.write_bytes(text.encode(errors="surrogateescape"))
    assert users("import", str(theirs)) == 2
    assert re.search(told, users.err)
    assert "secret" not in users.err
    assert not users.path.exists()


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
        assert "but must be from 0" in shell.err


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
    assert (shell("revoke", id), shell.out) == (0, f"Revoked key c ({id}) of bob.\n")
    shell.clock.time += 86400
    assert shell("revoke", "--expired") == 0
    assert "Revoked key b" in shell.out
    assert (shell("revoke", "d"), shell("revoke", "--of", "ann")) == (0, 0)
    assert (dict(KeyFile(shell.keys).entries()), shell("revoke", "a")) == ({}, 2)
    assert "matches; 'hsparse key list'" in shell.err


@pytest.mark.parametrize("words", [[], ["a", "--expired"], ["--of", "ann", "--expired"]])
def test_which_keys_to_revoke_is_said_once(shell: Shell, words: list[str]) -> None:
    assert shell("revoke", *words) == 2
    assert "Name the keys to revoke" in shell.err


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


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "files").mkdir()
    with h5py.File(tmp_path / "files/run.h5", "w") as file:
        file["x"] = [1, 2, 3]
    flags = ("--root", str(tmp_path / "root"), "--no-fsync", "--job-places", f"file://{tmp_path}/files")
    with server_process(*flags) as server:
        yield server.url
        assert server.stop() == 0


def test_there_and_back(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str, status: int = 0) -> str:
        assert main(["job", *words, "--endpoint", url]) == status
        return capsys.readouterr().out

    source, target = f"file://{tmp_path}/files/run.h5", f"file://{tmp_path}/files/out.h5"
    domain = "/home/admin/run.h5"
    first = run("import", source, domain, "--option", "path=2024", "--option", "requests=2", "--wait").strip()
    assert json.loads(run("show", first))["options"] == {"path": "2024", "requests": 2}
    second = run("export", domain, target, "--option", "layout=structured").strip()
    run("wait", second)
    assert (tmp_path / "files/out.h5").exists()
    third = run("export", domain, target, "--wait", status=2).strip()
    assert run("list").splitlines() == [
        f"{first} done      import {domain}",
        f"{second} done      export {domain}",
        f"{third} failed    export {domain}",
    ]
    run("cancel", first)
    run("show", first, status=2)
    run("export", domain, target, "--option", "force", "--wait")
    run("import", source, domain, status=2)


def test_a_copy_is_begun(capsys: pytest.CaptureFixture[str]) -> None:
    sent: list[tuple[object, ...]] = []

    class Server:
        def json(self, *request: object) -> dict[str, str]:
            sent.append(request)
            return {"id": "j-1"}

    args = parse_arguments(["job", "copy", "/home/ada/a.h5", "/home/ada/b.h5"])
    assert job._begin(args, cast(Any, Server()), cast(Any, Server())) == 0
    body = {"kind": "copy", "domain": "/home/ada/b.h5", "source": "/home/ada/a.h5", "options": {}}
    assert (sent, capsys.readouterr().out) == ([("POST", "/jobs", body)], "j-1\n")


def test_what_a_job_failed_by(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("import", f"file://{tmp_path}/files/none.h5", "/home/admin/none.h5", "--wait")
    assert main(["job", *words, "--endpoint", url]) == 2
    assert f"hsparse: There is no file {tmp_path}/files/none.h5." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        ({"status": "cancelled"}, "internal", "The job j-1 was cancelled."),
        ({"status": "failed", "error": {"kind": "conflict", "message": "There."}}, "conflict", "There."),
        ({"status": "failed", "error": {"kind": "new", "message": "There."}}, "internal", "There."),
    ],
)
def test_failures(found: dict[str, object], kind: str, words: str) -> None:
    error = job._failure({"id": "j-1", **found})
    assert (error.kind, error.message) == (kind, words)
