"""Authentication by each scheme; API keys and their file; names, groups and admins."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from hypothesis import given
from hypothesis import strategies as st

from hsparse.api_keys.api_key import (
    UNKNOWN,
    ApiKey,
    KeyAuthenticator,
    KeyFile,
    KeyScheme,
    Role,
    id_of,
    is_api_key,
    new_key,
)
from hsparse.clock import SystemClock
from hsparse.errors import BadRequest, Conflict, Misconfigured, NotFound, Unauthenticated
from hsparse.model.acl import ANONYMOUS, Principal
from hsparse.sn.auth.authenticator import BASIC, BEARER, SchemeAuthenticator, SingleUser
from hsparse.sn.auth.password_authenticator import PasswordAuthenticator
from hsparse.sn.auth.password_file import PasswordFile, User
from hsparse.sn.auth.password_hash import PasswordHash
from hsparse.sn.auth.roles import GroupFile, Roles, check_group_name, check_user_name, is_user_name
from tests.support.characters import CHARACTERS
from tests.testing.manual_clock import ManualClock

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
        with pytest.raises(Unauthenticated, match="API key is not complete"):
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
    with pytest.raises(Unauthenticated, match="API key is not complete"):
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


@pytest.mark.parametrize("name", ["a", "Ada.L_0-9@x", "a" * 128, "..."])
def test_names_that_can_be(name: str) -> None:
    assert is_user_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "a" * 129, "default", "anonymous", "g:staff", ".", "..", "a b", "a/b", "é", "٣", "a\n", "a:b", "#a"],
)
def test_names_that_cannot_be(name: str) -> None:
    assert not is_user_name(name)
    with pytest.raises(BadRequest, match="cannot be a user's name"):
        check_user_name(name)


@pytest.mark.parametrize("group", ["", "a,b", "a:b", "g:a", "a" * 129, "a\n"])
def test_groups_that_cannot_be(group: str) -> None:
    with pytest.raises(BadRequest, match="cannot be a group's name"):
        check_group_name(group)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "groups"


def test_users_are_in_the_groups_whose_lines_name_them(path: Path) -> None:
    path.write_text("# groups\nbeam: ann  bob\nstaff : bob\nempty:\n")
    file = GroupFile(path)
    file.entries()
    assert file.groups_of("ann") == {"beam"}
    assert file.groups_of("bob") == {"beam", "staff"}
    assert file.groups_of("eve") == frozenset()


def test_changes_act_at_once(path: Path) -> None:
    path.write_text("beam: ann\n")
    file = GroupFile(path)
    assert file.groups_of("ann") == {"beam"}
    path.write_text("beam: bob bob eve\n")
    assert file.groups_of("ann") == frozenset()
    assert file.groups_of("bob") == {"beam"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("beam ann", "written as group: user user"),
        ("a b: ann", "'a b' cannot be a group's name"),
        ("beam: ann,bob", "'ann,bob' cannot be a user's name"),
        ("beam: default", "'default' cannot be a user's name"),
        ("beam: ann\nbeam: bob", "names beam a second time"),
    ],
)
def test_a_wrong_line_is_named(path: Path, text: str, message: str) -> None:
    path.write_text(text)
    with pytest.raises(Misconfigured, match=message):
        GroupFile(path).entries()


ANN = Principal("ann", groups=frozenset({"beam"}))


def test_without_settings_a_principal_is_as_it_was() -> None:
    assert Roles().of(ANN) is ANN


def test_groups_of_the_file_are_added(tmp_path: Path) -> None:
    (tmp_path / "groups").write_text("staff: ann\n")
    roles = Roles(GroupFile(tmp_path / "groups"), ("g:ops",))
    assert roles.of(ANN) == Principal("ann", groups=frozenset({"beam", "staff"}))
    (tmp_path / "groups").write_text("staff: ann\nops: ann\n")
    assert roles.of(ANN).admin, "a member of an admin group, by the file"


def test_admins_are_named_or_in_a_named_group() -> None:
    assert Roles(admins=("ann",)).of(ANN).admin
    assert Roles(admins=("g:beam",)).of(ANN).admin
    for other in ("beam", "g:ann", "an", ""):
        assert Roles(admins=(other,)).of(ANN) == ANN


def test_who_is_an_admin_stays_one() -> None:
    root = Principal("root", admin=True)
    assert Roles(admins=("ann",)).of(root) is root


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
        ("a:b", "must have the 8 fields"),
        ("{id}:{digest}:ann:root::20260101T000000Z:never:x", "role of the key x"),
        ("{id}:secret:ann:user::20260101T000000Z:never:x", "digest 64"),
        ("secret:{digest}:ann:user::20260101T000000Z:never:x", "id of a key must have 12"),
        ("{id}:{digest}:a/b:user::20260101T000000Z:never:x", "user's name"),
        ("{id}:{digest}:ann:user:a b:20260101T000000Z:never:x", "group's name"),
        ("{id}:{digest}:ann:user::never:never:x", "time of creation of the key x must be a time"),
        ("{id}:{digest}:ann:user::20260101T000000Z:tomorrow:x", "'tomorrow' is not a time"),
        ("{id}:{digest}:ann:user::20260101T000000Z:never:a b", "name of a key"),
        ("{id}:{digest}:ann:user::20260101T000000Z:never:{id}", "name of a key"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_without_its_digest(line: str, message: str) -> None:
    digest = "ab" * 32
    with pytest.raises(BadRequest, match=message) as caught:
        ApiKey.of_line(line.format(id="0123456789ab", digest=digest))
    assert digest not in caught.value.message
    assert "secret" not in caught.value.message


def named_key(name: str, user: str = "ann") -> ApiKey:
    return new_key(SystemClock(), name, user, Role.USER, (), None)[1]


def test_keys_are_added_and_revoked(tmp_path: Path) -> None:
    file, served = KeyFile(tmp_path / "keys"), KeyFile(tmp_path / "keys")
    one, two, three = named_key("one"), named_key("two"), named_key("three", "bob")
    for each in (one, two, three):
        file.add(each)
    assert dict(served.entries()) == {each.id: each for each in (one, two, three)}
    assert file.revoke(lambda each: each.user == "ann") == [one, two]
    assert list(served.served().values()) == [three]
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600


def test_a_name_is_one_keys(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    file.add(named_key("one"))
    with pytest.raises(Conflict, match=r"a key named one .* revoke it"):
        file.add(named_key("one", "bob"))


def test_a_line_written_by_hand_is_revoked_too(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    file.path.write_text(f"0123456789ab:{'0' * 64}:ann:user::2026101T000000Z:never:one\n")
    (found,) = file.revoke(lambda each: each.name == "one")
    assert found.line not in file.path.read_text(), "its time is written otherwise"
    assert dict(file.entries()) == {}


def test_revoking_what_is_not_there_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    file = KeyFile(path)
    file.add(named_key("one"))
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
