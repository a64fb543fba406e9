"""Chunks that the server hands out: few requests, what a server may answer, and servers that have no such answers.

`tests/client/direct/test_direct_elements.py` and the tests over `access` run over this way, too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.client.http.retry import Retry
from hsparse.client.integrations.direct import server_objects
from hsparse.client.integrations.direct.object_reader import (
    ObjectChanged,
    ObjectPlace,
    ObjectUnavailable,
    ReaderClosed,
    Take,
)
from hsparse.client.integrations.direct.server_objects import (
    LEAST_REQUEST,
    MOST_CHUNKS,
    REQUEST_BYTES,
    ServerObjects,
)
from hsparse.format.selections.points import Orthogonal
from tests.client.access_ways import Access, open_access
from tests.client.direct.test_direct_elements import EXTENT, placed, random_dataset
from tests.client.scripted_server import HANG_UP, answer, scripted_server

BINARY = "application/octet-stream"
WHOLE = Orthogonal.all(EXTENT)
CHANGED = struct.pack("<Q", 2**64 - 1)


@pytest.fixture
def server_access(request: pytest.FixtureRequest) -> Any:
    with open_access("server", request) as opened:
        yield opened


def places(*sizes: int) -> list[ObjectPlace]:
    return [
        ObjectPlace(f"db/a/d/b/0_{number}", f"e{number}", None, size) for number, size in enumerate(sizes)
    ]


def frame(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def outcomes(reader: ServerObjects, wanted: Sequence[ObjectPlace]) -> list[Any]:
    """Return what is read of each object: its bytes, or the error."""
    found: list[Any] = [None] * len(wanted)

    def use(number: int, take: Take) -> None:
        assert found[number] is None
        try:
            found[number] = bytes(take())
        except (ObjectChanged, ObjectUnavailable) as error:
            found[number] = error

    reader.read_each(wanted, use)
    return found


def reader_of(url: str, tries: int = 1) -> ServerObjects:
    retry = Retry(tries, sleep=lambda seconds: None)
    return ServerObjects(Connection(url, "/x.h5", retry=retry), "d-1", at_once=1)


def test_frames_in_order() -> None:
    body = frame(b"one") + CHANGED + frame(b"three")
    with scripted_server([answer(body, media=BINARY)]) as script:
        found = outcomes(reader_of(script.url), places(3, 3, 5))
    assert (found[0], found[2]) == (b"one", b"three")
    assert isinstance(found[1], ObjectChanged)
    assert script.requests == ["POST /datasets/d-1/chunks/values?domain=/x.h5"]
    assert script.bodies == [
        b'{"chunks": ["0_0", "0_1", "0_2"], "etags": ["e0", "e1", "e2"], "sizes": [3, 3, 5]}'
    ]


def test_one_object() -> None:
    with scripted_server([answer(frame(b"one"), media=BINARY)], [answer(CHANGED, media=BINARY)]) as script:
        assert reader_of(script.url).read(places(3)[0]) == b"one"
        with pytest.raises(ObjectChanged):
            reader_of(script.url).read(places(3)[0])


@pytest.mark.parametrize(
    "body", [frame(b"one")[:-1], frame(b"one") + frame(b"two")[:5]], ids=["bytes", "length"]
)
def test_an_answer_that_ends_early(body: bytes) -> None:
    count = len(body) // 8
    with scripted_server([answer(body, media=BINARY)]) as script:
        found = outcomes(reader_of(script.url), places(3, 3))
    assert [isinstance(one, ObjectUnavailable) for one in found] == [count < 1 or len(body) < 11, True]


def test_a_repeated_request_is_about_what_is_left() -> None:
    first = answer(frame(b"one") + frame(b"two")[:5], media=BINARY)
    with scripted_server([first], [HANG_UP], [answer(frame(b"two"), media=BINARY)]) as script:
        assert outcomes(reader_of(script.url, 3), places(3, 3)) == [b"one", b"two"]
    assert script.bodies[1:] == [b'{"chunks": ["0_1"], "etags": ["e1"], "sizes": [3]}'] * 2


@pytest.mark.parametrize(
    "reply",
    [
        answer(b"{}", "404 Not Found"),
        answer(b"{}", "405 Method Not Allowed"),
        answer(b"<html>", "400 Bad Request", "text/html"),
        answer(b"<html>", media="text/html"),
        answer(frame(b"x" * 1000), media=BINARY),
        answer(frame(b"one") * 3, media=BINARY),
    ],
    ids=["404", "405", "400", "type", "too long", "too many"],
)
def test_a_server_that_does_not_know_the_request(reply: bytes) -> None:
    with scripted_server([reply]) as script, pytest.raises(ReaderClosed):
        outcomes(reader_of(script.url), places(3, 3))


@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
def test_a_server_that_is_busy(status: str) -> None:
    with scripted_server([answer(b"{}", status)]) as script:
        found = outcomes(reader_of(script.url), places(3, 3))
    assert all(isinstance(one, ObjectUnavailable) for one in found)


@given(st.lists(st.integers(1, 2 * REQUEST_BYTES), max_size=50), st.integers(1, 8))
def test_requests_are_few_and_not_too_large(sizes: list[int], at_once: int) -> None:
    wanted = places(*sizes)
    found = list(server_objects._requests(wanted, at_once))
    assert [number for numbers in found for number in numbers] == list(range(len(sizes)))
    totals = [sum(sizes[number] for number in numbers) for numbers in found]
    assert all(
        total <= REQUEST_BYTES or len(numbers) == 1 for total, numbers in zip(totals, found, strict=True)
    )
    most = min(max(sum(sizes) // at_once, LEAST_REQUEST), REQUEST_BYTES)
    assert all(one + two > most for one, two in pairwise(totals))


def test_requests_of_many_small_chunks() -> None:
    found = list(server_objects._requests(places(*[1] * (2 * MOST_CHUNKS + 1)), 4))
    assert list(map(len, found)) == [MOST_CHUNKS, MOST_CHUNKS, 1]


def test_all_chunks_by_few_requests(server_access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """25 chunks, of which some may be empty; those at the edge, of which not all is in the extent, come first."""
    dataset, dense = random_dataset(server_access)
    source = server_access.source(dataset)
    sent: list[str] = []
    stream = Connection.stream

    def noted(connection: Connection, method: str, path: str, *rest: Any, **params: Any) -> Any:
        sent.append(f"{method} {path}")
        return stream(connection, method, path, *rest, **params)

    monkeypatch.setattr(Connection, "stream", noted)
    np.testing.assert_array_equal(placed(source.defined_elements(WHOLE), EXTENT), dense)
    assert sent == [f"POST /datasets/{dataset.id}/chunks/values"] * 2
    assert source.statistics.objects > 20
    assert source.statistics.fallbacks == 0


def test_a_server_without_such_answers_is_asked_once(server_access: Access) -> None:
    dataset, dense = random_dataset(server_access)
    source = server_access.source(dataset)
    source._choice.reader._path = f"/datasets/{dataset.id}/chunks/nothing"  # known to GET alone
    for _ in range(3):
        np.testing.assert_array_equal(placed(source.defined_elements(WHOLE), EXTENT), dense)
        np.testing.assert_array_equal(source.dense_values(WHOLE), dense)
        assert source.compressed_rows(WHOLE) is None
    assert (source.statistics.maps, source.statistics.objects) == (1, 0)
    assert "does not answer POST" in source.statistics.reason


def test_a_server_without_maps_is_asked_once(server_access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """HSDS answers 404."""
    dataset, dense = random_dataset(server_access)
    source = server_access.source(dataset)
    asked: list[str] = []
    monkeypatch.setattr(source._kept, "_path", "/nothing")
    real = Connection.json_if_changed

    def noted(connection: Connection, path: str, *rest: Any, **params: Any) -> Any:
        asked.append(path)
        return real(connection, path, *rest, **params)

    monkeypatch.setattr(Connection, "json_if_changed", noted)
    for _ in range(2):
        np.testing.assert_array_equal(placed(source.defined_elements(WHOLE), EXTENT), dense)
    assert asked == ["/nothing"]


def test_a_server_that_is_gone(server_access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """The map came; then nothing answers, nor for the values."""
    dataset, _ = random_dataset(server_access)
    source = server_access.source(dataset)
    source.defined_elements(WHOLE)

    def gone(*rest: Any, **params: Any) -> Any:
        raise Unreachable("gone")

    monkeypatch.setattr(Connection, "stream", gone)
    monkeypatch.setattr(source._server, "defined_elements", gone)
    with pytest.raises(Unreachable):
        source.defined_elements(WHOLE)


def test_a_corrupt_chunk_is_left_to_the_server(server_access: Access) -> None:
    """It does not hand the object out, but here it has the elements in its cache."""
    dataset, dense = random_dataset(server_access)
    source = server_access.source(dataset)
    row = server_access.connection.json("GET", f"/datasets/{dataset.id}/map")["chunks"][3]
    assert server_access.root is not None
    path = server_access.root / row["key"]
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    dataset.write([[0, 0]], [1])  # so that the map is a new one, with the etag that the object has now
    dense[0, 0] = 1
    np.testing.assert_array_equal(placed(source.defined_elements(WHOLE), EXTENT), dense)
    assert source.statistics.fallbacks > 0
    assert f"{row['key']} is corrupt" in source.statistics.reason


@pytest.mark.parametrize("size", [2**70, None, -1], ids=str)
def test_a_map_with_impossible_sizes(
    server_access: Access, monkeypatch: pytest.MonkeyPatch, size: Any
) -> None:
    """A proxy, or a server with ill will: the values come without the map."""
    dataset, dense = random_dataset(server_access)
    source = server_access.source(dataset)
    real = Connection.json_if_changed

    def changed(connection: Connection, path: str, *rest: Any, **params: Any) -> Any:
        found, etag = real(connection, path, *rest, **params)
        assert found is not None
        found["chunks"][0]["size"] = size
        return found, etag

    monkeypatch.setattr(Connection, "json_if_changed", changed)
    np.testing.assert_array_equal(placed(source.defined_elements(WHOLE), EXTENT), dense)
    assert source.statistics.fallbacks > 0
