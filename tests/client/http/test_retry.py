"""Requests that are repeated: by a connection, and by a client that waits for its server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from hsparse.attempts import CLIENT, Backoff
from hsparse.client.connection import Connection
from hsparse.client.errors import GatewayFailed, Unreachable
from hsparse.client.http.retry import Retry
from hsparse.client.http.retrying_client import BUSY_SECONDS, MAX_TRIES, RetryingClient
from hsparse.client.sources.selection_request import read_values
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import Busy, Conflict, HsparseError, RateLimited, Unanswered
from hsparse.format.selections.orthogonal import StridedSpan
from hsparse.format.selections.points import Orthogonal
from tests.client.scripted_server import HANG_UP, Script, answer, scripted
from tests.testing.manual_clock import ManualClock

OK = answer(b"{}")
OTHER_SERVER = answer(b'{"hsds_version": "1.0"}')
HEEDS_KEYS = answer(b'{"idempotency_keys": true}')
BYTES = answer(b"four", media="application/octet-stream")


def refused(status: int, wait: int) -> bytes:
    return answer(b"{}", f"{status} No\r\nRetry-After: {wait}")


class Pauses(list[float]):
    """Sleeps by moving a clock; the first token is 1 of 2**32: next to no jitter."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()

    def retry(self, tries: int = 3, patience: float = 60.0) -> Retry:
        return Retry(tries, patience, self.sleep, self.clock)

    def sleep(self, seconds: float) -> None:
        self.append(round(seconds, 3))
        self.clock.time += seconds


Ask = Callable[[Connection], Any]


def read(connection: Connection) -> Any:
    return connection.json("GET", "/")


def select(connection: Connection) -> Any:
    return connection.binary("POST", "/datasets/d-1/value", {"select": "[0:1]"})


def write(connection: Connection) -> Any:
    return connection.json("PUT", "/datasets/d-1/value", b"0000")


def append(connection: Connection) -> Any:
    return connection.json("PUT", "/datasets/d-1/value", b"0000", append=1)


def extend(connection: Connection) -> Any:
    return connection.json("PUT", "/datasets/d-1/shape", {"extend": 1})


def create(connection: Connection) -> Any:
    return connection.json("POST", "/datasets", {"type": "H5T_STD_I8LE"})


def pauses_of(
    ask: Ask,
    *connections: list[bytes],
    tries: int = 3,
    patience: float = 60.0,
    error: type[Exception] | tuple[type[Exception], ...] | None = None,
    match: str | None = None,
) -> tuple[list[float], Script]:
    """Ask a server, until it answers or the error is raised: what was waited for, and what the server was asked."""
    pauses = Pauses()
    raised = pytest.raises(error, match=match) if error else nullcontext()
    with scripted(*connections, retry=pauses.retry(tries, patience)) as (script, connection), raised:
        ask(connection)
    return pauses, script


def last(ask: Ask) -> bytes:
    return BYTES if ask is select else OK


def about(ask: Ask) -> list[bytes]:
    """Return what a server says of itself, for what has a key: then it is asked whether it heeds that."""
    return [OTHER_SERVER] if ask in (append, extend) else []


@pytest.mark.parametrize("ask", [read, select, write])
def test_what_may_be_repeated_waits_for_a_busy_server_as_it_says(ask: Ask) -> None:
    pauses, script = pauses_of(ask, [refused(503, 7), refused(429, 100), last(ask)])
    assert (pauses, len(script.requests), len(set(script.bodies))) == ([7.0, 30.0], 3, 1)


@pytest.mark.parametrize("ask", [append, extend, create])
def test_what_has_another_effect_each_time_is_repeated_after_a_429_alone(ask: Ask) -> None:
    def attempt(connection: Connection) -> None:
        with pytest.raises(Busy) as busy:
            ask(connection)
        assert busy.value.retry_after == 3

    connection = [refused(429, 2), refused(503, 3), *about(ask)]
    assert pauses_of(attempt, connection)[0] == [2.0]


