from __future__ import annotations

import errno
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.client.errors import GatewayFailed, OtherServer, Unreachable
from hsparse.config import load_settings
from hsparse.errors import (
    BadRequest,
    Busy,
    Conflict,
    Corrupt,
    Forbidden,
    HsparseError,
    NotFound,
    RateLimited,
    TooLarge,
    Unauthenticated,
)
from hsparse.sn.auth.password_file import PasswordFile, User
from tests.client.scripted_server import HANG_UP, answer, scripted, scripted_server

MIB = 1024 * 1024
OK = answer(b'{"fine": 1}')


def test_an_answer_is_the_json_object(connection: Connection) -> None:
    root = connection.json("GET", "/")["root"]
    assert connection.json("GET", f"/groups/{root}")["id"] == root


def test_an_error_is_raised_as_the_server_names_it(connection: Connection) -> None:
    with pytest.raises(Conflict, match=f"{connection.domain} exists already"):
        connection.json("PUT", "/", {})
    with pytest.raises(BadRequest, match="Dimension 0 of shape is -1"):
        connection.json("POST", "/datasets", {"type": "H5T_STD_I8LE", "shape": [-1]})
    assert connection.json("GET", "/")["root"]


def test_parameters_and_paths_are_quoted(connection: Connection) -> None:
    connection.json("POST", "/groups", {"h5path": "/a b&c=ü/d"}, implicit=True)
    found = connection.json("GET", "/groups/", h5path="/a b&c=ü/d", getalias=False, pattern=None)
    root = connection.json("GET", "/")["root"]
    assert connection.json("GET", f"/groups/{root}/links/a b&c=ü")["link"]["title"] == "a b&c=ü"
    assert found["id"].startswith("g-")


def test_bytes_travel_as_they_are(connection: Connection) -> None:
    body = {"type": "H5T_STD_U8LE", "shape": [256], "h5path": "/bytes"}
    id = connection.json("POST", "/datasets", body)["id"]
    connection.json("PUT", f"/datasets/{id}/value", bytes(range(256)))
    assert connection.binary("GET", f"/datasets/{id}/value") == bytes(range(256))


def test_basic_credentials(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    PasswordFile(file).put(User("ada", hasher.hash("söme:thing"), admin=True))
    settings = load_settings(root=tmp_path / "store", port=0, fsync=False, password_file=file)
    with embedded_server(settings) as url:
        with Connection(url, "/ada.h5", user="ada", password="söme:thing") as connection:
            assert connection.json("PUT", "/", {})["owner"] == "ada"
        with Connection(url, "/ada.h5", user="ada", password="other") as connection:
            for _ in range(2):
                with pytest.raises(Unauthenticated):
                    connection.json("GET", "/")


def test_a_user_name_with_a_colon_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="colon"):
        Connection(url, user="a:b", password="c")


def test_a_token_goes_with_every_request() -> None:
    with scripted([answer(b"{}")], token="hsk_abc") as (_, connection):
        assert connection._headers["Authorization"] == "Bearer hsk_abc"
        connection.json("GET", "/about")


@pytest.mark.parametrize("options", [{"user": "ann"}, {"token": "a\nb"}, {"token": "schlüssel"}])
def test_a_token_stands_alone_and_is_not_repeated(options: dict[str, str]) -> None:
    with pytest.raises(BadRequest, match="without user") as caught:
        Connection("http://127.0.0.1:1", **{"token": "sesame", **options})  # type: ignore[arg-type]
    assert "sesame" not in caught.value.message


@pytest.mark.parametrize("body", [b'{"error": {"kind": "rate_limited", "message": "Slowly."}}', b"slowly"])
def test_a_429_says_when_to_come_again(body: bytes) -> None:
    raw = answer(body, "429 Too Many Requests").replace(b"\r\n\r\n", b"\r\nRetry-After: 7\r\n\r\n", 1)
    with scripted([raw]) as (_, connection):
        with pytest.raises(RateLimited) as caught:
            connection.json("GET", "/about")
        assert caught.value.retry_after == 7


@pytest.mark.parametrize("text", ["localhost:5101", "ftp://localhost", "http://", ""])
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="http://localhost:5101"):
        Connection(text)


def test_requests_share_a_connection() -> None:
    with scripted_server([OK, OK, OK]) as script, Connection(f"{script.url}/prefix/", "/d") as connection:
        for method in ("GET", "POST", "GET"):
            assert connection.json(method, "/x", None, a=1) == {"fine": 1}
    assert script.requests == [f"{method} /prefix/x?domain=/d&a=1" for method in ("GET", "POST", "GET")]


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_connection_closed_when_idle_is_opened_again(method: str) -> None:
    with scripted([OK], [OK]) as (script, connection):
        connection.json("GET", "/first")
        script.closed[0].wait()
        assert connection.json(method, "/second", {"n": 1}) == {"fine": 1}
    assert script.requests == ["GET /first", f"{method} /second"]


