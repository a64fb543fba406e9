"""Authentication by each scheme, and credentials of the Basic scheme."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from hypothesis import given
from hypothesis import strategies as st

from hsparse.api_keys.api_key import KeyAuthenticator, KeyFile, KeyScheme, Role, new_key
from hsparse.errors import Misconfigured, Unauthenticated
from hsparse.model.acl import ANONYMOUS, Principal
from hsparse.sn.auth.authenticator import BASIC, BEARER, Authenticator, SchemeAuthenticator, SingleUser
from hsparse.sn.auth.line_file import basic_credential
from hsparse.sn.auth.password_authenticator import PasswordAuthenticator
from hsparse.sn.auth.password_file import PasswordFile, User
from hsparse.sn.auth.password_hash import PasswordHash
from hsparse.sn.auth.roles import GroupFile, Roles
from tests.support.characters import CHARACTERS
from tests.testing.manual_clock import ManualClock


@pytest.mark.parametrize(
    "pair", [("ada", "secret"), ("ada", "a:b"), ("ada", ""), ("ada", "gehe\N{DEGREE SIGN}m")]
)
def test_there_and_back(pair: tuple[str, str]) -> None:
    assert basic_credential(base64.b64encode(":".join(pair).encode()).decode()) == pair


@pytest.mark.parametrize(
    "text", ["e!", "****", base64.b64encode(b"\xff:x").decode(), base64.b64encode(b"ada").decode()]
)
def test_what_is_none_is_not_repeated(text: str) -> None:
    with pytest.raises(Unauthenticated, match="RFC 7617") as raised:
        basic_credential(text)
    assert text not in raised.value.message
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


HASHES = PasswordHash(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture
def passwords(tmp_path: Path) -> PasswordAuthenticator:
    file = PasswordFile(tmp_path / "passwords")
    file.put(User("ada", HASHES.hash("lovelace")))
    return PasswordAuthenticator(file, ManualClock(), HASHES)


@pytest.fixture
def key(tmp_path: Path) -> str:
    text, key = new_key(ManualClock(), "laptop", "bob", Role.USER, ("staff",), None)
    KeyFile(tmp_path / "keys").add(key)
    return text


@pytest.fixture
def keys(key: str, tmp_path: Path) -> KeyAuthenticator:
    return KeyAuthenticator(KeyFile(tmp_path / "keys"), ManualClock())


async def test_it_is_an_authenticator(passwords: PasswordAuthenticator) -> None:
    authenticator: Authenticator = SchemeAuthenticator(passwords=passwords)
    assert await authenticator.principal(None) is ANONYMOUS
    assert await authenticator.principal(basic("ada", "lovelace")) == Principal("ada")


async def test_a_key_is_a_bearer_token_and_the_password_of_its_user(
    passwords: PasswordAuthenticator, keys: KeyAuthenticator, key: str
) -> None:
    authenticator = SchemeAuthenticator(passwords=passwords, schemes=(KeyScheme(keys),))
    bob = Principal("bob", groups=frozenset({"staff"}))
    for header in (f"Bearer {key}", f"bearer  {key}", basic("bob", key)):
        assert await authenticator.principal(header) == bob
    for header in (basic("ada", key), basic("", key), f"Bearer {key[:-4]}0000", f"Bearer x{key}"):
        with pytest.raises(Unauthenticated) as caught:
            await authenticator.principal(header)
        assert key not in caught.value.message


async def test_a_part_of_a_key_is_told_as_such(keys: KeyAuthenticator, key: str) -> None:
    for part in (key[:-1], key[4:], ""):
        with pytest.raises(Unauthenticated, match="not a whole API key"):
            await SchemeAuthenticator(schemes=(KeyScheme(keys),)).principal(f"Bearer {part}")


class AnyToken(KeyScheme):
    """A scheme whose credentials have no form of their own."""

    is_general = True

    def owns(self, text: str, *, whole: bool) -> bool:
        return False

    async def principal(self, text: str, user: str | None = None) -> Principal:
        return Principal(f"of {text}")


@pytest.mark.parametrize("step", [1, -1])
async def test_what_is_no_key_is_a_token_in_whatever_order(
    keys: KeyAuthenticator, key: str, step: int
) -> None:
    authenticator = SchemeAuthenticator(schemes=(KeyScheme(keys), AnyToken(keys))[::step])
    assert await authenticator.principal("Bearer a.b.c") == Principal("of a.b.c")
    assert (await authenticator.principal(f"Bearer {key}")).name == "bob"
    with pytest.raises(Unauthenticated, match="not a whole API key"):
        await authenticator.principal(f"Bearer {key[:-1]}")


async def test_without_keys_a_key_is_a_password_like_any(passwords: PasswordAuthenticator, key: str) -> None:
    authenticator = SchemeAuthenticator(passwords=passwords)
    with pytest.raises(Unauthenticated, match="user name or the password"):
        await authenticator.principal(basic("bob", key))
    with pytest.raises(
        Unauthenticated, match="not supported by this server; use Basic with a user name and password"
    ):
        await authenticator.principal(f"Bearer {key}")


async def test_without_passwords_they_are_refused(keys: KeyAuthenticator) -> None:
    with pytest.raises(Unauthenticated, match="takes no passwords; use Bearer with an API key"):
        await SchemeAuthenticator(schemes=(KeyScheme(keys),)).principal(basic("ada", "lovelace"))


def test_challenges_name_the_schemes_there_are(
    passwords: PasswordAuthenticator, keys: KeyAuthenticator
) -> None:
    assert SchemeAuthenticator(passwords=passwords).challenges == (BASIC,)
    assert SchemeAuthenticator(passwords=passwords, schemes=(KeyScheme(keys),)).challenges == (BASIC, BEARER)
    assert SchemeAuthenticator().challenges == ()


async def test_the_standing_of_a_user_is_added(keys: KeyAuthenticator, key: str) -> None:
    authenticator = SchemeAuthenticator(schemes=(KeyScheme(keys),), roles=Roles(admins=("g:staff",)))
    assert (await authenticator.principal(f"Bearer {key}")).admin
    assert await authenticator.principal(None) is ANONYMOUS


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("Bearer secret", "Bearer tokens are not supported"),
        ("bearer", "Bearer tokens are not supported"),
        ("Digest secret", "scheme is not supported"),
        ("", "scheme is not supported"),
        ("Basic", "no colon"),
        ("Basic s*e*c*r*e*t", "not base64"),
        ("Basic c2VjcmV", "not base64"),
        ("Basic secrét", "not base64"),
        ("Basic " + base64.b64encode(b"ada:secret\xff").decode(), "not base64 of UTF-8"),
        ("Basic " + base64.b64encode(b"secret").decode(), "no colon"),
    ],
)
async def test_malformed_headers_are_refused_without_being_repeated(
    passwords: PasswordAuthenticator, header: str, message: str
) -> None:
    with pytest.raises(Unauthenticated, match=message) as caught:
        await SchemeAuthenticator(passwords=passwords).principal(header)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "secr" not in str(caught.value)


@given(st.text(CHARACTERS, max_size=40) | st.text(CHARACTERS, max_size=40).map("Bearer ".__add__))
def test_any_header_is_answered_or_refused(header: str) -> None:
    async def ask() -> None:
        passwords = PasswordAuthenticator(PasswordFile(Path("nowhere")), ManualClock(), HASHES)
        keys = KeyAuthenticator(KeyFile(Path("nowhere")), ManualClock())
        with pytest.raises((Unauthenticated, Misconfigured)):
            await SchemeAuthenticator(passwords=passwords, schemes=(KeyScheme(keys),)).principal(header)

    asyncio.run(ask())


def test_users_are_those_of_all_files_and_the_settings(
    passwords: PasswordAuthenticator, keys: KeyAuthenticator, tmp_path: Path
) -> None:
    (tmp_path / "groups").write_text("staff: ada eve\n")
    roles = Roles(GroupFile(tmp_path / "groups"), ("root", "g:ops"))
    assert SchemeAuthenticator(passwords=passwords, schemes=(KeyScheme(keys),), roles=roles).users() == [
        Principal("ada", groups=frozenset({"staff"})),
        Principal("bob"),
        Principal("eve", groups=frozenset({"staff"})),
        Principal("root", admin=True),
    ]
    assert SchemeAuthenticator(passwords=passwords).users() == [Principal("ada")]
    assert SingleUser("me").users() == [Principal("me", admin=True)]
