"""The files that a web server lists below a URL, read by ranges (RFC 9110, 14).

A folder is what its page links to, as those of nginx and Apache do: names directly below it, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from urllib.parse import quote, unquote, urljoin, urlsplit

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from hsparse.compute import gather_each
from hsparse.errors import (
    Conflict,
    Forbidden,
    HsparseError,
    Misconfigured,
    NotFound,
    StoreFailed,
    Unsupported,
)
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer.remote_source import LoopThread, RemoteSource
from hsparse.hdf5.importer.source import Blocks, Source
from hsparse.hdf5.importer.source_files import SourceFiles
from hsparse.hdf5.served.folders import (
    REMOTE_READERS,
    FileState,
    FolderContent,
    SourceStates,
    is_served_name,
    is_visible,
)

CONNECT_SECONDS, REQUEST_SECONDS = 5.0, 120.0
MOST_PAGE = 64 * 1024 * 1024
"""Bytes of a page that lists a folder."""
REQUESTS_AT_ONCE = 16
PLACE = "s3://place"
"""What stands for the URL where files that others name are looked for: `SourceFiles` knows prefixes of buckets."""


class HttpFiles:
    """A `FileFolder` below a URL. Redirects are not followed: they may lead anywhere."""

    readers = REMOTE_READERS

    def __init__(self, url: str) -> None:
        """`Misconfigured` if there is no page, or the server does not answer ranges."""
        self.place = self._url = url.rstrip("/") + "/"
        self._server = urlsplit(url).hostname or url
        self._blocks = Blocks()
        self._thread = LoopThread("http")
        self._session = self._thread.wait(_session())
        try:
            self._check(url)
        except HsparseError as error:
            self.close()
            raise Misconfigured(f"--files {url}: {error.message}") from error

    def _check(self, url: str) -> None:
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.fragment:
            raise Misconfigured("it should be like https://host/folder/.")
        for path, state in self.content("").files.items():
            self._thread.wait(self._range(path, state, ByteRange(0, min(1, state.size))))
            break

    def content(self, path: str) -> FolderContent:
        if not is_visible(path):
            raise NotFound(f"There is no folder {path}.")
        return self._thread.wait(self._content(f"{path}/" if path else ""))

    def state(self, path: str) -> FileState | None:
        if not is_visible(path):
            raise NotFound(f"There is no {path}.")
        return self._thread.wait(self._state_of(path))

    def open(self, path: str, state: FileState) -> tuple[Source, SourceFiles]:
        states = SourceStates(path)
        files = SourceFiles(f"{PLACE}/{path}", lambda other: self._other(other, states), (PLACE,), path)
        return self._source(path, state), files

    def close(self) -> None:
        self._thread.close(self._session.close)

    def _other(self, location: str, states: SourceStates) -> Source:
        path = location.removeprefix(f"{PLACE}/")
        state = self.state(path)
        if state is None:
            raise NotFound(f"There is no file {path}.")
        states.check(path, state.etag)
        return self._source(path, state)

    def _source(self, path: str, state: FileState) -> Source:
        return RemoteSource(
            path,
            state.size,
            state.etag,
            self._thread,
            lambda wanted: self._range(path, state, wanted),
            self._blocks,
        )

    async def _content(self, folder: str) -> FolderContent:
        async with self._asked("GET", folder) as reply:
            data = bytearray()
            async for part in reply.content.iter_any():
                data += part
                if len(data) > MOST_PAGE:
                    raise StoreFailed(f"The page of {folder or 'the folder'} is too long.")
            links = _Links(str(reply.url))
            links.feed(data.decode(errors="replace"))
        names = sorted(name for name in links.found if not name.endswith("/") and is_served_name(name))
        folders = {name[:-1] for name in links.found if name.endswith("/") and is_visible(name[:-1])}

        async def state(name: str) -> FileState | None:
            try:
                return await self._file_state(folder + name)
            except (NotFound, Forbidden):
                return None  # what is not there, or not for all, hides no other

        states = await gather_each(state, names, REQUESTS_AT_ONCE)
        files = {name: found for name, found in zip(names, states, strict=True) if found is not None}
        return FolderContent(files, frozenset(folders))

    async def _state_of(self, path: str) -> FileState | None:
        if is_served_name(path.rpartition("/")[2]):
            try:
                return await self._file_state(path)
            except NotFound:
                pass  # a folder may have such a name, too
        if path:
            async with self._asked("HEAD", f"{path}/"):
                pass
        return None

    async def _file_state(self, path: str) -> FileState:
        async with self._asked("HEAD", path) as reply:
            return self._state(path, reply, int(reply.headers.get("Content-Length", -1)))

    async def _range(self, path: str, state: FileState, wanted: ByteRange) -> bytes:
        if not wanted.size:
            return b""
        changed = Conflict(f"The file {path} was changed while it was read: open it again.")
        last = wanted.address + wanted.size - 1
        try:
            async with self._asked("GET", path, Range=f"bytes={wanted.address}-{last}") as reply:
                if reply.status != 206:
                    raise Unsupported(
                        f"The server {self._server} does not answer ranges, without which no file is served: import "
                        "its files, or serve them by nginx or Apache."
                    )
                size = reply.headers.get("Content-Range", "").rpartition("/")[2]
                if self._state(path, reply, int(size) if size.isdigit() else -1).etag != state.etag:
                    raise changed
                return await reply.content.readexactly(wanted.size)
        except NotFound as error:
            raise changed from error
        except asyncio.IncompleteReadError as error:
            raise StoreFailed(f"The server {self._server} ended its answer about {path} early.") from error

    def _state(self, path: str, reply: ClientResponse, size: int) -> FileState:
        etag, modified = reply.headers.get("ETag", ""), reply.headers.get("Last-Modified")
        if size < 0 or not (modified or (etag and not etag.startswith("W/"))):
            raise Unsupported(
                f"The server {self._server} does not tell the size and the state of {path} (ETag, Last-Modified)."
            )
        known = etag if etag and not etag.startswith("W/") else modified
        try:
            seconds = parsedate_to_datetime(modified).timestamp() if modified else 0.0
        except ValueError:
            seconds = 0.0
        return FileState(size, seconds, f"{known} {size}")

    @asynccontextmanager
    async def _asked(self, method: str, path: str, **headers: str) -> AsyncIterator[ClientResponse]:
        """Yield the answer about a path in the place; `NotFound` if there is none."""
        try:
            async with self._session.request(
                method, self._url + quote(path), headers=headers, allow_redirects=False
            ) as reply:
                if reply.status in (404, 410, 416):
                    raise NotFound(f"There is no {path or 'such page'}.")
                if reply.status in (401, 403) or 300 <= reply.status < 400:
                    raise Forbidden(
                        f"The server {self._server} does not give {path or 'the page'} to all, or elsewhere: it "
                        f"answers {reply.status}."
                    )
                if reply.status not in (200, 206):
                    raise StoreFailed(
                        f"The server {self._server} answers {reply.status} about {path or 'the page'}."
                    )
                yield reply
        except (ClientError, TimeoutError) as error:
            raise StoreFailed(
                f"The server {self._server} gave no answer ({type(error).__name__})."
            ) from error


async def _session() -> ClientSession:
    timeout = ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
    # Proxies are those of the environment. An answer that is encoded has no ranges.
    return ClientSession(timeout=timeout, trust_env=True, headers={"Accept-Encoding": "identity"})


class _Links(HTMLParser):
    """What a page at a URL links to directly below it: `found` has names, those of folders with a slash at the end."""

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
