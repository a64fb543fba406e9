from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.client.http.retrying_client import BUSY_SECONDS, MAX_TRIES, RetryingClient
from hsparse.concurrency.attempts import CLIENT, Backoff
from hsparse.errors import Busy, Conflict, HsparseError, RateLimited
from tests.testing.manual_clock import ManualClock


class Scripted(Connection):
    """A connection that answers from a list: errors are raised."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__("http://localhost:1")
        self.answers = answers

    def json(self, method: str, path: str, body: Any = None, **params: object) -> dict[str, Any]:
        answer = self.answers.pop(0)
        if isinstance(answer, HsparseError):
            raise answer
        return {"answer": answer}


def limited(seconds: float) -> RateLimited:
    return RateLimited("slower", seconds)


class Latest(ManualClock):
    """Has the largest of random numbers."""

    def token(self, nbytes: int) -> bytes:
        return b"\xff" * nbytes


def asked(answers: list[Any], clock: ManualClock) -> tuple[list[float], Any]:
    """Return the pauses that are made until there is an answer, and it."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.time += seconds

    server = RetryingClient(lambda: Scripted(answers), sleep, clock)
    try:
        return slept, server.json("PUT", "/")
    except HsparseError as error:
        return slept, error
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answers", "pauses"),
    [
        ([1], []),
        ([*(Busy("full") for _ in range(4)), 1], [1.0, 1.0, 2.0, 4.0]),
        ([Unreachable("away"), Unreachable("away"), 1], [0.5, 1.0]),
        ([limited(7), limited(500), 1], [7.0, CLIENT.longest]),
    ],
)
def test_a_server_that_is_busy_is_asked_again(answers: list[Any], pauses: list[float]) -> None:
    assert asked([*answers], ManualClock()) == (pytest.approx(pauses), {"answer": 1})
    longest = [
        one if isinstance(answer, Unreachable) else 1.5 * one
        for answer, one in zip(answers, pauses, strict=False)
    ]
    assert asked([*answers], Latest()) == (pytest.approx(longest), {"answer": 1})


@pytest.mark.parametrize("kind", [Busy, RateLimited])
def test_a_server_that_is_busy_is_waited_for_some_minutes(kind: type[HsparseError]) -> None:
    slept, error = asked([kind("full") for _ in range(1000)], ManualClock())
    assert isinstance(error, kind)
    assert BUSY_SECONDS - CLIENT.longest < sum(slept) <= BUSY_SECONDS
    assert len(slept) < 20


def test_a_server_that_is_away_is_not() -> None:
    answers: list[Any] = [Unreachable("away") for _ in range(MAX_TRIES + 1)]
    assert isinstance(asked(answers, ManualClock())[1], Unreachable)
    assert len(answers) == 1


def refused() -> Unreachable:
    error = Unreachable("nobody listens")
    error.__cause__ = ConnectionRefusedError()
    return error


def test_what_is_waited_for_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    asked([Unreachable("away"), Unreachable("away"), 1], ManualClock())
    assert capsys.readouterr().err == "hsparse: Waiting for http://localhost:1: away\n"
    asked([1], ManualClock())
    assert capsys.readouterr().err == ""


def test_nobody_is_waited_for_who_does_not_listen_on_this_machine() -> None:
    slept, error = asked([refused() for _ in range(MAX_TRIES)], ManualClock())
    assert isinstance(error, Unreachable)
    assert sum(slept) <= 2
    server = RetryingClient(lambda: scripted, lambda seconds: None, ManualClock())
    scripted = Scripted([1, *(refused() for _ in range(MAX_TRIES - 1)), 2])
    assert server.json("GET", "/")["answer"] == 1
    assert server.json("GET", "/")["answer"] == 2, "it is about to start again"


def test_other_errors_are_raised_at_once() -> None:
    slept, error = asked([Conflict("there"), 1], ManualClock())
    assert isinstance(error, Conflict)
    assert slept == []


def test_what_waits_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.client.http.retry.PAUSES", Backoff(0.5, 100.0))
    refused = threading.Event()

    def busy(connection: Connection) -> None:
        refused.set()
        raise RateLimited("slower", 100)

    server = RetryingClient(lambda: Connection("http://localhost:1"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.ask, busy)
        refused.wait()
        server.stop()
        with pytest.raises(HsparseError, match="was stopped"):
            waiting.result()