def test_a_get_that_a_kept_connection_lost_is_sent_again_once() -> None:
    with scripted([OK, HANG_UP], [OK, HANG_UP], [HANG_UP]) as (script, connection):
        connection.json("GET", "/a")
        assert connection.json("GET", "/b") == {"fine": 1}
        with pytest.raises(Unreachable, match="does not answer"):
            connection.json("GET", "/c")
    assert script.requests == ["GET /a", "GET /b", "GET /b", "GET /c", "GET /c"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_what_changes_something_is_never_sent_twice(method: str) -> None:
    with scripted([OK, HANG_UP], [OK]) as (script, connection):
        connection.json("GET", "/a")
        with pytest.raises(Unreachable, match=f"a {method} .* may or may not have carried it out"):
            connection.json(method, "/b", {"n": 1})
        assert connection.json("GET", "/c") == {"fine": 1}
    assert script.requests == ["GET /a", f"{method} /b", "GET /c"]


def test_a_get_over_a_new_connection_is_sent_once() -> None:
    with scripted([HANG_UP]) as (script, connection), pytest.raises(Unreachable):
        connection.json("GET", "/a")
    assert script.requests == ["GET /a"]


def test_an_answer_cut_short_is_no_answer() -> None:
    cut = answer(b"0123456789")[:-3]
    with scripted([cut]) as (_, connection), pytest.raises(Unreachable, match="does not answer"):
        connection.json("GET", "/a")


def test_a_server_that_is_not_there() -> None:
    with scripted_server() as script:
        url = script.url
    with Connection(url) as connection, pytest.raises(Unreachable, match=f"{url} does not answer"):
        connection.json("GET", "/")


REDIRECT = b"HTTP/1.1 301 Moved Permanently\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", "answers with TLS: write https://."),
        (HANG_UP, "as a server that expects https:// does"),
        (
            answer(b"plain HTTP request was sent to HTTPS port", "400 Bad Request", "text/html"),
            "write https://.",
        ),
        (
            REDIRECT % b"https://127.0.0.1:8443/a",
            "to https://127.0.0.1:8443, .* write https://127.0.0.1:8443/sub.",
        ),
        (REDIRECT % b"/oauth2/start", "to /oauth2/start, .* not of a page to sign in at"),
        (answer(b"", "414 URI Too Long", "text/html"), "the length of a URL"),
        (answer(b"", "431 Too Large", "text/html"), "its limit on headers"),
        (
            answer(b"<h1>Request Header Or Cookie Too Large</h1>", "400 Bad Request", "text/html"),
            "its limit on headers",
        ),
    ],
)
def test_what_answers_in_place_of_a_server_is_named_with_the_remedy(raw: bytes, words: str) -> None:
    with (
        scripted_server([raw]) as script,
        Connection(f"{script.url}/sub") as connection,
        pytest.raises(HsparseError, match=words),
    ):
        connection.json("GET", "/")


