from __future__ import annotations

import asyncio
import base64
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.errors import Busy, Misconfigured, RateLimited, Unauthenticated
from hsparse.model.acl import Principal
from hsparse.sn.auth.authenticator import SchemeAuthenticator
from hsparse.sn.auth.password_authenticator import PasswordAuthenticator, PasswordLimits
from hsparse.sn.auth.password_file import PasswordFile, User
from hsparse.sn.auth.password_hash import PasswordHash
from tests.testing.manual_clock import ManualClock


class Counted(PasswordHash):
    """Quick hashes; it notes each check, and holds them back while `open` is not set."""

    def __init__(self) -> None:
        super().__init__(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        self.checked: list[str] = []
        self.open = asyncio.Event()
        self.open.set()

    async def verify(self, encoded: str, password: str) -> bool:
        self.checked.append(encoded)
        await self.open.wait()
        return await super().verify(encoded, password)


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class Desk:
    """An authenticator with all it needs; ada is an admin, bob is not."""

    def __init__(self, folder: Path, limits: PasswordLimits | None = None) -> None:
        self.clock = ManualClock()
        self.hashes = Counted()
        self.file = PasswordFile(folder / "passwords")
        self.put("ada", "lovelace", admin=True)
        self.put("bob", "b:ö b", groups=("staff",))
        self.authenticator = PasswordAuthenticator(self.file, self.clock, self.hashes, limits)
        self.sign_in = SchemeAuthenticator(passwords=self.authenticator).principal

    def put(self, name: str, password: str, admin: bool = False, groups: tuple[str, ...] = ()) -> None:
        self.file.put(User(name, self.hashes.hash(password), admin, groups))

    async def guess(self, name: str, count: int, kind: type[Exception] = Unauthenticated) -> None:
        """Guess the password of a name so often, wrongly."""
        for number in range(count):
            await self.refused(name, f"guess-{number}", kind)

    async def refused(self, name: str, password: str, kind: type[Exception] = Unauthenticated) -> str:
        with pytest.raises(kind) as caught:
            await self.sign_in(basic(name, password))
        shown = "".join(traceback.format_exception(caught.value))
        assert password not in shown
        return str(caught.value)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_right_passwords_give_the_principal(desk: Desk) -> None:
    assert await desk.sign_in(basic("ada", "lovelace")) == Principal("ada", admin=True)
    assert await desk.sign_in(basic("bob", "b:ö b")) == Principal("bob", groups=frozenset({"staff"}))
    assert await desk.sign_in("bAsIc  " + basic("ada", "lovelace")[6:]) == Principal("ada", admin=True)


async def test_wrong_passwords_and_unknown_users_are_told_alike_after_one_check(desk: Desk) -> None:
    wrong = await desk.refused("ada", "LOVELACE-?")
    unknown = await desk.refused("eve", "LOVELACE-?")
    assert wrong == unknown
    assert len(desk.hashes.checked) == 2
    known, dummy = desk.hashes.checked
    assert known == desk.file.entries()["ada"].hash
    assert known.rpartition("$")[0].rpartition("$")[0] == dummy.rpartition("$")[0].rpartition("$")[0]


@pytest.mark.parametrize("name", ["default", "anonymous", "..", "", "a" * 200])
async def test_names_no_user_can_have_are_refused_without_a_check(desk: Desk, name: str) -> None:
    await desk.refused(name, "lovelace")
    assert desk.hashes.checked == []


async def test_a_verified_credential_is_not_checked_again_until_it_expires(desk: Desk) -> None:
    for _ in range(5):
        await desk.sign_in(basic("ada", "lovelace"))
    assert len(desk.hashes.checked) == 1
    desk.clock.time += 299
    await desk.sign_in(basic("ada", "lovelace"))
    assert len(desk.hashes.checked) == 1
    desk.clock.time += 1
    await desk.sign_in(basic("ada", "lovelace"))
    assert len(desk.hashes.checked) == 2


async def test_a_remembered_credential_does_not_pass_for_another(desk: Desk) -> None:
    await desk.sign_in(basic("ada", "lovelace"))
    for name, password in (("bob", "lovelace"), ("ada", "lovelace2"), ("ada", "lovelac")):
        await desk.refused(name, password)


async def test_edits_of_the_file_act_at_once(desk: Desk) -> None:
    await desk.sign_in(basic("ada", "lovelace"))
    desk.file.put(User("ada", desk.file.entries()["ada"].hash, admin=False, groups=("demoted",)))
    assert await desk.sign_in(basic("ada", "lovelace")) == Principal("ada", groups=frozenset({"demoted"}))
    desk.put("ada", "byron")
    await desk.refused("ada", "lovelace")
    await desk.sign_in(basic("ada", "byron"))
    desk.file.remove("ada")
    await desk.refused("ada", "byron")


async def test_what_is_remembered_is_bounded(tmp_path: Path) -> None:
    desk = Desk(tmp_path, PasswordLimits(remember_count=1))
    for name, password in [("ada", "lovelace"), ("bob", "b:ö b"), ("bob", "b:ö b"), ("ada", "lovelace")]:
        await desk.sign_in(basic(name, password))
    assert len(desk.hashes.checked) == 3


async def test_requests_side_by_side_share_one_check(desk: Desk) -> None:
    desk.hashes.open.clear()
    right = [asyncio.create_task(desk.sign_in(basic("ada", "lovelace"))) for _ in range(20)]
    wrong = [asyncio.create_task(desk.refused("ada", "guess")) for _ in range(20)]
    await settled()
    assert len(desk.hashes.checked) == 2
    desk.hashes.open.set()
    assert await asyncio.gather(*right) == [Principal("ada", admin=True)] * 20
    await asyncio.gather(*wrong)
    assert len(desk.hashes.checked) == 2


async def test_a_cancelled_request_does_not_fail_the_others(desk: Desk) -> None:
    desk.hashes.open.clear()
    first, second = (asyncio.create_task(desk.sign_in(basic("ada", "lovelace"))) for _ in range(2))
    await settled()
    first.cancel()
    await settled()
    assert first.cancelled()
    desk.hashes.open.set()
    assert await second == Principal("ada", admin=True)
    assert len(desk.hashes.checked) == 1


async def test_too_many_waiting_is_busy_and_passes(tmp_path: Path) -> None:
    desk = Desk(tmp_path, PasswordLimits(waiting=2))
    desk.hashes.open.clear()
    first = [asyncio.create_task(desk.sign_in(basic("ada", "lovelace"))) for _ in range(3)]
    second = asyncio.create_task(desk.refused("eve", "guess"))
    await settled()
    assert "Too many sign-ins" in await desk.refused("bob", "b:ö b", Busy)
    desk.hashes.open.set()
    await asyncio.gather(*first, second)
    await desk.sign_in(basic("bob", "b:ö b"))


@pytest.mark.parametrize("name", ["ada", "eve"])
async def test_failures_are_limited_a_user_and_a_minute(desk: Desk, name: str) -> None:
    for number in range(10):
        await desk.refused(name, f"guess-{number}")
        desk.clock.time += 1
    assert len(desk.hashes.checked) == 10
    assert "10 failed sign-ins" in await desk.refused(name, "guess-10", RateLimited)
    assert len(desk.hashes.checked) == 10
    await desk.sign_in(basic("bob", "b:ö b"))
    desk.clock.time += 49
    await desk.refused(name, "guess-11", RateLimited)
    desk.clock.time += 1
    await desk.refused(name, "guess-12")


async def test_guesses_side_by_side_are_limited_too(desk: Desk) -> None:
    desk.hashes.open.clear()
    guesses = [asyncio.create_task(desk.sign_in(basic("ada", f"guess-{i}"))) for i in range(30)]
    await settled()
    desk.hashes.open.set()
    results = await asyncio.gather(*guesses, return_exceptions=True)
    assert [type(result) for result in results] == [Unauthenticated] * 10 + [RateLimited] * 20


async def test_who_is_signed_in_is_not_locked_out_by_a_guesser(desk: Desk) -> None:
    await desk.sign_in(basic("ada", "lovelace"))
    await desk.guess("ada", 12, Exception)
    assert await desk.sign_in(basic("ada", "lovelace")) == Principal("ada", admin=True)


async def test_a_success_forgives_failures(desk: Desk) -> None:
    await desk.guess("ada", 9)
    await desk.sign_in(basic("ada", "lovelace"))
    await desk.guess("ada", 10)
    await desk.refused("ada", "guess-10", RateLimited)


async def test_failures_are_kept_for_a_bounded_number_of_names(tmp_path: Path) -> None:
    desk = Desk(tmp_path, PasswordLimits(failures=1, failure_count=2))
    await desk.refused("eve", "guess")
    await desk.refused("eve", "guess", RateLimited)
    await desk.refused("mal", "guess")
    await desk.refused("tom", "guess")
    await desk.refused("mal", "guess", RateLimited)
    await desk.refused("eve", "guess")


async def test_a_window_that_begins_anew_is_not_the_oldest(tmp_path: Path) -> None:
    desk = Desk(tmp_path, PasswordLimits(failures=1, failure_count=2))
    await desk.refused("eve", "guess")
    desk.clock.time += 30
    await desk.refused("mal", "guess")
    desk.clock.time += 30
    await desk.refused("eve", "guess")
    await desk.refused("tom", "guess")
    await desk.refused("eve", "guess", RateLimited)
    await desk.refused("mal", "guess")


async def test_an_unusable_file_is_logged_once_and_not_told(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.file.path.write_text("broken line\n")
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            with pytest.raises(Misconfigured, match="its log says why") as caught:
                await desk.sign_in(basic("ada", "lovelace"))
            assert str(desk.file.path) not in caught.value.message
    assert len(caplog.records) == 1
    assert f"Line 1 of the password file {desk.file.path}" in caplog.text


async def test_an_unusable_hash_is_misconfigured_and_can_be_mended(desk: Desk) -> None:
    desk.file.put(User("ada", "$argon2id$v=19$m=0,t=1,p=1$YQ$YQ"))
    await desk.refused("ada", "lovelace", Misconfigured)
    desk.put("ada", "lovelace")
    await desk.sign_in(basic("ada", "lovelace"))


async def test_nothing_is_logged_of_a_password(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await desk.sign_in(basic("ada", "lovelace"))
        await desk.refused("ada", "guess")
    assert "lovelace" not in caplog.text
    assert "guess" not in caplog.text


@contextmanager
def address(text: str) -> Iterator[None]:
    """The context of a request from an address."""
    token = begin_trace(RequestTrace("id", queue_user=text))
    try:
        yield
    finally:
        end_trace(token)


async def test_a_stranger_locks_nobody_out_elsewhere(desk: Desk) -> None:
    with address("stranger"):
        await desk.guess("ada", 10)
        await desk.refused("ada", "lovelace", RateLimited)
    with address("home"):
        assert (await desk.sign_in(basic("ada", "lovelace"))).name == "ada"


async def test_made_up_names_are_limited_by_address_before_they_cost_a_check(tmp_path: Path) -> None:
    desk = Desk(tmp_path, PasswordLimits(address_failures=5))
    with address("stranger"):
        for number in range(5):
            await desk.refused(f"name{number}", "guess")
        checked = len(desk.hashes.checked)
        assert "from this address" in await desk.refused("another", "guess", RateLimited)
        assert len(desk.hashes.checked) == checked
    with address("home"):
        for _ in range(10):  # what succeeds does not count
            desk.clock.time += 301
            assert (await desk.sign_in(basic("ada", "lovelace"))).name == "ada"


async def test_one_address_does_not_take_all_places_to_wait(tmp_path: Path) -> None:
    desk = Desk(tmp_path, PasswordLimits(waiting=4, waiting_each=3))
    desk.hashes.open.clear()
    with address("stranger"):
        flood = [asyncio.create_task(desk.sign_in(basic(f"name{number}", "guess"))) for number in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await desk.refused("name9", "guess", Busy)
    with address("home"):
        waiting = asyncio.create_task(desk.sign_in(basic("ada", "lovelace")))
        await asyncio.sleep(0)
    desk.hashes.open.set()
    assert (await waiting).name == "ada"
    await asyncio.gather(*flood, return_exceptions=True)
    with address("stranger"):
        await desk.refused("name9", "guess")


async def test_many_addresses_do_not_take_the_places_of_who_signed_in_from_where_they_are(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, PasswordLimits(waiting=4, waiting_each=3, waiting_known=1))
    with address("home"):
        await desk.sign_in(basic("ada", "lovelace"))
    desk.clock.time += 301  # the credential is no longer remembered
    desk.hashes.open.clear()
    flood = []
    for number in range(4):
        with address(f"2001:db8:{number}::/64"):
            flood.append(asyncio.create_task(desk.sign_in(basic(f"name{number}", "guess"))))
            await settled()
    with address("elsewhere"):  # guesses at a name do not take its place
        await desk.refused("ada", "guess", Busy)
    with address("home"):
        await desk.refused("bob", "b:ö b", Busy)
        waiting = asyncio.create_task(desk.sign_in(basic("ada", "lovelace")))
        await settled()
        await desk.refused("ada", "guess", Busy)
    desk.hashes.open.set()
    assert (await waiting).name == "ada"
    await asyncio.gather(*flood, return_exceptions=True)


async def test_a_place_is_kept_for_a_day(tmp_path: Path) -> None:
    desk = Desk(tmp_path, PasswordLimits(waiting=0))
    await desk.refused("ada", "lovelace", Busy)
    desk.authenticator._limits = PasswordLimits()
    await desk.sign_in(basic("ada", "lovelace"))
    desk.authenticator._limits = PasswordLimits(waiting=0)
    for seconds, known in ((86000, True), (86399, True), (86401, False)):
        desk.clock.time += seconds
        if known:
            await desk.sign_in(basic("ada", "lovelace"))
        else:
            await desk.refused("ada", "lovelace", Busy)
