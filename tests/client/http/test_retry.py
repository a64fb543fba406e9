from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from hsparse.client.connection import Connection
from hsparse.client.errors import GatewayFailed, Unreachable
from hsparse.client.http.retry import Retry
from hsparse.client.sources.selection_request import read_values
from hsparse.errors import Busy, HsparseError, RateLimited, Unanswered
from hsparse.format.selections.orthogonal import StridedSpan
from hsparse.format.selections.points import Orthogonal
from tests.client.scripted_server import HANG_UP, answer, scripted_server
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


@pytest.mark.parametrize("ask", [read, select, write])
def test_what_may_be_repeated_waits_for_a_busy_server_as_it_says(ask: Ask) -> None:
    pauses, last = Pauses(), BYTES if ask is select else OK
    with (
        scripted_server([refused(503, 7), refused(429, 100), last]) as server,
        Connection(server.url, retry=pauses.retry()) as connection,
    ):
        ask(connection)
        assert len(server.requests) == 3
        assert len(set(server.bodies)) == 1
    assert pauses == [7.0, 30.0]


@pytest.mark.parametrize("ask", [append, extend, create])
def test_what_has_another_effect_each_time_is_repeated_after_a_429_alone(ask: Ask) -> None:
    pauses = Pauses()
    about = [] if ask is create else [OTHER_SERVER]
    with (
        scripted_server([refused(429, 2), refused(503, 3), *about]) as server,
        Connection(server.url, retry=pauses.retry()) as connection,
        pytest.raises(Busy) as busy,
    ):
        ask(connection)
    assert busy.value.retry_after == 3
    assert pauses == [2.0]


@pytest.mark.parametrize("status", [429, 503])
def test_patience_ends(status: int) -> None:
    pauses = Pauses()
    with (
        scripted_server([refused(status, 20)] * 3) as server,
        Connection(server.url, retry=pauses.retry(patience=50)) as connection,
        pytest.raises((Busy, RateLimited)),
    ):
        read(connection)
    assert pauses == [20.0, 20.0]


@pytest.mark.parametrize("ask", [read, select])
def test_a_read_is_repeated_when_the_server_hangs_up(ask: Ask) -> None:
    pauses, last = Pauses(), BYTES if ask is select else OK
    with (
        scripted_server([HANG_UP], [HANG_UP], [last]) as server,
        Connection(server.url, retry=pauses.retry()) as connection,
    ):
        ask(connection)
    assert pauses == [0.5, 1.0]


@pytest.mark.parametrize("ask", [write, append, create])
def test_a_change_is_not(ask: Ask) -> None:
    pauses = Pauses()
    about = [[OTHER_SERVER]] if ask is append else []
    with (
        scripted_server([HANG_UP], *about) as server,
        Connection(server.url, retry=pauses.retry()) as connection,
        pytest.raises(Unreachable, match="may or may not"),
    ):
        ask(connection)
    assert pauses == []


@pytest.mark.parametrize("ask", [append, extend])
def test_what_grows_is_repeated_with_its_key_where_the_server_heeds_it(ask: Ask) -> None:
    pauses = Pauses()
    with (
        scripted_server([HANG_UP], [HEEDS_KEYS, refused(503, 3), HANG_UP], [OK, HANG_UP], [OK]) as server,
        Connection(server.url, retry=pauses.retry()) as connection,
    ):
        ask(connection)
        ask(connection)  # the server is not asked again, and the key is another one
    assert [line.split("?")[0] for line in server.requests].count("GET /about") == 1
    assert len(server.requests) == 7
    keys = [key for line, key in zip(server.requests, server.keys, strict=True) if "about" not in line]
    assert len(set(keys[:4])) == 1
    assert len(set(keys[4:])) == 1
    assert len(set(keys)) == 2
    assert all(key.startswith('"') and key.endswith('"') and len(key) > 20 for key in keys)
    assert len(pauses) == 4


@pytest.mark.parametrize(("ask", "tries"), [(read, 3), (write, 1), (create, 1)])
def test_what_no_data_node_has_confirmed_is_a_lost_answer(ask: Ask, tries: int) -> None:
    pauses = Pauses()
    body = b'{"error": {"kind": "unanswered", "message": "No data node has confirmed this."}}'
    with (
        scripted_server([answer(body, "503 No\r\nRetry-After: 1")] * 3) as server,
        Connection(server.url, retry=pauses.retry()) as connection,
        pytest.raises(Unanswered),
    ):
        ask(connection)
    assert len(pauses) == tries - 1


