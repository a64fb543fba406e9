"""Files below a prefix of an S3 bucket, `s3://bucket/prefix`, read with one client."""

from __future__ import annotations

from contextlib import suppress

from hsparse.cli.file_arguments import S3Url
from hsparse.errors import Misconfigured, NotFound, Unsupported
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer.block_cache import Blocks
from hsparse.hdf5.importer.remote_source import RemoteSource
from hsparse.hdf5.importer.s3_source import BucketReader
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
    joined,
)
from hsparse.hdf5.in_place.looked_names import LookedNames
from hsparse.hdf5.in_place.signatures import NO_SIGNATURE
from hsparse.storage.bucket_client import START_SECONDS
from hsparse.storage.object_store import is_key
from hsparse.storage.store_settings import StoreSettings

REQUEST_SECONDS = 120.0
"""Deadline in seconds of a request with its retries; long, because a chunk may be large."""


class S3Files:
    """A `FileFolder` in a bucket, read with the endpoint, region, signing and requester-pays option of `settings`."""

    readers = REMOTE_READERS

    def __init__(self, url: str, settings: StoreSettings) -> None:
        """Raise `Misconfigured` if the place cannot be listed, or if the bucket has no keys below its prefix."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        self._bucket, self._prefix = bucket, prefix.strip("/")
        self.place = f"{settings.s3_endpoint or ''} {url}"
        self._blocks = Blocks()
        self._looked = LookedNames(self._begin)
        if not bucket or (self._prefix and not is_key(self._prefix)):
            raise Misconfigured(f"--files {url}: the place must have the form s3://bucket/prefix.")
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
            pages = self._reader.wait(self._reader.pages(self._below(""), 1))
        except Misconfigured as error:
            raise Misconfigured(f"--files {url}: {error.message}") from error
        if self._prefix and not pages:
            raise Misconfigured(f"--files {url}: no keys have this prefix; correct the prefix.")

    def content(self, path: str) -> FolderContent:
        prefix = self._below(path)
        files: dict[str, FileState] = {}
        others: dict[str, FileState] = {}
        folders: set[str] = set()
        pages = self._reader.wait(self._reader.pages(prefix)) if is_visible(path) else []
        for page in pages:
            for entry in page.entries:
                name = entry.key.removeprefix(prefix)
                state = FileState(entry.size, entry.modified, entry.etag)
                if is_served_name(name):
                    files[name] = state
                elif name and is_visible(name):
                    others[joined(path, name)] = state
            folders |= {name for one in page.prefixes if is_visible(name := one[len(prefix) : -1])}
        if not pages and path:
            raise NotFound(f"There is no folder {path}.")
        looked = self._reader.wait(self._looked.among(others)) if others else {}
        files |= {one.rpartition("/")[2]: state for one, state in looked.items()}
        return FolderContent(files, frozenset(folders))

    def state(self, path: str) -> FileState | None:
        if not is_visible(path):
            raise NotFound(f"There is no {path}.")
        if is_served_name(path.rpartition("/")[2]):
            try:
                return self._state(joined(self._prefix, path))
            except NotFound:
                pass  # it may be a prefix
        if not path or self._reader.wait(self._reader.pages(self._below(path), 1)):
            return None
        if not is_served_name(path.rpartition("/")[2]):
            with suppress(NotFound):
                state = self._state(joined(self._prefix, path))
                if self._reader.wait(self._looked.is_hdf5(path, state)):
                    return state
                raise Unsupported(f"{path}: The file is {NO_SIGNATURE[0]}.")
        raise NotFound(f"There is no {path}.")

    def open(self, path: str, state: FileState) -> tuple[InputFile, SourceFiles]:
        key = joined(self._prefix, path)
        place = str(S3Url(self._bucket, self._prefix)) if self._prefix else f"s3://{self._bucket}"
        states = SourceStates(path)
        files = SourceFiles(
            str(S3Url(self._bucket, key)),
            lambda url: self._other(url, states),
            (place,),
            path,
            lambda url: self._state(S3Url.parse(url).key).etag,
        )
        return self._source(key, path, state), files

    def close(self) -> None:
        self._reader.close()

    def _other(self, url: str, states: SourceStates) -> InputFile:
        """Open a file below the prefix that another file names; raise `Forbidden` if other files may not name it."""
        key = S3Url.parse(url).key
        path = key.removeprefix(f"{self._prefix}/")
        if not is_unnamed(path):
            check_named(path)
        state = self._state(key)
        if is_unnamed(path) and not self._reader.wait(self._looked.is_hdf5(path, state)):
            check_named(path)
        states.check(path, state.etag)
        return self._source(key, path, state)

    def _source(self, key: str, path: str, state: FileState) -> InputFile:
        get = self._reader.get(key, state.etag, f"The file {path}", "open it again")
        return RemoteSource(path, state.size, state.etag, self._reader.thread, get, self._blocks)

    def _state(self, key: str) -> FileState:
        found = self._reader.wait(self._reader.head(key))
        etag = str(found["ETag"]).strip('"')
        return FileState(found["ContentLength"], found["LastModified"].timestamp(), etag)

    async def _begin(self, path: str, state: FileState, size: int) -> bytes:
        """Return the first `size` bytes of a file; raise `Conflict` if the file is in another state."""
        get = self._reader.get(joined(self._prefix, path), state.etag, f"The file {path}", "open it again")
        return bytes(await get(ByteRange(0, size)))

    def _below(self, path: str) -> str:
        """Return the prefix of the keys below a folder, with a slash at the end unless the prefix is empty."""
        found = joined(self._prefix, path)
        return f"{found}/" if found else ""
