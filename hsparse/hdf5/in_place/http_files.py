"""Files that a web server lists below a URL, read with range requests (RFC 9110, 14).

The contents of a folder are its page's links to names directly below it, as in the index pages of nginx and Apache.

Requests that fail temporarily are retried with pauses; after the deadline, `Busy` is raised. A 404 may come from a
proxy whose server is down, so a path counts as absent only if the page of the place answers and a second request for
the path gets a 404 again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from typing import TypeVar
from urllib.parse import quote, unquote, urljoin, urlsplit

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from hsparse.attempts import STORE
from hsparse.clock import SystemClock
from hsparse.concurrency.gathering import gather_each
from hsparse.errors import (
    Busy,
    Conflict,
    Forbidden,
    HsparseError,
    Misconfigured,
    NotFound,
    StoreFailed,
    Unsupported,
)
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.superblock import SIGNATURE
from hsparse.hdf5.importer.block_cache import Blocks
from hsparse.hdf5.importer.remote_source import LoopThread, RemoteSource
from hsparse.hdf5.importer.source import InputFile
from hsparse.hdf5.importer.source_files import SourceFiles
from hsparse.hdf5.in_place.folders import (
    REMOTE_READERS,
    FileState,
    FolderContent,
    SourceStates,
    check_named,
    is_served_name,
    is_unnamed,
    is_visible,
)
from hsparse.hdf5.in_place.looked_names import MOST_LOOKED

CONNECT_SECONDS, REQUEST_SECONDS = 5.0, 120.0
DEADLINE, START_SECONDS = 30.0, 5.0
"""Seconds for which a failing request is retried: while the server runs, and when the server starts."""
TEMPORARY = {408, 425, 429, 500, *range(502, 600)}
"""Response statuses after which the request is retried."""
MOST_PAGE = 64 * 1024 * 1024
"""Most bytes of a page that lists a folder."""
REQUESTS_AT_ONCE = 16
PLACE = "s3://place"
"""Replaces the place's URL in `SourceFiles`, which resolves names of other files only below `s3://` prefixes."""


R = TypeVar("R")


class _Unavailable(Exception):
    """A temporary failure of the server; `pause` is the least number of seconds to wait before a retry."""

    def __init__(self, what: str, pause: float = 0.0) -> None:
        super().__init__(what)
        self.pause = pause


