"""The files below a prefix of an S3 bucket, `s3://bucket/prefix`: one client for all of them."""

from __future__ import annotations

from hsparse.cli.file_arguments import S3Url
from hsparse.errors import Misconfigured, NotFound
from hsparse.hdf5.importer.remote_source import RemoteSource
from hsparse.hdf5.importer.s3_source import BucketReader
from hsparse.hdf5.importer.source import Blocks, Source
from hsparse.hdf5.importer.source_files import SourceFiles
from hsparse.hdf5.served.folders import (
    REMOTE_READERS,
    FileState,
    FolderContent,
    SourceStates,
    is_served_name,
    is_visible,
    joined,
)
from hsparse.storage.object_store import is_key
from hsparse.storage.store_settings import StoreSettings

START_SECONDS = 5.0
"""Seconds that the first request may take: a wrong endpoint is told soon."""
REQUEST_SECONDS = 120.0
"""Seconds for a request with its retries: a chunk may be large."""


class S3Files:
    """A `FileFolder` in a bucket; the endpoint, the region and who signs and pays are as of the store."""

    readers = REMOTE_READERS

    def __init__(self, url: str, settings: StoreSettings) -> None:
        """`Misconfigured` if the place cannot be listed, or has nothing."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        self._bucket, self._prefix = bucket, prefix.strip("/")
        self.place = f"{settings.s3_endpoint or ''} {url}"
        self._blocks = Blocks()
        if not bucket or (self._prefix and not is_key(self._prefix)):
            raise Misconfigured(f"--files {url}: it should be like s3://bucket/prefix.")
        self._reader = BucketReader(
            bucket,
            endpoint=settings.s3_endpoint,
            region=settings.s3_region,
            unsigned=settings.unsigned,
            requester_pays=settings.requester_pays,
            deadline=REQUEST_SECONDS,
        )
        try:
            with self._reader.store.within(START_SECONDS):
                self._check(url)
        except BaseException:
            self.close()
            raise

    def _check(self, url: str) -> None:
        try:
            self.content("")
        except NotFound as error:
            raise Misconfigured(f"--files {url}: there is nothing below it.") from error
        except Misconfigured as error:
            raise Misconfigured(f"--files {url}: {error.message}") from error

    def content(self, path: str) -> FolderContent:
        prefix = self._below(path)
        files: dict[str, FileState] = {}
        folders: set[str] = set()
        pages = self._reader.wait(self._reader.pages(prefix)) if is_visible(path) else []
        for page in pages:
            for entry in page.entries:
                name = entry.key.removeprefix(prefix)
                if is_served_name(name):
                    files[name] = FileState(entry.size, entry.modified, entry.etag)
            folders |= {name for one in page.prefixes if is_visible(name := one[len(prefix) : -1])}
        if not pages and prefix:
            raise NotFound(f"There is no folder {path}.")
        return FolderContent(files, frozenset(folders))

    def state(self, path: str) -> FileState | None:
        if not is_visible(path):
            raise NotFound(f"There is no {path}.")
        if is_served_name(path.rpartition("/")[2]):
            try:
                return self._state(joined(self._prefix, path))
            except NotFound:
                pass  # a prefix may have such a name, too
        if path and not self._reader.wait(self._reader.pages(self._below(path), 1)):
            raise NotFound(f"There is no {path}.")
        return None

    def open(self, path: str, state: FileState) -> tuple[Source, SourceFiles]:
        key = joined(self._prefix, path)
        place = str(S3Url(self._bucket, self._prefix)) if self._prefix else f"s3://{self._bucket}"
        states = SourceStates(path)
        files = SourceFiles(
            str(S3Url(self._bucket, key)), lambda url: self._other(url, states), (place,), path
        )
        return self._source(key, path, state), files

    def close(self) -> None:
        self._reader.close()

    def _other(self, url: str, states: SourceStates) -> Source:
        """Open a file that another one names, which is below the prefix."""
        key = S3Url.parse(url).key
        state, path = self._state(key), key.removeprefix(f"{self._prefix}/")
        states.check(path, state.etag)
        return self._source(key, path, state)

    def _source(self, key: str, path: str, state: FileState) -> Source:
        get = self._reader.get(key, state.etag, f"The file {path}", "open it again")
        return RemoteSource(path, state.size, state.etag, self._reader.thread, get, self._blocks)

    def _state(self, key: str) -> FileState:
        found = self._reader.wait(self._reader.head(key))
        etag = str(found["ETag"]).strip('"')
        return FileState(found["ContentLength"], found["LastModified"].timestamp(), etag)

    def _below(self, path: str) -> str:
        """Return the prefix of what a folder has."""
        found = joined(self._prefix, path)
        return f"{found}/" if found else ""
