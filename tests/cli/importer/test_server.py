from __future__ import annotations

from typing import Any

import pytest

from hsparse.cli.importer.server import LONGEST_PAUSE, TRIES, Server
from hsparse.client.connection import Connection, Unreachable
from hsparse.errors import Busy, Conflict, HsparseError, RateLimited


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
    error = RateLimited("slower")
    error.retry_after = seconds
    return error


@pytest.mark.parametrize(
    ("answers", "pauses"),
    [
        ([1], []),
        ([Busy("full"), 1], [1.0]),
        ([Unreachable("away"), Unreachable("away"), 1], [0.5, 1.0]),
        ([limited(7), limited(500), 1], [7.0, LONGEST_PAUSE]),
    ],
)
def test_a_server_that_is_busy_is_asked_again(answers: list[Any], pauses: list[float]) -> None:
    slept: list[float] = []
    server = Server(lambda: Scripted(answers), slept.append)
    assert server.json("PUT", "/") == {"answer": 1}
    assert slept == pauses
    server.close()


def test_patience_ends() -> None:
    answers: list[Any] = [Unreachable("away") for _ in range(TRIES + 1)]
    server = Server(lambda: Scripted(answers), lambda _: None)
    with pytest.raises(Unreachable):
        server.json("GET", "/")
    assert len(answers) == 1


def test_other_errors_are_raised_at_once() -> None:
    server = Server(lambda: Scripted([Conflict("there"), 1]), lambda _: None)
    with pytest.raises(Conflict):
        server.json("GET", "/")