class HttpFiles:
    """A `FileFolder` below a URL. Redirects are not followed: they may lead anywhere."""

    readers = REMOTE_READERS

    def __init__(self, url: str) -> None:
        """Raise `Misconfigured` if the URL has no page, or if its server does not support range requests."""
        self.place = self._url = url.rstrip("/") + "/"
        self._server = urlsplit(url).hostname or url
        self._clock, self._started = SystemClock(), False
        self._blocks = Blocks()
        self._thread = LoopThread("http")
        self._session = self._thread.wait(_session())
        try:
            self._check(url)
        except HsparseError as error:
            self.close()
            raise Misconfigured(f"--files {url}: {error.message}") from error
        self._started = True

    def _check(self, url: str) -> None:
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.fragment:
            raise Misconfigured("the URL must be like https://host/folder/, without query or fragment.")
        for path, state in self._thread.wait(self._content("", looks=False)).files.items():
            self._thread.wait(self._read(path, state, ByteRange(0, min(1, state.size))))
            break

    def content(self, path: str) -> FolderContent:
        if not is_visible(path):
            raise NotFound(f"There is no folder {path}.")
        return self._thread.wait(self._content(f"{path}/" if path else ""))

    def state(self, path: str) -> FileState | None:
        if not is_visible(path):
            raise NotFound(f"There is no {path}.")
        return self._thread.wait(self._state_of(path))

    def open(self, path: str, state: FileState) -> tuple[InputFile, SourceFiles]:
        states = SourceStates(path)
        files = SourceFiles(
            f"{PLACE}/{path}", lambda other: self._other(other, states), (PLACE,), path, self._etag_of
        )
        return self._source(path, state), files

    def close(self) -> None:
        self._thread.close(self._session.close)

    def _other(self, location: str, states: SourceStates) -> InputFile:
        path = location.removeprefix(f"{PLACE}/")
        if not is_unnamed(path):
            check_named(path)
        state = self.state(path)  # raises NotFound for a file without a known suffix that is not HDF5
        if state is None:
            raise NotFound(f"There is no file {path}.")
        states.check(path, state.etag)
        return self._source(path, state)

    def _etag_of(self, location: str) -> str:
        state = self.state(location.removeprefix(f"{PLACE}/"))
        if state is None:
            raise NotFound(f"There is no file {location}.")
        return state.etag

    def _source(self, path: str, state: FileState) -> InputFile:
        return RemoteSource(
            path,
            state.size,
            state.etag,
            self._thread,
            lambda wanted: self._read(path, state, wanted),
            self._blocks,
        )

    async def _content(self, folder: str, *, looks: bool = True) -> FolderContent:
        links = await self._tried(lambda: self._links(folder))
        names = sorted(name for name in links.found if not name.endswith("/") and is_served_name(name))
        others = sorted({name for name in links.found if is_visible(name)} - {*names})
        names += others[:MOST_LOOKED] if looks else []
        folders = {name[:-1] for name in links.found if name.endswith("/") and is_visible(name[:-1])}

        async def state(name: str) -> FileState | None:
            try:
                if is_served_name(name):
                    return await self._file_state(folder + name)
                return await self._tried(lambda: self._looked_at(folder + name))
            except (NotFound, Forbidden):
                return None  # a missing or protected file must not fail the listing

        states = await gather_each(state, names, REQUESTS_AT_ONCE)
        files = {name: found for name, found in zip(names, states, strict=True) if found is not None}
        return FolderContent(files, frozenset(folders))

    async def _links(self, folder: str) -> _Links:
        async with self._asked("GET", folder) as reply:
            data = bytearray()
            async for part in reply.content.iter_any():
                data += part
                if len(data) > MOST_PAGE:
                    raise StoreFailed(f"The page of {folder or 'the place'} exceeds {MOST_PAGE} bytes.")
            links = _Links(str(reply.url))
            links.feed(data.decode(errors="replace"))
            return links

    async def _state_of(self, path: str) -> FileState | None:
        if is_served_name(path.rpartition("/")[2]):
            try:
                return await self._file_state(path)
            except NotFound:
                pass  # it may be a folder
        elif path and (found := await self._tried(lambda: self._looked_at(path))) is not None:
            return found
        if path:
            await self._tried(lambda: self._answers("HEAD", f"{path}/"))
        return None

    async def _looked_at(self, path: str) -> FileState | None:
        """Return the state of a file by one request, or None if it does not begin with HDF5's signature."""
        try:
            async with self._asked("GET", path, Range=f"bytes=0-{len(SIGNATURE) - 1}") as reply:
                size = reply.headers.get("Content-Range", "").rpartition("/")[2]
                is_part = reply.status == 206 and reply.content_type != "text/html" and size.isdigit()
                begin = await reply.content.read(len(SIGNATURE)) if is_part else b""
                return self._state(path, reply, int(size)) if begin == SIGNATURE else None
        except (NotFound, Forbidden):
            return None

    async def _answers(self, method: str, path: str) -> None:
        async with self._asked(method, path):
            return

    async def _file_state(self, path: str) -> FileState:
        return await self._tried(lambda: self._headers(path))

    async def _headers(self, path: str) -> FileState:
        async with self._asked("HEAD", path) as reply:
            return self._state(path, reply, int(reply.headers.get("Content-Length", -1)))

    async def _read(self, path: str, state: FileState, wanted: ByteRange) -> bytes:
        """Read a range of a file; raise `Conflict` if the file is in another state or no longer exists."""
        if not wanted.size:
            return b""
        try:
            return await self._tried(lambda: self._range(path, state, wanted))
        except NotFound as error:
            raise _changed(path) from error

    async def _range(self, path: str, state: FileState, wanted: ByteRange) -> bytes:
        span = f"{wanted.address}-{wanted.address + wanted.size - 1}"
        async with self._asked("GET", path, Range=f"bytes={span}") as reply:
            if reply.status != 206:
                if self._started:  # the server did support ranges at the start: a proxy answers in its place
                    raise _Unavailable("answers no range")
                raise Unsupported(
                    f"The web server {self._server} does not support range requests, without which its files cannot "
                    "be served in place: import the files, or use nginx or Apache."
                )
            found, _, size = reply.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
            if self._state(path, reply, int(size) if size.isdigit() else -1).etag != state.etag:
                raise _changed(path)
            if found != span:
                raise _Unavailable("answers another range")
            try:
                return await reply.content.readexactly(wanted.size)
            except asyncio.IncompleteReadError as error:
                raise _Unavailable("ended its answer early") from error

    def _state(self, path: str, reply: ClientResponse, size: int) -> FileState:
        if self._started and reply.content_type == "text/html":  # an error page, probably of a proxy
            raise _Unavailable("answers a page in place of a file")
        etag, modified = reply.headers.get("ETag", ""), reply.headers.get("Last-Modified")
        if size < 0 or not (modified or (etag and not etag.startswith("W/"))):
            raise Unsupported(
                f"The web server {self._server} sends no size, or neither a strong ETag nor Last-Modified, for {path}."
            )
        known = etag if etag and not etag.startswith("W/") else modified
        try:
            seconds = parsedate_to_datetime(modified).timestamp() if modified else 0.0
        except ValueError:
            seconds = 0.0
        return FileState(size, seconds, f"{known} {size}")

    async def _tried(self, ask: Callable[[], Awaitable[R]]) -> R:
        """Send a request, retrying it while the server is unavailable; raise `Busy` after the deadline."""
        ends = self._clock.monotonic() + (DEADLINE if self._started else START_SECONDS)
        absent = False
        for attempt in itertools.count():
            try:
                try:
                    return await ask()
                except NotFound:
                    if absent or not self._started:
                        raise
                    await self._check_place()
                    absent = True
                    continue
            except _Unavailable as error:
                absent = False
                pause = max(STORE.random_pause(attempt, self._clock), error.pause)
                if self._clock.monotonic() + pause >= ends:
                    raise Busy(f"The server {self._server} {error}; try again later.") from error
            await asyncio.sleep(pause)
        raise AssertionError("the attempts have no end")

    async def _check_place(self) -> None:
        """Raise `_Unavailable` unless the page of the place answers: otherwise a 404 does not prove absence."""
        try:
            await self._answers("GET", "")
        except (NotFound, Forbidden) as error:
            raise _Unavailable("does not find the served folder itself") from error

    @asynccontextmanager
    async def _asked(self, method: str, path: str, **headers: str) -> AsyncIterator[ClientResponse]:
        """Send one request for a path in the place and yield the response; raise if its status is not 200 or 206."""
        try:
            async with self._session.request(
                method, self._url + quote(path), headers=headers, allow_redirects=False
            ) as reply:
                if reply.status in (404, 410, 416):
                    raise NotFound(f"There is no {path or 'such page'}.")
                if reply.status in (401, 403) or 300 <= reply.status < 400:
                    raise Forbidden(
                        f"The web server {self._server} answers {reply.status} to the anonymous request for "
                        f"{path or 'the page'}: allow such requests, without a redirect."
                    )
                if reply.status in TEMPORARY or reply.status == 204:
                    after = reply.headers.get("Retry-After", "")
                    pause = min(float(after), STORE.longest) if after.isdecimal() else 0.0
                    raise _Unavailable(f"answers {reply.status}", pause)
                if reply.status not in (200, 206):
                    raise StoreFailed(
                        f"The web server {self._server} answers {reply.status} to a request for {path or 'the page'}."
                    )
                yield reply
        except (ClientError, TimeoutError, OSError) as error:
            raise _Unavailable(f"gave no answer ({type(error).__name__})") from error


def _changed(path: str) -> Conflict:
    return Conflict(f"The file {path} was changed while it was read: open it again.")


async def _session() -> ClientSession:
    timeout = ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
    # trust_env: use the proxies of the environment. identity: a compressed response could not be read by ranges.
    return ClientSession(timeout=timeout, trust_env=True, headers={"Accept-Encoding": "identity"})


class _Links(HTMLParser):
    """Collects in `found` the names, directly below a page's URL, that the page links to; folders end with a slash."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs if tag == "a" else ():
            if name == "href" and value:
                self._add(value)

    def _add(self, link: str) -> None:
        try:
            target = urljoin(self._url, link)
        except ValueError:
            return
        if not target.startswith(self._url) or "?" in target or "#" in target:
            return
        name = unquote(target[len(self._url) :])
        if name.strip("/") and "/" not in name[:-1]:
            self.found.add(name)
