"""The places of `--files`, by the names that they are served as, each asked once in a request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from hsparse.concurrency.request_trace import current_trace
from hsparse.errors import Misconfigured
from hsparse.hdf5.importer.source import Source
from hsparse.hdf5.importer.source_files import SourceFiles
from hsparse.hdf5.served.folders import DirectoryFiles, FileFolder, FileState, FolderContent
from hsparse.hdf5.served.http_files import HttpFiles
from hsparse.optional_module import OptionalModule
from hsparse.storage.object_store import is_key
from hsparse.storage.store_settings import StoreSettings

S3 = OptionalModule("hsparse.hdf5.served.s3_files", "s3")


class AskedOnce:
    """A place that is asked once in a request: what a listing has found is not asked for again, file by file."""

    def __init__(self, folder: FileFolder) -> None:
        self._folder = folder
        self._known: dict[int, dict[str, FolderContent | FileState | None]] = {}
        """By requests that are under way: contents, by paths with a slash at their ends, and states."""

    @property
    def place(self) -> str:
        return self._folder.place

    @property
    def readers(self) -> int:
        return self._folder.readers

    def content(self, path: str) -> FolderContent:
        known = self._of_request()
        found = known.get(f"{path}/")
        if not isinstance(found, FolderContent):
            found = known[f"{path}/"] = self._folder.content(path)
        return found

    def state(self, path: str) -> FileState | None:
        known = self._of_request()
        parent, _, name = path.rpartition("/")
        listed = known.get(f"{parent}/")
        if isinstance(listed, FolderContent) and name in listed.files:
            return listed.files[name]
        if isinstance(listed, FolderContent) and name in listed.folders:
            return None
        if path not in known:
            known[path] = self._folder.state(path)
        found = known[path]
        assert not isinstance(found, FolderContent)
        return found

    def open(self, path: str, state: FileState) -> tuple[Source, SourceFiles]:
        return self._folder.open(path, state)

    def close(self) -> None:
        self._folder.close()

    def _of_request(self) -> dict[str, FolderContent | FileState | None]:
        trace = current_trace()
        if trace is None:
            return {}
        place = id(trace)
        if place not in self._known:
            self._known[place] = {}
            trace.at_end(partial(self._forget, place))
        return self._known.get(place, {})

    def _forget(self, place: int) -> None:
        self._known.pop(place, None)


def named_folders(items: Sequence[str], settings: StoreSettings | None = None) -> dict[str, FileFolder]:
    """Return the places of `--files`, by the names of the folders that they are served as.

    An item is `NAME=PLACE`, or a place, whose last part is the name then: a directory, `s3://bucket/prefix`, which is
    read with the endpoint and the region of `settings`, or the URL of a page that lists files.
    """
    found: dict[str, FileFolder] = {}
    for item in items:
        name, place = _parted(item)
        if not is_key(name) or "/" in name:
            raise Misconfigured(
                f"--files {item}: {name!r} cannot be a folder's name; say --files NAME={place}."
            )
        if name in found:
            raise Misconfigured(
                f"--files {item}: there is a folder {name!r} already; give this one another name."
            )
        if place.startswith("s3://"):
            folder: FileFolder = S3.load().S3Files(place, settings or StoreSettings())
        elif place.startswith(("https://", "http://")):
            folder = HttpFiles(place)
        else:
            folder = DirectoryFiles(Path(place))
        found[name] = AskedOnce(folder)
    return found


def _parted(item: str) -> tuple[str, str]:
    """Return the name and the place of an item."""
    name, equals, place = item.partition("=")
    if not equals or "://" in name:
        last = item.rstrip("/").rpartition("/")[2] if "://" in item else Path(item).resolve().name
        return last, item
    return name, place
