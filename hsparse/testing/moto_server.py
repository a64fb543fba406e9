"""A loopback S3 server in this process, for tests: moto's, on a port of the system's choice.

moto compares `If-Match` and `If-None-Match` on a put as S3 does, but compares and stores in two steps while
it serves each request in a thread. Here it serves one request at a time, so that the two are one. The condition of
a part that is copied, which moto leaves out, is looked at here.
"""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer


class _OneAtATime:
    """A WSGI application that makes `app` answer one request at a time."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._lock:
            if not _source_matches(environ):
                start_response("412 Precondition Failed", [("Content-Type", "application/xml")])
                return [b"<Error><Code>PreconditionFailed</Code><Message>copy source</Message></Error>"]
            return list(self._app(environ, start_response))


def _source_matches(environ: dict[str, Any]) -> bool:
    """Say whether the object that a request copies, if it does, has the etag that it is to have."""
    wanted = environ.get("HTTP_X_AMZ_COPY_SOURCE_IF_MATCH")
    if wanted is None:
        return True
    bucket, _, key = unquote(environ["HTTP_X_AMZ_COPY_SOURCE"]).lstrip("/").partition("/")
    found = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets.get(bucket)
    source = None if found is None else found.keys.get(key)
    return source is None or source.etag == wanted  # what is not there is refused by moto


@contextmanager
def moto_server() -> Iterator[str]:
    """Run the server for the duration of the context, whose value is its URL."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    werkzeug = server._server
    assert werkzeug is not None
    werkzeug.app = _OneAtATime(werkzeug.app)
    handler: Any = werkzeug.RequestHandlerClass
    handler.protocol_version = "HTTP/1.1"  # connections are kept, as S3 keeps them
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line a request tells nothing
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()
        werkzeug.server_close()


def make_bucket(endpoint: str, bucket: str) -> None:
    """Create a bucket on a server that asks for no signature."""
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")  # noqa: S310 (a loopback URL)
    with urllib.request.urlopen(request) as reply:  # noqa: S310
        assert reply.status == 200, f"the server refused to make the bucket {bucket!r}"
