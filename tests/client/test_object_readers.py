"""Objects of a store, read from a directory, a bucket, presigned URLs and a server that hands them out."""

from __future__ import annotations

import os
import pickle
import stat
import struct
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.client.http.retry import Retry
from hsparse.client.integrations.direct import bucket_objects, directory_objects, server_objects
from hsparse.client.integrations.direct.bucket_objects import Bucket, BucketObjects
from hsparse.client.integrations.direct.directory_objects import (
    SMALL_OBJECT_BYTES,
    DirectoryObjects,
    is_store,
)
from hsparse.client.integrations.direct.object_reader import (
    ObjectChanged,
    ObjectPlace,
    ObjectUnavailable,
    ReaderClosed,
    Take,
    in_threads,
)
from hsparse.client.integrations.direct.presigned_objects import PresignedObjects
from hsparse.client.integrations.direct.server_objects import (
    LEAST_REQUEST,
    MOST_CHUNKS,
    REQUEST_BYTES,
    ServerObjects,
)
from hsparse.errors import Misconfigured
from hsparse.format.selections.points import Orthogonal
from hsparse.optional_module import OptionalModule
from hsparse.storage.filesystem.object_file import file_etag
from hsparse.storage.s3.s3_store import S3Store
from tests.client.access_ways import Access, open_access
from tests.client.scripted_server import HANG_UP, answer, scripted_server
from tests.client.test_direct_elements import EXTENT, placed, random_dataset
from tests.support.s3_servers import make_bucket

KEY = "db/a/d/b/0_0"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / KEY
    path.parent.mkdir(parents=True)
    path.write_bytes(b"data")
    return path


def test_a_file_in_the_state_of_its_etag(tmp_path: Path, file: Path) -> None:
    reader, etag = DirectoryObjects(tmp_path), file_etag(file.stat())
    assert reader.read(ObjectPlace(KEY, etag)) == b"data"
    file.write_bytes(b"more data")
    for key, wanted in ((KEY, etag), ("db/a/d/b/0_1", etag), (f"{KEY}/1", etag), ("db/a", etag)):
        with pytest.raises(ObjectChanged):
            reader.read(ObjectPlace(key, wanted))


def test_a_file_with_the_sticky_bit_is_being_written(tmp_path: Path, file: Path) -> None:
    etag = file_etag(file.stat())
    file.chmod(file.stat().st_mode | stat.S_ISVTX)
    with pytest.raises(ObjectUnavailable, match="is being written"):
        DirectoryObjects(tmp_path).read(ObjectPlace(KEY, etag))


