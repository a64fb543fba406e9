"""API keys, the key file, and signing in by keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.api_keys.api_key import (
    UNKNOWN,
    ApiKey,
    KeyAuthenticator,
    KeyFile,
    Role,
    id_of,
    is_api_key,
    new_key,
    written_time,
)
from hsparse.clock import SystemClock
from hsparse.errors import BadRequest, Conflict, Misconfigured, NotFound, Unauthenticated
from hsparse.model.acl import Principal
from hsparse.sn.auth.password_file import PasswordFile, User
from tests.testing.manual_clock import ManualClock

NAMES = st.text("abcXYZ019._-@", min_size=1, max_size=11).filter(
    lambda name: name not in ("default", "anonymous", ".", "..")
)
TIMES = st.integers(0, 4_000_000_000)
KEYS = st.builds(
    ApiKey,
    st.text("0123456789abcdef", min_size=12, max_size=12),
    st.text("0123456789abcdef", min_size=64, max_size=64),
    NAMES,
    st.sampled_from(Role),
    st.lists(NAMES, max_size=3).map(tuple),
    TIMES,
    st.none() | TIMES,
    NAMES,
)


@given(KEYS)
def test_a_line_reads_back_as_its_key(key: ApiKey) -> None:
    assert ApiKey.of_line(key.line) == key


def test_a_new_key_is_not_in_what_is_kept_of_it() -> None:
    text, key = new_key(SystemClock(), "laptop", "ann", Role.ACCOUNT, (), None)
    assert is_api_key(text)
    assert id_of(text) == key.id
    assert key.matches(text)
    secret = text.rpartition("_")[2]
    assert secret not in key.line
    assert secret not in repr(key)
    assert key.digest not in repr(key)
    assert new_key(SystemClock(), "laptop", "ann", Role.ACCOUNT, (), None)[0] != text


def test_only_the_whole_text_matches() -> None:
    text, key = new_key(ManualClock(), "laptop", "ann", Role.USER, (), None)
    for other in (text[:-1], text + "0", text.upper(), text[:-1] + ("0" if text[-1] != "0" else "1"), ""):
        assert not key.matches(other)
        assert not is_api_key(other) or other[-1] != text[-1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a:b", "has 8 fields"),
        ("{id}:{digest}:ann:root::20260101T000000Z:never:x", "role of key x"),
        ("{id}:secret:ann:user::20260101T000000Z:never:x", "digest 64"),
        ("secret:{digest}:ann:user::20260101T000000Z:never:x", "id has 12"),
        ("{id}:{digest}:a/b:user::20260101T000000Z:never:x", "user's name"),
        ("{id}:{digest}:ann:user:a b:20260101T000000Z:never:x", "group's name"),
        ("{id}:{digest}:ann:user::never:never:x", "no time of creation"),
        ("{id}:{digest}:ann:user::20260101T000000Z:tomorrow:x", "'tomorrow' is not a time"),
        ("{id}:{digest}:ann:user::20260101T000000Z:never:a b", "key's name"),
        ("{id}:{digest}:ann:user::20260101T000000Z:never:{id}", "key's name"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_without_its_digest(line: str, message: str) -> None:
    digest = "ab" * 32
    with pytest.raises(BadRequest, match=message) as caught:
        ApiKey.of_line(line.format(id="0123456789ab", digest=digest))
    assert digest not in caught.value.message
    assert "secret" not in caught.value.message


def test_times_are_utc() -> None:
    assert written_time(0) == "19700101T000000Z"
    assert written_time(None) == "never"


def key(name: str, user: str = "ann") -> ApiKey:
    return new_key(SystemClock(), name, user, Role.USER, (), None)[1]


def test_keys_are_added_and_revoked(tmp_path: Path) -> None:
    file, served = KeyFile(tmp_path / "keys"), KeyFile(tmp_path / "keys")
    one, two, three = key("one"), key("two"), key("three", "bob")
    for each in (one, two, three):
        file.add(each)
    assert dict(served.entries()) == {each.id: each for each in (one, two, three)}
    assert file.revoke(lambda each: each.user == "ann") == [one, two]
    assert list(served.served().values()) == [three]
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600


def test_a_name_is_one_keys(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    file.add(key("one"))
    with pytest.raises(Conflict, match=r"a key named one .* revoke it"):
        file.add(key("one", "bob"))


def test_a_line_written_by_hand_is_revoked_too(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    file.path.write_text(f"0123456789ab:{'0' * 64}:ann:user::2026101T000000Z:never:one\n")
    (found,) = file.revoke(lambda each: each.name == "one")
    assert found.line not in file.path.read_text(), "its time is written otherwise"
    assert dict(file.entries()) == {}


def test_revoking_what_is_not_there_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    file = KeyFile(path)
    file.add(key("one"))
    path.write_text("# ours\n" + path.read_text())
    before = path.read_text()
    with pytest.raises(NotFound, match="hsparse key list"):
        file.revoke(lambda each: False)
    assert path.read_text() == before
    file.revoke(lambda each: True)
    assert path.read_text() == "# ours\n"


def test_what_is_missing_or_wrong_is_told(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    with pytest.raises(Misconfigured, match=r"There is no key file .* make one with 'hsparse key add'"):
        file.entries()
    file.path.write_text("a:b\n")
    with pytest.raises(Misconfigured, match="Line 1 of the key file"):
        file.entries()
    with pytest.raises(Misconfigured, match="its log says why"):
        file.served()


HASH = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"


class Desk:
    """A key authenticator with its files; ann has a line in the password file."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.file = KeyFile(folder / "keys")
        self.accounts = PasswordFile(folder / "passwords")
        self.accounts.put(User("ann", HASH, groups=("beam",)))
        self.authenticator = KeyAuthenticator(self.file, self.clock, self.accounts)
        self.principal = self.authenticator.principal

    def add(self, name: str, user: str, role: Role, *groups: str, expires: int | None = None) -> str:
        text, key = new_key(self.clock, name, user, role, groups, expires)
        self.file.add(key)
        return text

    def refused(self, text: str, user: str | None = None) -> str:
        with pytest.raises(Unauthenticated) as caught:
            self.principal(text, user)
        assert text not in caught.value.message
        return caught.value.message


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_key_acts_as_its_user(desk: Desk) -> None:
    assert desk.principal(desk.add("a", "bob", Role.USER, "x")) == Principal("bob", groups=frozenset("x"))
    assert desk.principal(desk.add("b", "root", Role.ADMIN)) == Principal("root", admin=True)
    text = desk.add("c", "ann", Role.ACCOUNT)
    assert desk.principal(text, "ann") == Principal("ann", groups=frozenset({"beam"}))
    assert desk.refused(text, "bob") == UNKNOWN


