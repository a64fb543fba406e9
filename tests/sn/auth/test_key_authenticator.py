from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.clock import ManualClock
from hsparse.errors import Unauthenticated
from hsparse.model.principal import Principal
from hsparse.sn.auth.api_key import Role, new_key
from hsparse.sn.auth.key_authenticator import UNKNOWN, KeyAuthenticator
from hsparse.sn.auth.key_file import KeyFile
from hsparse.sn.auth.password_file import PasswordFile, User

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
