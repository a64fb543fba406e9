"""A loopback Google Storage for tests: its XML API, in memory, as far as obstore asks it.

No emulator in a package registry has that API with conditions: fake-gcs-server refuses its uploads, and
gcp-storage-emulator ignores `x-goog-if-generation-match`. This one follows Google's reference of the XML API: an object
has an ETag, the MD5 of its bytes, and a generation, which grows; a put may be on the condition of a generation, 0 for
no object; a listing has ETags, and no generations.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

CONDITION = "x-goog-if-generation-match"
MARKS = "x-goog-meta-"
LISTED_AT = "2026-01-01T00:00:00.000Z"


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    generation: int
    marks: dict[str, str]

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


@dataclass(slots=True)
class _Buckets:
    """The objects of each bucket; a request holds the lock."""

    objects: dict[str, dict[str, _Object]] = field(default_factory=dict)
    page: int = 1000
    """The most keys and prefixes that a page of a listing has."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    generations: Iterator[int] = field(default_factory=lambda: itertools.count(1_700_000_000_000_000))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one write
    buckets: _Buckets

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._answer_request()

    def do_HEAD(self) -> None:
        self._answer_request()

    def do_PUT(self) -> None:
        self._answer_request()

    def do_DELETE(self) -> None:
        self._answer_request()

    def _answer_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        bucket, _, key = url.path.lstrip("/").partition("/")
        with self.buckets.lock:
            objects = self.buckets.objects.get(unquote(bucket))
            if objects is None:
                self._refuse(404, "NoSuchBucket")
            elif not key:
                self._list(objects, {name: values[0] for name, values in parse_qs(url.query).items()})
            else:
                getattr(self, f"_{self.command.lower()}")(objects, unquote(key), body)

    def _get(self, objects: dict[str, _Object], key: str, body: bytes) -> None:
        found = objects.get(key)
        if found is None:
            self._refuse(404, "NoSuchKey")
            return
        size = len(found.data)
        headers = {
            "ETag": found.etag,
            "x-goog-generation": str(found.generation),
            "Last-Modified": formatdate(usegmt=True),
            **found.marks,
        }
        if (span := self.headers.get("range")) is None:
            self._answer(200, found.data, headers)
            return
        begin, _, end = span.removeprefix("bytes=").partition("-")
        first = int(begin) if begin else max(size - int(end), 0)
        last = min(int(end), size - 1) if begin and end else size - 1
        if first >= size:
            self._refuse(416, "InvalidRange")
            return
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        self._answer(206, found.data[first : last + 1], headers)

    _head = _get

    def _put(self, objects: dict[str, _Object], key: str, body: bytes) -> None:
        wanted = self.headers.get(CONDITION)
        there = objects[key].generation if key in objects else 0
        if wanted is not None and int(wanted) != there:
            self._refuse(412, "PreconditionFailed")
            return
        marks = {name: value for name, value in self.headers.items() if name.lower().startswith(MARKS)}
        made = objects[key] = _Object(body, next(self.buckets.generations), marks)
        self._answer(200, b"", {"ETag": made.etag, "x-goog-generation": str(made.generation)})

    def _delete(self, objects: dict[str, _Object], key: str, body: bytes) -> None:
        if objects.pop(key, None) is None:
            self._refuse(404, "NoSuchKey")
        else:
            self._answer(204, b"", {})

    def _list(self, objects: dict[str, _Object], query: dict[str, str]) -> None:
        """Answer a page, which ends at `max-keys` objects and prefixes; its token is the last name."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        token = query.get("continuation-token", "")
        after = max(query.get("start-after", ""), token)
        lines, last, names = [], "", set()
        for key in sorted(objects):
            cut = key.find("/", len(prefix)) if delimiter and key.startswith(prefix) else -1
            name = key if cut < 0 else key[: cut + 1]
            if not key.startswith(prefix) or name <= after or name in names:
                continue
            if len(names) == min(int(query.get("max-keys", 1000)), self.buckets.page):
                lines.append(f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(last)}")
                lines.append("</NextContinuationToken>")
                break
            names.add(name)
            last = name
            if cut < 0:
                found = objects[key]
                lines.append(
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(found.data)}</Size>"
                    f"<LastModified>{LISTED_AT}</LastModified><ETag>{escape(found.etag)}</ETag></Contents>"
                )
            else:
                lines.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
        self._answer(200, f"<ListBucketResult>{''.join(lines)}</ListBucketResult>".encode(), {})

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode(), {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()


class GoogleServer(ThreadingHTTPServer):
    """The server; `make_bucket` makes a bucket, which obstore cannot."""

    daemon_threads = True

    def __init__(self, host: str) -> None:
        self.buckets = _Buckets()
        super().__init__((host, 0), type("Handler", (_Handler,), {"buckets": self.buckets}))
        self.url = f"http://{host}:{self.server_port}"

    def make_bucket(self, name: str) -> None:
        self.buckets.objects[name] = {}


@contextmanager
def google_server(host: str = "127.0.0.1") -> Iterator[GoogleServer]:
    """Run the server while the context lasts."""
    with GoogleServer(host) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def google_config(endpoint: str) -> dict[str, str]:
    """Return obstore's configuration of the server, which takes any credentials."""
    return {"base_url": endpoint, "bearer_token": "test"}


def google_variables(endpoint: str) -> dict[str, str]:
    """Return the same as variables of the environment."""
    return {f"GOOGLE_{name.upper()}": value for name, value in google_config(endpoint).items()}