def test_tries_end() -> None:
    pauses = Pauses()
    with (
        scripted_server([HANG_UP], [HANG_UP]) as server,
        Connection(server.url, retry=pauses.retry(tries=2)) as connection,
        pytest.raises(Unreachable),
    ):
        read(connection)
    assert pauses == [0.5]


def test_a_streamed_answer_that_breaks_is_read_again() -> None:
    pauses, short = Pauses(), BYTES.replace(b"Length: 4", b"Length: 9")
    with (
        scripted_server([refused(503, 2)], [short], [BYTES]) as server,
        Connection(server.url, retry=pauses.retry()) as connection,
    ):
        assert read_values(connection, "d-1", Orthogonal((4,), (StridedSpan(0, 4),))) == b"four"
    assert pauses == [2.0, 0.5]


def test_without_a_retry_errors_are_raised_at_once() -> None:
    with (
        scripted_server([refused(503, 1)]) as server,
        Connection(server.url) as connection,
        pytest.raises(HsparseError),
    ):
        read(connection)


def test_a_pickled_connection_has_it() -> None:
    copy = pickle.loads(pickle.dumps(Connection("http://localhost:1", retry=Retry(4, 7.0))))
    assert copy._retry.tries == 4


def failed(status: int) -> bytes:
    return answer(b"<p>gateway</p>", f"{status} No", media="text/html")


@pytest.mark.parametrize("status", [500, 502, 504, 520, 524])
@pytest.mark.parametrize("ask", [read, select, write])
def test_a_failure_of_a_proxy_is_repeated_as_a_busy_server_is(ask: Ask, status: int) -> None:
    pauses, last = Pauses(), BYTES if ask is select else OK
    with (
        scripted_server([failed(status), failed(status), last]) as server,
        Connection(server.url, retry=pauses.retry()) as connection,
    ):
        ask(connection)
    assert pauses == [0.5, 1.0]


@pytest.mark.parametrize(
    ("tries", "patience", "count"), [(3, 60.0, 4), (1, 60.0, 0), (3, 2.0, 2), (3, 0.0, 0)]
)
def test_a_proxy_that_keeps_failing_is_given_up(tries: int, patience: float, count: int) -> None:
    pauses = Pauses()
    with (
        scripted_server([failed(502)] * (count + 1)) as server,
        Connection(server.url, retry=pauses.retry(tries, patience)) as connection,
        pytest.raises(GatewayFailed, match="502 No by a proxy"),
    ):
        read(connection)
    assert len(pauses) == count


@pytest.mark.parametrize("ask", [append, create])
def test_what_a_proxy_may_have_passed_on_is_not_made_twice(ask: Ask) -> None:
    pauses, about = Pauses(), [] if ask is create else [OTHER_SERVER]
    with (
        scripted_server([failed(502), *about]) as server,
        Connection(server.url, retry=pauses.retry()) as connection,
        pytest.raises(GatewayFailed, match="may or may not"),
    ):
        ask(connection)
    assert pauses == []


@pytest.mark.parametrize("status", [501, 505, 507, 404, 301])
def test_another_answer_of_a_proxy_is_final(status: int) -> None:
    pauses = Pauses()
    with (
        scripted_server([failed(status)]) as server,
        Connection(server.url, retry=pauses.retry()) as connection,
        pytest.raises(HsparseError, match=str(status)),
    ):
        read(connection)
    assert pauses == []


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_change_that_was_made_before_says_so(method: str) -> None:
    pauses = Pauses()
    status = "409 Conflict" if method == "PUT" else "410 Gone"
    kind = "conflict" if method == "PUT" else "gone"
    body = f'{{"error": {{"kind": "{kind}", "message": "It is so."}}}}'.encode()
    with (
        scripted_server([failed(502), answer(body, status), answer(body, status)]) as server,
        Connection(server.url, retry=pauses.retry()) as connection,
    ):
        with pytest.raises(HsparseError, match=r"^It is so\. An earlier attempt may have succeeded: .* 502"):
            connection.json(method, "/")
        with pytest.raises(HsparseError, match=r"^It is so\.$"):
            connection.json(method, "/")
