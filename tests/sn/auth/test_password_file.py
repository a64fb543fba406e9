"""The files of passwords and of lines at large, hashes of passwords, and limits of tries."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import threading
from pathlib import Path

import pytest
from argon2 import PasswordHasher, extract_parameters
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Conflict, Misconfigured, NotFound
from hsparse.model.acl import Principal
from hsparse.sn.auth.file_in_place import is_bound
from hsparse.sn.auth.line_file import LineFile, LineFormat, TryLimit, is_blank
from hsparse.sn.auth.password_file import PasswordFile, User, is_encoded
from hsparse.sn.auth.password_hash import PasswordHash
from hsparse.sn.auth.roles import is_user_name
from tests.testing.manual_clock import ManualClock


def read(line: str) -> tuple[str, int]:
    name, _, number = line.partition("=")
    if not number.isdigit():
        raise BadRequest(f"{name} has no number.")
    return name, int(number)


KIND = LineFormat("number file", "write one", read, private=False)


@pytest.fixture
def file(tmp_path: Path) -> LineFile[int]:
    (tmp_path / "numbers").write_text("# numbers\n\na=1\nb=2\n")
    return LineFile(tmp_path / "numbers", KIND)


def test_entries_are_what_the_lines_say(file: LineFile[int], caplog: pytest.LogCaptureFixture) -> None:
    file.path.chmod(0o644)
    assert dict(file.entries()) == {"a": 1, "b": 2}
    assert file.entries() is file.entries()
    assert not caplog.records, "a file that is not private may be read by all"


def test_an_edit_sees_every_line_and_is_seen_by_other_readers(file: LineFile[int]) -> None:
    other = LineFile(file.path, KIND)
    assert dict(other.entries()) == {"a": 1, "b": 2}
    file.edit(lambda lines: lines.append(f"c={len(lines)}"))
    assert dict(other.entries()) == {"a": 1, "b": 2, "c": 4}


def test_what_is_wrong_is_told_with_its_line(file: LineFile[int]) -> None:
    file.path.write_text("a=1\nb\n")
    with pytest.raises(Misconfigured, match=rf"Line 2 of the number file {file.path}: b has no number"):
        file.entries()
    file.path.unlink()
    with pytest.raises(Misconfigured, match=f"There is no number file {file.path}; write one"):
        file.entries()


@pytest.mark.parametrize(
    ("line", "blank"), [("", True), ("  ", True), ("# a", True), (" # a", False), ("a", False)]
)
def test_blank_lines(line: str, blank: bool) -> None:
    assert is_blank(line) is blank


def test_who_has_the_file_and_not_its_name_sees_edits(file: LineFile[int], tmp_path: Path) -> None:
    # A hard link is to a test what a bind of the file alone is to a container.
    bound = LineFile(tmp_path / "bound", KIND)
    bound.path.hardlink_to(file.path)
    for number in (3, 4, 3):  # the same length, within one tick of the clock
        file.edit(lambda lines, number=number: lines.__setitem__(slice(2, None), [f"a={number}"]))  # type: ignore[misc]
        assert dict(bound.entries()) == {"a": number}


def test_a_reader_never_sees_half_an_edit(file: LineFile[int], tmp_path: Path) -> None:
    file.entries()
    with file.path.open("r+b") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.write(b"# half")
        writer.flush()
        assert dict(file.entries()) == {"a": 1, "b": 2}
        with pytest.raises(Misconfigured, match="cannot be read"):
            LineFile(file.path, KIND).entries()
        writer.truncate()
    assert dict(file.entries()) == {}


def test_a_file_that_was_replaced_where_it_is_kept_is_told_once_a_minute(
    file: LineFile[int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with file.path.open("rb") as held:
        served = LineFile(
            Path(f"/proc/self/fd/{held.fileno()}"), KIND, clock
        )  # as a bind, it has no name to lose
        served.entries()
        assert not caplog.records
        (tmp_path / "other").write_text("a=9\n")
        (tmp_path / "other").replace(file.path)
        for _ in range(2):
            assert dict(served.entries()) == {"a": 1, "b": 2}
        assert len(caplog.records) == 1
        assert "mount the folder of the file" in caplog.text
        clock.time += 61
        served.entries()
        assert len(caplog.records) == 2


def test_a_file_that_is_mounted_by_itself_is_known(tmp_path: Path) -> None:
    file, mounts = tmp_path / "pass words", tmp_path / "mounts"
    file.touch()
    mounts.write_text(
        f"36 35 98:0 /mnt1 {str(file).replace(' ', chr(92) + '040')} rw,noatime - ext3 /dev/root rw\n"
    )
    assert is_bound(file, mounts)
    assert not is_bound(tmp_path, mounts)
    assert not is_bound(file, tmp_path / "none")


QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)

passwords = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)


@settings(deadline=None)
@given(passwords, passwords)
def test_only_the_password_verifies(password: str, other: str) -> None:
    hashes = PasswordHash(QUICK)
    encoded = hashes.hash(password)
    assert is_encoded(encoded)
    assert asyncio.run(hashes.verify(encoded, password))
    assert not asyncio.run(hashes.verify(encoded, other + password))


async def test_composed_and_decomposed_characters_are_one_password() -> None:
    hashes = PasswordHash(QUICK)
    encoded = hashes.hash("nai\u0308ve")
    assert await hashes.verify(encoded, "na\u00efve")
    assert QUICK.verify(encoded, "na\u00efve".encode())  # stored hashes depend on it: it is form C for good


@pytest.mark.parametrize("password", ["", "a\nb", "a\0", "\x7f", "\udcff"])
def test_passwords_http_cannot_carry_are_refused(password: str) -> None:
    with pytest.raises(BadRequest, match="password") as caught:
        PasswordHash(QUICK).hash(password)
    assert caught.value.__cause__ is None
    assert not password or password not in caught.value.message


def test_hashing_is_argon2id_of_64_mib_unless_told_otherwise() -> None:
    parameters = extract_parameters(PasswordHash().hash("secret"))
    assert (parameters.type.name, parameters.memory_cost) == ("ID", 65536)


async def test_dummy_costs_what_a_hash_costs_and_never_verifies() -> None:
    hashes = PasswordHash(QUICK)
    dummy = hashes.dummy(ManualClock())
    assert is_encoded(dummy)
    assert extract_parameters(dummy) == extract_parameters(hashes.hash("secret"))
    assert not await hashes.verify(dummy, "secret")


@pytest.mark.parametrize(
    "encoded", ["$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$A", "$argon2id$v=19$m=0,t=1,p=1$YQ$YQ"]
)
async def test_unusable_hash_is_misconfigured(encoded: str) -> None:
    assert is_encoded(encoded)
    with pytest.raises(Misconfigured, match="set that user's password again"):
        await PasswordHash(QUICK).verify(encoded, "secret")


@pytest.mark.parametrize(
    "text",
    ["", "secret", "$2b$12$abc", "$argon2i$v=19$m=8,t=1,p=1$YQ$YQ", "$argon2id$v=19$m=8,t=1,p=1$YQ$Y:Q"],
)
def test_other_texts_are_no_hash(text: str) -> None:
    assert not is_encoded(text)


class Gate:
    """A hasher that waits until it is told to answer, counting how many wait in it."""

    memory_cost, time_cost, parallelism, salt_len, hash_len = 8, 1, 1, 16, 32

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.inside = self.most = 0

    def verify(self, encoded: str, password: bytes) -> bool:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.entered.release()
        assert self.open.wait(60)
        with self.lock:
            self.inside -= 1
        return True


async def test_few_checks_run_at_once_and_the_loop_stays_free() -> None:
    gate = Gate()
    hashes = PasswordHash(gate, at_once=2)  # type: ignore[arg-type]
    checks = [asyncio.create_task(hashes.verify("", "x")) for _ in range(6)]
    for _ in range(2):
        assert await asyncio.to_thread(gate.entered.acquire, timeout=60)
    # Both slots are taken and the loop still runs: nobody else gets in until one leaves.
    assert not any(check.done() for check in checks)
    gate.open.set()
    assert await asyncio.gather(*checks) == [True] * 6
    assert gate.most == 2


HASH = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"
OTHER_HASH = HASH.replace("c2Fs", "c2FT")
ALPHABET = "abcXYZ019._-@"

names = st.text(ALPHABET, min_size=1, max_size=12).filter(is_user_name)
group_names = st.lists(st.text(ALPHABET, min_size=1, max_size=8), max_size=3).map(tuple)
users = st.builds(User, names, st.sampled_from([HASH, OTHER_HASH]), st.booleans(), group_names)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "passwords"


def write(path: Path, text: str) -> PasswordFile:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return PasswordFile(path)


@given(users)
def test_a_line_reads_back_as_its_user(user: User) -> None:
    assert User.of_line(user.line) == user


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.booleans(), users), max_size=8))
def test_edits_act_as_on_a_dict(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[bool, User]]
) -> None:
    path = tmp_path_factory.mktemp("passwords") / "file"
    file, served, model = PasswordFile(path), PasswordFile(path), dict[str, User]()
    for put, user in edits:
        if put:
            assert file.put(user) is (user.name in model)
            model[user.name] = user
        elif user.name in model:
            file.remove(user.name)
            del model[user.name]
        else:
            with pytest.raises(NotFound):
                file.remove(user.name)
        if path.exists():
            # Another reader of the same file, that has cached what was there before, sees each edit.
            assert dict(served.entries()) == model
            assert list(served.entries()) == list(model)


def test_principal_has_role_and_groups() -> None:
    assert User("ada", HASH, True, ("a", "b")).principal == Principal("ada", True, frozenset({"a", "b"}))


def test_the_hash_is_not_in_the_repr() -> None:
    assert "argon2" not in repr(User("ada", HASH))


def test_comments_empty_lines_and_crlf_mean_nothing_and_are_kept(path: Path) -> None:
    file = write(path, f"# who may sign in: ünï\r\n\r\nada:{HASH}:admin:x,y\r\n  \nbob:{HASH}:user:")
    assert dict(file.entries()) == {"ada": User("ada", HASH, True, ("x", "y")), "bob": User("bob", HASH)}
    file.put(User("ada", OTHER_HASH))
    file.remove("bob")
    assert path.read_text(encoding="utf-8") == f"# who may sign in: ünï\n\nada:{OTHER_HASH}:user:\n  \n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ada", "has 4 fields"),
        (f"ada:{HASH}:user:a:b", "has 4 fields"),
        (f"ada:{HASH}:root:", "role of user ada must be admin or user"),
        ("ada:secret:user:", "hash of user ada is not argon2id's"),
        (f"a b:{HASH}:user:", "'a b' cannot be a user's name"),
        (f"default:{HASH}:user:", "cannot be a user's name"),
        (f"ada:{HASH}:user:a,,b", "'' cannot be a group's name"),
        (f"bob:{HASH}:user:", "names bob a second time"),
    ],
)
def test_a_wrong_line_is_named_by_its_number_without_its_hash(path: Path, line: str, message: str) -> None:
    file = write(path, f"# users\nbob:{HASH}:user:\n{line}\n")
    with pytest.raises(Misconfigured, match=message) as caught:
        file.entries()
    assert f"Line 3 of the password file {path}" in caught.value.message
    assert "secret" not in caught.value.message
    assert "$" not in caught.value.message


def test_a_line_that_is_not_utf8_is_named(path: Path) -> None:
    path.write_bytes(b"# a\n\xff\n")
    with pytest.raises(Misconfigured, match=r"Line 2 of .* is not UTF-8"):
        PasswordFile(path).entries()


def test_unreadable_file_is_misconfigured(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot be read"):
        PasswordFile(tmp_path).entries()


def test_a_file_others_may_read_is_warned_of_once_and_used(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(path, f"ada:{HASH}:user:\n")
    file.entries()
    assert not caplog.records
    path.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        assert "ada" in file.entries()
        assert "ada" in file.entries()
    assert [record.getMessage() for record in caplog.records] == [
        f"Users other than its owner can access the password file {path}; chmod 600 it."
    ]


def test_a_file_that_breaks_is_not_served_from_what_was_read_before(path: Path) -> None:
    file = write(path, f"ada:{HASH}:user:\n")
    assert "ada" in file.entries()
    write(path, "broken line\n")
    for _ in range(2):
        with pytest.raises(Misconfigured, match="Line 1"):
            file.entries()
    path.unlink()
    with pytest.raises(Misconfigured, match=r"There is no password file .*hsparse user add"):
        file.entries()
    write(path, f"bob:{HASH}:user:\n")
    assert list(file.entries()) == ["bob"]


def test_a_written_file_is_private_and_leaves_nothing_beside_it(path: Path) -> None:
    write(path, f"ada:{HASH}:user:\n")
    path.chmod(0o644)
    PasswordFile(path).put(User("bob", HASH))
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_users_cannot_be_changed_in_passing(path: Path) -> None:
    with pytest.raises(TypeError):
        write(path, "").entries()["ada"] = User("ada", HASH)  # type: ignore[index]


def test_an_edit_under_way_refuses_another_and_is_left_alone(path: Path) -> None:
    file = write(path, f"ada:{HASH}:user:\n")
    lock = path.with_name("passwords.new")
    lock.write_text("half")
    with pytest.raises(Conflict, match=r"remove .*passwords\.new"):
        file.put(User("bob", HASH))
    assert lock.read_text() == "half"
    assert path.read_text() == f"ada:{HASH}:user:\n"


def test_an_edit_that_fails_changes_nothing_and_frees_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(path, f"ada:{HASH}:user:\n")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(Misconfigured, match="No space left on device"):
            file.put(User("bob", HASH))
    assert path.read_text() == f"ada:{HASH}:user:\n"
    assert list(path.parent.iterdir()) == [path]
    assert file.put(User("bob", HASH)) is False


def test_a_broken_file_is_not_edited(path: Path) -> None:
    file = write(path, "broken\n")
    with pytest.raises(Misconfigured, match="Line 1"):
        file.put(User("bob", HASH))
    assert path.read_text() == "broken\n"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot be written"):
        PasswordFile(tmp_path / "no" / "file").put(User("bob", HASH))


def test_an_edit_through_a_symbolic_link_changes_its_target(path: Path, tmp_path: Path) -> None:
    write(path, f"ada:{HASH}:user:\n")
    link = tmp_path / "link"
    link.symlink_to(path)
    PasswordFile(link).put(User("bob", HASH))
    assert link.is_symlink()
    assert list(PasswordFile(path).entries()) == ["ada", "bob"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_edit_by_root_keeps_the_owner(path: Path) -> None:
    write(path, f"ada:{HASH}:user:\n")
    os.chown(path, 4321, 4321)
    PasswordFile(path).put(User("bob", HASH))
    assert (path.stat().st_uid, path.stat().st_gid) == (4321, 4321)


def test_tries_are_limited_until_the_time_is_over() -> None:
    clock = ManualClock()
    limit = TryLimit(2, 60.0, 10, clock)
    limit.count("a")
    clock.time += 20
    assert limit.wait("a") == 0
    limit.count("a")
    assert limit.wait("a") == 40
    assert limit.wait("b") == 0
    clock.time += 40
    assert limit.wait("a") == 0
    limit.count("a")
    assert limit.wait("a") == 0


def test_what_succeeds_is_forgiven() -> None:
    limit = TryLimit(2, 60.0, 10, ManualClock())
    for _ in range(2):
        limit.count("a")
    limit.forgive("a")
    assert limit.wait("a") == 0
    limit.count("a")
    assert limit.wait("a") == 60
    limit.forget("a")
    limit.forgive("a")
    assert limit.wait("a") == 0


def test_so_many_names_are_kept() -> None:
    limit = TryLimit(1, 60.0, 2, ManualClock())
    for name in "abc":
        limit.count(name)
    assert [limit.wait(name) > 0 for name in "abc"] == [False, True, True]