def test_what_is_not_known_is_refused_alike(desk: Desk) -> None:
    text = desk.add("a", "bob", Role.USER)
    other = text[:-4] + ("0000" if not text.endswith("0000") else "1111")
    unknown, _ = new_key(desk.clock, "b", "bob", Role.USER, (), None)
    assert desk.refused(other) == desk.refused(unknown) == UNKNOWN


def test_a_revoked_key_is_refused_at_once(desk: Desk) -> None:
    text = desk.add("a", "bob", Role.USER)
    assert desk.principal(text)
    KeyFile(desk.file.path).revoke(lambda key: key.name == "a")
    assert desk.refused(text) == UNKNOWN


def test_an_expired_key_is_refused(desk: Desk) -> None:
    text = desk.add("a", "bob", Role.USER, expires=int(desk.clock.time) + 100)
    desk.clock.time += 99
    assert desk.principal(text)
    desk.clock.time += 1
    assert "The API key a expired at 20010909T014820Z" in desk.refused(text)


def test_an_account_is_what_the_password_file_says_now(desk: Desk) -> None:
    text = desk.add("a", "ann", Role.ACCOUNT)
    desk.accounts.put(User("ann", HASH, admin=True))
    assert desk.principal(text) == Principal("ann", admin=True)
    desk.accounts.remove("ann")
    assert "not in the password file" in desk.refused(text)


def test_an_account_without_a_password_file_is_nobody(desk: Desk) -> None:
    text = desk.add("a", "ann", Role.ACCOUNT)
    alone = KeyAuthenticator(desk.file, desk.clock)
    with pytest.raises(Unauthenticated, match="not in the password file"):
        alone.principal(text)