def test_a_file_that_is_written_in_place_while_it_is_read(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag, real = file_etag(file.stat()), os.pread

    def write_first(*args: int) -> bytes:
        file.write_bytes(b"DATA")
        return real(*args)

    monkeypatch.setattr(os, "pread", write_first)
    with pytest.raises(ObjectChanged):
        DirectoryObjects(tmp_path).read(ObjectPlace(KEY, etag))


@pytest.mark.parametrize(
    ("size", "seconds", "is_alone"),
    [
        (SMALL_OBJECT_BYTES - 1, float("inf"), True),
        (SMALL_OBJECT_BYTES, float("inf"), False),
        (SMALL_OBJECT_BYTES - 1, 0.0, False),
    ],
)
def test_small_objects_of_a_fast_directory_are_read_in_one_thread(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, size: int, seconds: float, is_alone: bool
) -> None:
    monkeypatch.setattr(directory_objects, "LOCAL_OPEN_SECONDS", seconds)
    reader, place = DirectoryObjects(tmp_path), ObjectPlace(KEY, file_etag(file.stat()), size=size)
    reader.at_once = 2
    both, used = threading.Barrier(1 if is_alone else 2), list[int]()

    def use(number: int, take: Take) -> None:
        both.wait(30)  # with another thread, unless this one is alone
        assert take() == b"data"
        used.append(threading.get_ident())

    reader.read_each([place] * 4, use)
    reader.read_each([], use)
    assert (len(used), set(used) == {threading.get_ident()}) == (4, is_alone)


def test_a_directory_that_refuses_every_look_is_left_to_the_server(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, raised = ObjectPlace(KEY, file_etag(file.stat()), size=1), list[str]()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    def use(_: int, take: Take) -> None:
        with pytest.raises(ObjectUnavailable) as error:
            take()
        raised.append(str(error.value))

    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setattr(os, "open", refuse)
    DirectoryObjects(tmp_path).read_each([place] * 2, use)
    assert raised == 2 * [f"{KEY}: Permission denied"]


def test_a_store_is_known_by_its_mark(tmp_path: Path) -> None:
    assert not is_store(tmp_path)
    assert not is_store(tmp_path / "none")
    (tmp_path / ".hsparse").mkdir()
    assert is_store(tmp_path)


@pytest.mark.parametrize("count", [1, 3])
def test_threads_draw_each_item_once_until_one_fails(count: int) -> None:
    done: list[int] = []
    in_threads(count, range(100), done.append)
    assert sorted(done) == list(range(100))
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 10:
            raise ValueError("ten")

    with pytest.raises(ValueError, match="ten"):
        in_threads(count, range(10_000), work)
    assert len(begun) == len(set(begun))
    assert count > 1 or len(begun) == 11


async def test_an_object_in_the_state_of_the_etag(moto_endpoint: str) -> None:
    make_bucket(moto_endpoint, "bucket-objects")
    bucket = Bucket("bucket-objects", moto_endpoint, "us-east-1", "test", "very-secret")
    store = await S3Store(
        bucket.name, endpoint=moto_endpoint, region="us-east-1", access_key="test", secret_key="very-secret"
    ).open()
    reader = BucketObjects(bucket)
    first = await store.put(KEY, b"first")
    assert reader.read(ObjectPlace(KEY, first)) == b"first"
    assert pickle.loads(pickle.dumps(reader)).read(ObjectPlace(KEY, first)) == b"first"
    second = await store.put(KEY, b"second")
    with pytest.raises(ObjectChanged):
        reader.read(ObjectPlace(KEY, first))
    assert reader.read(ObjectPlace(KEY, second)) == b"second"
    await store.delete(KEY)
    with pytest.raises(ObjectChanged):
        reader.read(ObjectPlace(KEY, second))
    await store.close()
    assert "secret" not in repr(bucket).replace("secret_key", "")
    reader.close()


def test_a_service_that_is_not_there() -> None:
    reader = BucketObjects(Bucket("b", "http://127.0.0.1:1", "us-east-1", "test", "test"))
    with pytest.raises(ObjectUnavailable, match="db/a/d/b/0_0"):
        reader.read(ObjectPlace(KEY, "abc"))


def test_an_endpoint_that_is_no_url() -> None:
    with pytest.raises(ValueError, match="is not the URL of an S3 service"):
        Bucket("b", "file:///nowhere")


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_objects, "OBSTORE", OptionalModule("obstore_is_missing", "direct"))
    with pytest.raises(Misconfigured, match=r'pip install "hsparse\[direct\]"'):
        BucketObjects(Bucket("b"))


async def test_credentials_and_endpoint_of_the_environment(
    moto_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bucket(moto_endpoint, "environment")
    store = await S3Store(
        "environment", endpoint=moto_endpoint, region="us-east-1", access_key="test", secret_key="test"
    ).open()
    etag = await store.put(KEY, b"data")
    await store.close()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": moto_endpoint,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    assert BucketObjects(Bucket("environment")).read(ObjectPlace(KEY, etag)) == b"data"


def reply(status: str, body: bytes, etag: str = '"abc"', length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nETag: {etag}\r\nContent-Length: {size}\r\n\r\n".encode() + body


def signed_place(url: str) -> ObjectPlace:
    return ObjectPlace(KEY, "abc", f"{url}/bucket/{KEY}?X-Amz-Signature=secret")


ONE, TWO = reply("200 OK", b"one"), reply("200 OK", b"two")


@pytest.mark.parametrize("connections", [[[ONE, TWO]], [[ONE, HANG_UP], [TWO]]], ids=["kept", "broken"])
def test_it_reads_over_kept_connections_and_replaces_those_that_broke(connections: list[list[bytes]]) -> None:
    reader = PresignedObjects()
    with scripted_server(*connections) as script:
        assert [reader.read(signed_place(script.url)) for _ in range(2)] == [b"one", b"two"]
        reader.close()
    assert script.requests[0] == f"GET /bucket/{KEY}?X-Amz-Signature=secret"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (reply("404 Not Found", b""), ObjectChanged),
        (reply("412 Precondition Failed", b""), ObjectChanged),
        (reply("200 OK", b"one", '"other"'), ObjectChanged),
        (reply("403 Forbidden", b"expired"), ObjectUnavailable),
        (reply("302 Found", b""), ObjectUnavailable),
        (reply("200 OK", b"one", length=9), ObjectUnavailable),
        (HANG_UP, ObjectUnavailable),
    ],
)
def test_all_else_is_no_object(answer: bytes, kind: type[Exception]) -> None:
    reader = PresignedObjects()
    with scripted_server([answer]) as script, pytest.raises(kind) as caught:
        reader.read(signed_place(script.url))
    assert "secret" not in str(caught.value)
    reader.close()


@pytest.mark.parametrize("url", [None, "file:///etc/passwd"])
def test_a_place_without_a_url_of_http(url: str | None) -> None:
    with pytest.raises(ObjectUnavailable):
        PresignedObjects().read(ObjectPlace(KEY, "abc", url))


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
