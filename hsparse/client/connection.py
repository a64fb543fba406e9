"""HTTP requests to an HDF REST API server over persistent connections, with errors raised as Python exceptions."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from hsparse.client.errors import InvalidValue, Unreachable
from hsparse.client.http.address import is_loopback, parse_endpoint
from hsparse.client.http.answers import answered_error, check_type, json_object, other_protocol
from hsparse.client.http.client_span import client_span, note_status
from hsparse.client.http.connection_pool import BROKEN, ConnectionPool
from hsparse.client.http.retry import Repeatable, Retry
from hsparse.client.http.route import is_incomplete
from hsparse.client.memory_limit import default_limit
from hsparse.clock import SystemClock
from hsparse.errors import HsparseError
from hsparse.format.buffer import Buffer

if TYPE_CHECKING:
    from hsparse.client.batch import PendingCreations

JSON = "application/json"
BINARY = "application/octet-stream"
OK, NO_CONTENT = 200, 204
Json: TypeAlias = dict[str, Any]
Body: TypeAlias = Json | list[Json] | Buffer
Headers: TypeAlias = dict[str, str]
T = TypeVar("T")
GROWING = ("append", "extend")
"""Names of parameters or body members; a request that has one is not idempotent without an idempotency key."""
KEY_HEADER = "Idempotency-Key"
TIMEOUT_HEADER = "Request-Timeout"
CHANGING_POSTS = (
    "/groups",
    "/datasets",
    "/datatypes",
    "/erase",
    "/jobs",
    "/snapshots",
    "/restore",
    "/materialize",
)
"""The ends of the paths of POST requests that change data; all other POST requests only read."""
OPENED_TO_READ = "was opened read-only, with mode 'r': open it with 'r+' to change it."
NEVER_CHANGES = "is a snapshot, which never changes: change the domain itself, or a clone of it."
TIMED_BODY = 1 << 20
"""The maximum size, in bytes, of a body that is sent with the timeout header: a larger upload could take longer."""


class Connection:
    """A client for one domain of a server, shared by any number of threads and processes.

    `url` is the URL of the server, `domain` the path of the domain (`/home/user/file.h5`). Every request carries `user`
    and `password` as HTTP Basic credentials (RFC 7617), or `token`, an API key or a token of the server's issuer, as a
    bearer token (RFC 6750). A request fails if no byte arrives for `timeout` seconds; the server also gets `timeout`,
    and stops working on a read after that time.

    No two requests use an HTTP connection at the same time; up to `MAX_IDLE` idle connections are kept for reuse. If a
    kept connection breaks, a GET is sent once more over a new connection; any other request may have been carried out,
    so it raises `Unreachable`. `retry` bounds the time of retries if the server is busy, and the number of retries if
    the server does not answer a read. An append or extend carries an `Idempotency-Key`, and is retried like a read if
    the server supports such keys.

    `proxy` is the URL of an HTTP proxy, `http://user:password@host:port`, or "" to use no proxy; by default, the
    variables `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` apply, but not to servers on this machine. `ca_file` is a PEM
    file of authorities to trust in addition to the system's; the default is `HSPARSE_CA_FILE`.

    A forked process opens its own HTTP connections. A pickle of this object has the URL, the domain **and the
    credentials**: keep the pickle as safe as the password.

    >>> with hsparse.Connection("http://127.0.0.1:5101", "/home/ann/run.h5", token="...") as connection:
    ...     print(connection.url, connection.domain)
    http://127.0.0.1:5101 /home/ann/run.h5
    """

    direct: Any = False
    """How stored chunks are read without the server (`hsparse.client.sources.elements.Direct`), or False if never."""
    max_bytes: int = default_limit()
    """The maximum size of a result, in bytes, of datasets that are opened later; default: a third of the memory."""
    is_read_only = False
    """Whether the client rejects changes, because the domain was opened with mode "r" or is a snapshot."""
    snapshot: int | None = None
    """The number of the snapshot, or None if the domain is not a snapshot."""
    is_closed = False
    """Whether the file or folder was closed; then every request raises an error."""
    batch: PendingCreations | None = None
    """The batch of new objects that must be sent before any other request, or None; see `Group.batch`."""

    def __init__(
        self,
        url: str,
        domain: str | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        timeout: float = 60.0,
        retry: Retry | None = None,
        proxy: str | None = None,
        ca_file: str | Path | None = None,
    ) -> None:
        parts = parse_endpoint(url)
        self.url = url.rstrip("/")
        self.domain = domain
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Accept": JSON, TIMEOUT_HEADER: f"{timeout:.3f}"} | _credentials(
            user, password, token
        )
        self.timeout = timeout
        self._retry = retry or Retry()
        self._heeds_keys: list[bool] = []
        """Has an item if the server is known to support idempotency keys; `for_domain` shares the list."""
        self._route = proxy, ca_file
        self._pool = self._new_pool()

    def _new_pool(self) -> ConnectionPool:
        parts = urlsplit(self.url)
        return ConnectionPool(parts.scheme, parts.hostname or "", parts.port, self.timeout, *self._route)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to pickle: all, including the credentials, except the connections and the batch."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_pool", "batch")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pool = self._new_pool()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_here(self) -> bool:
        """Whether the address of the server is an address of this machine, such as `localhost`.

        >>> hsparse.Connection("http://127.0.0.1:5101").is_here
        True
        """
        return is_loopback(urlsplit(self.url).hostname or "")

    def for_domain(self, domain: str | None) -> Self:
        """Return a `Connection` to another domain, or to no domain if None; both share their HTTP connections.

        `close` of one `Connection` does not mark the other as closed.

        >>> f.connection.for_domain("/home/admin").json("GET", "/")["class"]
        'folder'
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, domain=domain, snapshot=None)
        return other

    def close(self) -> None:
        """Close all HTTP connections, busy ones after their requests; later requests raise `InvalidValue`.

        >>> f.connection.close()
        >>> f.connection.json("GET", "/")
        Traceback (most recent call last):
        hsparse.client.errors.InvalidValue: /home/admin/run.h5 is closed: open it again.
        """
        if self.batch is not None and not self.is_closed:
            self.batch.send()
        self.is_closed = True
        self._pool.close()

    def json(self, method: str, path: str, body: Body | None = None, **params: object) -> Json:
        """Send a request and return the JSON object of its answer, or `{}` if the answer is empty.

        A `body` that is a dict or list is sent as JSON; bytes are sent as `application/octet-stream`. Parameters that
        are None are omitted, and booleans are sent as 1 and 0. Raises the `HsparseError` that the server answers.

        >>> f.connection.json("GET", "/")["lastModified"] > 0
        True
        >>> f.connection.json("GET", f"/datasets/{X.id}/shape")["shape"]["dims"]
        [4, 3]
        """
        response, data = self._request(method, path, body, JSON, params)
        if response.status == NO_CONTENT and is_named("flush", params, body):
            return {}
        return json_object(self.url, f"{method} {path}", data, response.status)

    def binary(self, method: str, path: str, body: Body | None = None, **params: object) -> bytes:
        """Send a request like `json`, and return the bytes of the answer.

        >>> data = f.connection.binary("GET", f"/datasets/{X.id}/value", select="[0,:]")
        >>> np.frombuffer(data, "<f4")
        array([1., 0., 2.], dtype=float32)
        """
        return self._request(method, path, body, BINARY, params)[1]

    def json_if_changed(
        self, path: str, etag: str | None, **params: object
    ) -> tuple[Json | None, str | None]:
        """Return a pair: the JSON object at a path, or None if its etag still is `etag`; and its etag from the header.

        The etag is None if the server sends no etag.

        >>> path = f"/datasets/{X.id}/map"
        >>> answer, etag = f.connection.json_if_changed(path, None)
        >>> f.connection.json_if_changed(path, etag)[0] is None
        True
        """
        self.check_open("GET", path)
        headers = self._headers | ({} if etag is None else {"If-None-Match": etag})
        target = self._target(path, params)

        def send() -> tuple[http.client.HTTPResponse, bytes]:
            response, data = self._exchange("GET", target, None, headers)
            if response.status >= 300 and not (response.status == 304 and etag is not None):
                raise answered_error(self.url, f"GET {path}", response, data)
            return response, data

        response, data = self.repeated(send)
        if response.status == 304:
            return None, etag
        return json_object(self.url, f"GET {path}", data), response.headers.get("ETag")

    def repeated(self, read: Callable[[], T]) -> T:
        """Return `read()`, which must only read, and call it again as `retry` allows; used for answers of `stream`.

        >>> f.connection.repeated(lambda: f.connection.json("GET", "/")["owner"])
        'admin'
        """
        return self._retry.run(read, Repeatable())

    @contextmanager
    def stream(
        self, method: str, path: str, accept: str, body: Body | None = None, **params: object
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request that only reads, like `json`, and yield its answer, which the caller reads inside the context.

        The HTTP connection is kept if the answer is read to its end. If a kept connection breaks, the request, even a
        POST, is sent once more over a new connection. Raises the `HsparseError` that the server answers, or
        `Unreachable` if the connection breaks, even while the caller reads the answer.

        >>> with f.connection.stream("GET", f"/datasets/{X.id}/value", "application/octet-stream") as answer:
        ...     print(len(answer.read()))
        48
        """
        self.check_open("GET", path)
        target, data, headers = self._parts(path, body, accept, params)
        with (
            client_span(method, self._prefix + path, headers) as span,
            self._answer(method, target, data, headers) as response,
        ):
            note_status(span, response.status)
            if response.status >= 300:
                raise answered_error(self.url, f"{method} {path}", response, response.read())
            check_type(self.url, f"{method} {path}", response, accept)
            yield response

    @contextmanager
    def _answer(
        self, method: str, target: str, data: Buffer | None, headers: Headers
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request that only reads, and yield its answer for `stream`."""
        connection, response = self._ask_again(method, target, data, headers)
        is_whole = False
        try:
            with self._reading():
                yield response
                is_whole = response.isclosed()
        finally:
            response.close()  # after "Connection: close" the response, not the connection, owns the socket
            (self._pool.give_back if is_whole else self._pool.drop)(connection)

    @contextmanager
    def response(
        self, method: str, path: str, headers: Headers | None = None, **params: object
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request without a body and without retries; yield its answer, which the caller reads in the context.

        Raises the `HsparseError` that the server answers, or `Unreachable` if the connection breaks, even while the
        caller reads the answer. A failed HEAD is followed by a GET of one byte, because its answer names no error.

        >>> with f.connection.response("GET", "/about") as answer:
        ...     print(answer.status, answer.headers["Content-Type"])
        200 application/json; charset=utf-8
        """
        self.check_open("GET", path)
        target, sent = self._target(path, params), self._headers | {"Accept": "*/*"} | (headers or {})
        connection, _ = self._take()
        try:
            with self._reading(), ExitStack() as read:
                with client_span(method, self._prefix + path, sent) as span:
                    connection.request(method, target, headers=sent)
                    response = read.enter_context(closing(connection.getresponse()))
                    note_status(span, response.status)
                if response.status >= 300:
                    error = answered_error(self.url, f"{method} {path}", response, response.read())
                    if method == "HEAD":
                        with self.response("GET", path, {**(headers or {}), "Range": "bytes=0-0"}, **params):
                            pass
                    raise error
                yield response
        finally:
            self._pool.drop(connection)

    @property
    def open_batch(self) -> PendingCreations | None:
        """The batch that the calling thread has opened, or None if the thread has no open batch.

        >>> with f.batch():
        ...     print(f.connection.open_batch is None)
        False
        """
        return self.batch if self.batch is not None and self.batch.is_of_this_thread else None

    def check_open(self, method: str = "GET", path: str = "/") -> None:
        """Check that a request with this method and path is allowed, and send a waiting batch.

        Raises `InvalidValue` for any request if the connection is closed, or for a change if it is read-only.

        >>> f.connection.check_open("PUT", "/")
        """
        name = self.domain or self.url
        if self.is_closed:
            raise InvalidValue(f"{name} is closed: open it again.")
        if self.is_read_only and (
            method in ("PUT", "DELETE") or (method == "POST" and path.endswith(CHANGING_POSTS))
        ):
            raise InvalidValue(f"{name} {OPENED_TO_READ if self.snapshot is None else NEVER_CHANGES}")
        if self.batch is not None:
            self.batch.send()

    def _target(self, path: str, params: Mapping[str, object]) -> str:
        query = {"domain": self.domain, **params}
        given = {name: _text(value) for name, value in query.items() if value is not None}
        try:
            text = urlencode(given, safe=":,/")
            return f"{self._prefix}{quote(path)}{'?' if text else ''}{text}"
        except UnicodeEncodeError as error:
            raise InvalidValue(f"{error.object!r} is not valid Unicode: it has a lone surrogate.") from error

    def _request(
        self, method: str, path: str, body: Body | None, accept: str, params: Mapping[str, object]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        self.check_open(method, path)
        target, data, headers = self._parts(path, body, accept, params)

        def send() -> tuple[http.client.HTTPResponse, bytes]:
            response, answer = self._exchange(method, target, data, headers)
            if response.status >= 300:
                raise answered_error(self.url, f"{method} {path}", response, answer)
            return response, answer

        if not any(is_named(one, params, body) for one in GROWING):
            repeatable = Repeatable.request(method, reads=accept == BINARY)
        else:
            headers[KEY_HEADER] = f'"{SystemClock().token(16).hex()}"'
            repeatable = Repeatable(known=self._is_made_once)
        response, answer = self._retry.run(send, repeatable)
        if accept == BINARY:
            check_type(self.url, f"{method} {path}", response, accept)
        return response, answer

    def _is_made_once(self) -> bool:
        """Return whether the server applies a change once per idempotency key; cache the server's answer if true."""
        if not self._heeds_keys:
            try:
                response, data = self._exchange("GET", self._target("/about", {}), None, self._headers)
                about = json_object(self.url, "GET /about", data, response.status)
            except HsparseError:
                return False
            if response.status == OK and about.get("idempotency_keys") is True:
                self._heeds_keys.append(True)
        return bool(self._heeds_keys)

    def _parts(
        self, path: str, body: Body | None, accept: str, params: Mapping[str, object]
    ) -> tuple[str, Buffer | None, Headers]:
        """Return a triple: the target (path and query), the body in bytes, and the headers of a request."""
        headers = self._headers | {"Accept": accept}
        data: Buffer | None = None
        if body is not None:
            data = json.dumps(body).encode() if isinstance(body, dict | list) else body
            headers["Content-Type"] = JSON if isinstance(body, dict | list) else BINARY
            if memoryview(data).nbytes > TIMED_BODY:
                del headers[TIMEOUT_HEADER]
        return self._target(path, params), data, headers

    def _ask_again(
        self, method: str, target: str, data: Buffer | None, headers: Headers
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request that only reads; if a kept connection breaks, send it once more over a new connection.

        Return a pair: the connection, and the answer, which is not read yet.
        """
        connection, kept = self._take()
        while True:
            try:
                with suppress(BrokenPipeError):
                    connection.request(method, target, data, headers)
                return connection, connection.getresponse()
            except BROKEN as error:
                self._pool.drop(connection)
                if not kept or isinstance(error, TimeoutError):
                    raise self._unreachable("GET", error) from error
            try:
                connection, kept = self._pool.open(), False
            except OSError as error:
                raise self._unreachable("GET", error) from error

    def _exchange(
        self, method: str, target: str, data: Buffer | None, headers: Headers
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request in a tracing span; return a pair: the response and its bytes. Repeat a GET if needed."""
        with client_span(method, target.partition("?")[0], headers) as span:
            connection, kept = self._take()
            try:
                response, answer = self._pool.exchange(connection, kept, method, target, data, headers)
            except BROKEN as error:
                raise self._unreachable(method, error) from error
            note_status(span, response.status)
        return response, answer

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a pair: a connection, and whether an earlier request used it; raise `Unreachable` if none opens."""
        try:
            return self._pool.take()
        except OSError as error:
            raise self._unreachable("GET", error) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise `Unreachable` if the connection breaks while an answer is read."""
        process = os.getpid()
        try:
            yield
        except BROKEN as error:
            if isinstance(error, HsparseError):  # some of them are OSErrors too
                raise
            if process != os.getpid():
                raise Unreachable(
                    f"Only the process that sent a request to {self.url} can read the answer: send it again here."
                ) from error
            raise self._unreachable("GET", error) from error

    def _unreachable(self, method: str, error: Exception) -> HsparseError:
        reason = str(error) or type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            cause = "lacks extensions that RFC 5280 requires" if is_incomplete(error) else "is not trusted"
            return InvalidValue(
                f"The certificate of {self.url} {cause} ({error.verify_message}): name the file of its CA in "
                f"ca_file= or HSPARSE_CA_FILE{', which relaxes that requirement' * is_incomplete(error)}."
            )
        if (other := other_protocol(self.url, error)) is not None:
            return other
        if isinstance(error, http.client.RemoteDisconnected) and self.url.startswith("http:"):
            reason += ", as a server that expects https:// does"
        if self._pool.proxy is not None:
            reason += f", through the proxy {self._pool.proxy.host}:{self._pool.proxy.port}"
        if method == "GET":
            return Unreachable(
                f"{self.url} does not answer ({reason}): check that the server runs, and try again."
            )
        return Unreachable(
            f"{self.url} did not answer a {method} request ({reason}), and may or may not have carried it out: "
            "check that the server runs, and look for the change before you send the request again."
        )


def _credentials(user: str | None, password: str | None, token: str | None) -> dict[str, str]:
    if token is not None:
        if user is not None or not token.isascii() or not token.isprintable():
            # The message omits the token, because it may be a secret.
            raise InvalidValue("A token must be printable ASCII, and be given without user and password.")
        return {"Authorization": f"Bearer {token}"}
    if user is None:
        return {}
    if ":" in user:
        raise InvalidValue(f"The user name {user!r} must have no colon, as HTTP Basic cannot send one.")
    pair = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def is_named(name: str, params: Mapping[str, object], body: Body | None) -> bool:
    """Return whether a request has a parameter or a body member with this name."""
    return name in params or (isinstance(body, dict) and name in body)


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
