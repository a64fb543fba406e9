from __future__ import annotations

import asyncio
import threading

import pytest
from argon2 import PasswordHasher, extract_parameters
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.clock import ManualClock
from hsparse.errors import BadRequest, Misconfigured
from hsparse.sn.auth.password_hash import PasswordHash, is_encoded

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
