"""Loopback S3 servers for tests: moto in this process, and `rclone serve s3` over a directory.

moto compares `If-Match` and `If-None-Match` on a put as S3 does, but compares and stores in two steps while
it serves each request in a thread. Here it serves one request at a time, so that the two are one. The condition of
a part that is copied, which moto ignores, is checked here.
"""

from __future__ import annotations

import io
import logging
import re
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from moto.moto_server.werkzeug_app import MotoRequestHandler
from moto.server import ThreadedMotoServer, create_backend_app

Answer: TypeAlias = tuple[str, list[tuple[str, str]], bytes]
"""Status, headers and body."""
Application: TypeAlias = Callable[[dict[str, Any]], Answer]
"""Answers the request in a WSGI environment."""


class _KeptConnection(MotoRequestHandler):
    """Answers one request after the other on a connection, as S3 does. moto's own handler closes it after each.

    A connection and a thread for each request would be half of what a request costs.
    """

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one write
    server: Any

    def run_wsgi(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.wfile.flush()
        self.environ = environ = self.make_environ()
        length = -1 if environ.get("wsgi.input_terminated") else int(environ.get("CONTENT_LENGTH") or 0)
        # The next request follows the body, so all of that is read.
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        self.answer(*self.server.app(environ))

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing; to spell a line took a tenth of a request's time."""

    def answer(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD" and all(name.lower() != "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _OneAtATime:
    """Makes a WSGI application answer one request at a time: a call returns status, headers and body."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any]) -> Answer:
        started: list[Any] = []
        with self._lock:
            body = b"".join(self._app(environ, lambda *start: started.extend(start)))
        return started[0], started[1], body


@contextmanager
def moto_server(
    host: str = "127.0.0.1", port: int = 0, around: Callable[[Application], Application] | None = None
) -> Iterator[str]:
    """Run the server at an address of this machine for the duration of the context, whose value is its URL.

    `around` makes what is asked in place of the application, of which it asks what it likes.
    """
    server = ThreadedMotoServer(ip_address=host, port=port, verbose=False)
    server.start()
    werkzeug = server._server
    assert werkzeug is not None
    # The application of S3 alone: moto's own one finds the service anew for each request, in half of its time.
    application: Application = _OneAtATime(create_backend_app("s3"))
    werkzeug.app = application if around is None else around(application)
    werkzeug.RequestHandlerClass = _KeptConnection
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    port = server.get_host_and_port()[1]
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()
        werkzeug.server_close()


def make_bucket(endpoint: str, bucket: str) -> None:
    """Create a bucket on a server that asks for no signature."""
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")
    with urllib.request.urlopen(request) as reply:
        assert reply.status == 200, f"the server refused to make the bucket {bucket!r}"


@contextmanager
def rclone_server(rclone: Path, directory: Path) -> Iterator[str]:
    """Serve `directory`, whose directories are the buckets; the context's value is the server's URL.

    `rclone` is the program. It takes the access key `test` with the secret `test`.
    """
    options = ["--addr", "127.0.0.1:0", "--auth-key", "test,test"]
    command = [str(rclone), "serve", "s3", *options, str(directory)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        reader = threading.Thread(target=process.stderr.read, daemon=True)  # a full pipe would stop it
        try:
            endpoint = _url(process)
            reader.start()
            yield endpoint
        finally:
            process.terminate()
            if reader.ident is not None:
                reader.join()


def _url(process: subprocess.Popen[str]) -> str:
    """Return the URL that the server names once it listens."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found[0]
    raise RuntimeError("rclone did not start: " + "".join(lines))
