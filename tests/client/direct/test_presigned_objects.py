"""Presigned URLs: what the store answers, and that no error has the URL."""

from __future__ import annotations

import pytest

from hsparse.client.integrations.direct.object_reader import ObjectChanged, ObjectPlace, ObjectUnavailable
from hsparse.client.integrations.direct.presigned_objects import PresignedObjects
from tests.client.scripted_server import HANG_UP, scripted_server

KEY = "db/a/d/b/0_0"


def reply(status: str, body: bytes, etag: str = '"abc"', length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nETag: {etag}\r\nContent-Length: {size}\r\n\r\n".encode() + body


def place(url: str) -> ObjectPlace:
    return ObjectPlace(KEY, "abc", f"{url}/bucket/{KEY}?X-Amz-Signature=secret")


def test_it_reads_over_kept_connections() -> None:
    reader = PresignedObjects()
    with scripted_server([reply("200 OK", b"one"), reply("200 OK", b"two")]) as script:
        assert reader.read(place(script.url)) == b"one"
        assert reader.read(place(script.url)) == b"two"
        reader.close()
    assert script.requests[0] == f"GET /bucket/{KEY}?X-Amz-Signature=secret"


def test_a_kept_connection_that_broke_is_replaced() -> None:
    reader = PresignedObjects()
    with scripted_server([reply("200 OK", b"one"), HANG_UP], [reply("200 OK", b"two")]) as script:
        assert reader.read(place(script.url)) == b"one"
        assert reader.read(place(script.url)) == b"two"
        reader.close()


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
        reader.read(place(script.url))
    assert "secret" not in str(caught.value)
    reader.close()


@pytest.mark.parametrize("url", [None, "file:///etc/passwd"])
def test_a_place_without_a_url_of_http(url: str | None) -> None:
    with pytest.raises(ObjectUnavailable):
        PresignedObjects().read(ObjectPlace(KEY, "abc", url))