@pytest.mark.parametrize("status", [429, 503])
def test_patience_ends(status: int) -> None:
    found, _ = pauses_of(read, [refused(status, 20)] * 3, patience=50, error=(Busy, RateLimited))
    assert found == [20.0, 20.0]


@pytest.mark.parametrize("ask", [read, select])
def test_a_read_is_repeated_when_the_server_hangs_up(ask: Ask) -> None:
    assert pauses_of(ask, [HANG_UP], [HANG_UP], [last(ask)])[0] == [0.5, 1.0]
    assert pauses_of(ask, [HANG_UP], [HANG_UP], tries=2, error=Unreachable)[0] == [0.5]


@pytest.mark.parametrize("ask", [write, append, create])
def test_a_change_is_not(ask: Ask) -> None:
    connections = [[HANG_UP], *([one] for one in about(ask))]
    assert pauses_of(ask, *connections, error=Unreachable, match="may or may not")[0] == []


@pytest.mark.parametrize("ask", [append, extend])
def test_what_grows_is_repeated_with_its_key_where_the_server_heeds_it(ask: Ask) -> None:
    def twice(connection: Connection) -> None:
        ask(connection)
        ask(connection)  # the server is not asked again, and the key is another one

    heeding = [HEEDS_KEYS, refused(503, 3), HANG_UP]
    pauses, server = pauses_of(twice, [HANG_UP], heeding, [OK, HANG_UP], [OK])
    assert [line.split("?")[0] for line in server.requests].count("GET /about") == 1
    keys = [key for line, key in zip(server.requests, server.keys, strict=True) if "about" not in line]
    assert len(keys) == 6
    assert len(set(keys[:4])) == len(set(keys[4:])) == 1
    assert len(set(keys)) == 2
    assert all(key.startswith('"') and key.endswith('"') and len(key) > 20 for key in keys)
    assert len(pauses) == 4


@pytest.mark.parametrize(("ask", "tries"), [(read, 3), (write, 1), (create, 1)])
def test_what_no_data_node_has_confirmed_is_a_lost_answer(ask: Ask, tries: int) -> None:
    body = b'{"error": {"kind": "unanswered", "message": "No data node has confirmed this."}}'
    pauses, _ = pauses_of(ask, [answer(body, "503 No\r\nRetry-After: 1")] * 3, error=Unanswered)
    assert len(pauses) == tries - 1


def test_a_streamed_answer_that_breaks_is_read_again() -> None:
    def stream(connection: Connection) -> None:
        assert read_values(connection, "d-1", Orthogonal((4,), (StridedSpan(0, 4),))) == b"four"

    short = BYTES.replace(b"Length: 4", b"Length: 9")
    assert pauses_of(stream, [refused(503, 2)], [short], [BYTES])[0] == [2.0, 0.5]


def test_without_a_retry_errors_are_raised_at_once() -> None:
    with scripted([refused(503, 1)]) as (_, connection), pytest.raises(HsparseError):
        read(connection)


def failed(status: int) -> bytes:
    return answer(b"<p>gateway</p>", f"{status} No", media="text/html")


@pytest.mark.parametrize("status", [500, 502, 504, 520, 524])
@pytest.mark.parametrize("ask", [read, select, write])
def test_a_failure_of_a_proxy_is_repeated_as_a_busy_server_is(ask: Ask, status: int) -> None:
    assert pauses_of(ask, [failed(status), failed(status), last(ask)])[0] == [0.5, 1.0]


@pytest.mark.parametrize(
    ("tries", "patience", "count"), [(3, 60.0, 4), (1, 60.0, 0), (3, 2.0, 2), (3, 0.0, 0)]
)
def test_a_proxy_that_keeps_failing_is_given_up(tries: int, patience: float, count: int) -> None:
    said = {"error": GatewayFailed, "match": "502 No by a proxy"}
    pauses, _ = pauses_of(read, [failed(502)] * (count + 1), tries=tries, patience=patience, **said)  # type: ignore[arg-type]
    assert len(pauses) == count