def test_a_url_of_another_protocol_or_path(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with_tls = url.replace("http:", "https:")
    for wrong, words in (
        (with_tls, f"{with_tls} answers without TLS: write http://"),
        (f"{url}/sub", f"The server of {url}/sub has no resources below /sub: omit /sub from the URL"),
    ):
        with Connection(wrong) as connection, pytest.raises(OtherServer, match=words):
            connection.json("GET", "/", domain="/home")
        assert main(["ls", "/home", "--endpoint", wrong]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"hsparse: {words}"), said


def test_a_body_refused_before_it_is_sent_whole(tmp_path: Path) -> None:
    settings = load_settings(
        root=tmp_path, port=0, fsync=False, max_request_size=MIB, max_write_size=32 * MIB
    )
    with embedded_server(settings) as url, Connection(url, "/large.h5") as connection:
        connection.json("PUT", "/", {})
        body = {"type": "H5T_STD_U8LE", "shape": [64 * MIB], "h5path": "/large"}
        id = connection.json("POST", "/datasets", body)["id"]
        with pytest.raises(TooLarge, match="max_write_size"):
            connection.json("PUT", f"/datasets/{id}/value", bytes(64 * MIB))
        assert connection.json("GET", f"/datasets/{id}")["id"] == id


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (answer(b"404: Not Found", "404 Not Found", "text/plain"), NotFound),
        (answer(b"<p>nowhere</p>", "404 Not Found", "text/html"), OtherServer),
        (answer(b'{"message": "no Route matched"}', "404 Not Found"), HsparseError),
        (answer(b"default backend - 404", "404 Not Found", "text/plain"), HsparseError),
        (answer(b"<p>sign in</p>", "401 Unauthorized", "text/html"), Unauthenticated),
        (answer(b"<p>no</p>", "403 Forbidden", "text/html"), Forbidden),
        (answer(b"<p>slow down</p>", "429 Too Many Requests", "text/html"), RateLimited),
        (answer(b"<p>too large</p>", "413 Content Too Large", "text/html"), TooLarge),
        (answer(b"<p>oops</p>", "500 Internal Server Error", "text/html"), GatewayFailed),
        (answer(b"500: Internal Server Error", "500 Internal Server Error", "text/plain"), HsparseError),
        (answer(b"<p>gateway</p>", "502 Bad Gateway", "text/html"), GatewayFailed),
        (answer(b"", "520 ", "text/html"), GatewayFailed),
        (answer(b"", "503 Service Unavailable"), Busy),
        (answer(b'{"error": "text"}', "400 Bad Request"), BadRequest),
        (answer(b'{"error": {"kind": "corrupt", "message": "it is"}}', "500 Oops"), Corrupt),
        (answer(b'{"error": {"kind": "newer", "message": "it is"}}', "409 Conflict"), Conflict),
        (answer(b"", "302 Found"), OtherServer),
        (answer(b"to an HTTPS port", "400 Bad Request", "text/html"), OtherServer),
    ],
)
def test_errors_of_other_servers(raw: bytes, error: type[HsparseError]) -> None:
    with scripted([raw]) as (_, connection), pytest.raises(HsparseError) as caught:
        connection.json("GET", "/a")
    assert isinstance(caught.value, error)
    assert caught.value.kind is error.kind


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (
            answer(b'{"error": {"kind": "not_found", "message": "/a is not there."}}', "404 No"),
            "/a is not there.",
        ),
        (answer(b"404: not there", "404 Gone Away"), "GET /a was answered with 404 Gone Away."),
    ],
)
def test_a_head_that_fails_is_asked_for_the_reason(second: bytes, sentence: str) -> None:
    head = answer(b"", "404 Gone Away")
    with scripted([head], [second]) as (script, connection):
        with pytest.raises(NotFound) as caught, connection.response("HEAD", "/a", layout="stock"):
            pass
        assert caught.value.message == sentence
    assert script.requests == ["HEAD /a?layout=stock", "GET /a?layout=stock"]


@pytest.mark.parametrize("body", [b"", b"<p>hello</p>", b"[1]", b'"text"', b"\xff"])
def test_an_answer_that_is_no_object(body: bytes) -> None:
    with scripted([answer(body)]) as (_, connection), pytest.raises(HsparseError, match="no JSON object"):
        connection.json("GET", "/a")


@pytest.mark.parametrize("body", [b"null", b"{}"])
def test_an_empty_answer_is_an_empty_object(body: bytes) -> None:
    with scripted([answer(body)]) as (_, connection):
        assert connection.json("DELETE", "/a") == {}


def test_nothing_is_no_answer_but_to_a_flush() -> None:
    nothing = b"HTTP/1.1 204 No Content\r\n\r\n"
    with scripted([nothing, nothing]) as (_, connection):
        assert connection.json("PUT", "/", {"flush": 1}) == {}
        with pytest.raises(HsparseError, match="with status 204 but no JSON object"):
            connection.json("PUT", "/datasets/d-1/value", b"0000")


def test_json_is_not_taken_for_bytes() -> None:
    with (
        scripted([OK]) as (_, connection),
        pytest.raises(HsparseError, match="the type application/json instead of application/octet-stream"),
    ):
        connection.binary("GET", "/a")


@pytest.mark.parametrize(
    ("kind", "status", "python"),
    [
        ("not_found", "404 Not Found", KeyError),
        ("gone", "410 Gone", KeyError),
        ("forbidden", "403 Forbidden", PermissionError),
        ("unauthenticated", "401 Unauthorized", PermissionError),
        ("bad_request", "400 Bad Request", ValueError),
        ("too_large", "413 Content Too Large", MemoryError),
        ("over_quota", "413 Content Too Large", OSError),
        ("store_full", "507 Insufficient Storage", OSError),
        ("unsupported", "400 Bad Request", NotImplementedError),
    ],
)
def test_errors_are_pythons_too(kind: str, status: str, python: type[Exception]) -> None:
    body = f'{{"error": {{"kind": "{kind}", "message": "It is so."}}}}'.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Request-ID: r-1\r\nContent-Length: {len(body)}"
    with scripted([head.encode() + b"\r\n\r\n" + body] * 2) as (_, connection):
        with pytest.raises(python) as caught:
            connection.json("GET", "/a")
        with pytest.raises(python), connection.response("GET", "/a"):
            pass
    assert isinstance(caught.value, HsparseError)
    assert (caught.value.kind, caught.value.request_id, str(caught.value)) == (kind, "r-1", "It is so.")
    codes = {"over_quota": errno.EDQUOT, "store_full": errno.ENOSPC}
    assert kind not in codes or getattr(caught.value, "errno", None) == codes[kind]


def test_a_url_with_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="user= and password=") as caught:
        Connection("http://ann:secret@127.0.0.1:5101")
    assert "secret" not in str(caught.value)