@pytest.mark.parametrize("ask", [append, create])
def test_what_a_proxy_may_have_passed_on_is_not_made_twice(ask: Ask) -> None:
    connection = [failed(502), *about(ask)]
    assert pauses_of(ask, connection, error=GatewayFailed, match="may or may not")[0] == []


@pytest.mark.parametrize("status", [501, 505, 507, 404, 301])
def test_another_answer_of_a_proxy_is_final(status: int) -> None:
    assert pauses_of(read, [failed(status)], error=HsparseError, match=str(status))[0] == []


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_change_that_was_made_before_says_so(method: str) -> None:
    pauses = Pauses()
    status = "409 Conflict" if method == "PUT" else "410 Gone"
    kind = "conflict" if method == "PUT" else "gone"
    body = f'{{"error": {{"kind": "{kind}", "message": "It is so."}}}}'.encode()
    with scripted([failed(502), answer(body, status), answer(body, status)], retry=pauses.retry()) as (
        _,
        connection,
    ):
        with pytest.raises(HsparseError, match=r"^It is so\. An earlier attempt may have succeeded: .* 502"):
            connection.json(method, "/")
        with pytest.raises(HsparseError, match=r"^It is so\.$"):
            connection.json(method, "/")


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


def not_listening() -> Unreachable:
    error = Unreachable("nobody listens")
    error.__cause__ = ConnectionRefusedError()
    return error


def test_what_is_waited_for_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    asked([Unreachable("away"), Unreachable("away"), 1], ManualClock())
    assert capsys.readouterr().err == "hsparse: Waiting for http://localhost:1: away\n"
    asked([1], ManualClock())
    assert capsys.readouterr().err == ""


def test_nobody_is_waited_for_who_does_not_listen_on_this_machine() -> None:
    slept, error = asked([not_listening() for _ in range(MAX_TRIES)], ManualClock())
    assert isinstance(error, Unreachable)
    assert sum(slept) <= 2
    server = RetryingClient(lambda: scripted, lambda seconds: None, ManualClock())
    scripted = Scripted([1, *(not_listening() for _ in range(MAX_TRIES - 1)), 2])
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


class CutConnection(Connection):
    """A connection that is cut before the answers to the next `cuts` changes."""

    cuts = 0

    def _exchange(self, method: str, *request: Any) -> Any:
        answered = super()._exchange(method, *request)
        if method == "PUT" and self.cuts:
            self.cuts -= 1
            raise self._unreachable(method, ConnectionResetError("cut"))
        return answered


@pytest.fixture
def cut(connection: Connection) -> Iterator[CutConnection]:
    with CutConnection(connection.url, connection.domain, retry=Retry(3, 5.0, lambda seconds: None)) as made:
        yield made


def test_an_append_whose_answers_were_lost_is_there_once(cut: CutConnection) -> None:
    dataset = SparseDataset.create(cut, "/rows", (0, 3), "i8", (4, 3), maxshape=(None, 3))
    cut.cuts = 2
    assert dataset.append(np.array([[1, 0, 3]])) == slice(0, 1)
    assert dataset.append(np.array([[4, 5, 6]])) == slice(1, 2)
    cut.cuts = 1
    assert (dataset.extend(2), cut.cuts, dataset.refresh()) == (slice(2, 4), 0, (4, 3))
    assert dataset[:2].toarray().tolist() == [[1, 0, 3], [4, 5, 6]]


def test_another_change_is_not_repeated(cut: CutConnection) -> None:
    dataset = SparseDataset.create(cut, "/rows", (2, 3), "i8", (2, 3))
    cut.cuts = 1
    with pytest.raises(Unreachable):
        dataset[0] = [1, 2, 3]
    assert dataset[0].toarray().tolist() == [1, 2, 3]
