"""Open the places that `--files` names, and cache the answers of each place for the duration of a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock

from hsparse.concurrency.request_trace import current_trace
from hsparse.errors import Misconfigured, NotFound
from hsparse.hdf5.importer.source import InputFile
from hsparse.hdf5.importer.source_files import SourceFiles
from hsparse.hdf5.in_place.folders import LOCAL_READERS, DirectoryFiles, FileFolder, FileState, FolderContent
from hsparse.hdf5.in_place.http_files import HttpFiles
from hsparse.optional_module import OptionalModule
from hsparse.storage.object_store import is_key
from hsparse.storage.store_settings import StoreSettings

S3 = OptionalModule("hsparse.hdf5.in_place.s3_files", "s3")


MAX_SINGLE_HEADS = 4
"""Most files of a remote folder whose states a request gets one by one; for more files the folder is listed once."""


@dataclass(slots=True)
class _Known:
    """Answers cached for a request: folder contents and file states, and the number of state calls per folder."""

    contents: dict[str, FolderContent] = field(default_factory=dict)
    states: dict[str, FileState | None] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)


class AskedOnce:
    """A `FileFolder` that caches the answers of another `FileFolder` per request: listed files are not asked again.

    A data node in a separate process gets the listing and each file by separate requests, which share no cache.
    """

    def __init__(self, folder: FileFolder) -> None:
        self._folder = folder
        self._known: dict[int, _Known] = {}
        """Cached answers of the requests in progress, by the `id()` of the request's trace."""

    @property
    def place(self) -> str:
        return self._folder.place

    @property
    def readers(self) -> int:
        return self._folder.readers

    def content(self, path: str) -> FolderContent:
        known = self._of_request()
        found = known.contents.get(path)
        if found is None:
            found = known.contents[path] = self._folder.content(path)
        return found

    def state(self, path: str) -> FileState | None:
        known = self._of_request()
        parent, _, name = path.rpartition("/")
        with known.lock:
            known.asked[parent] += 1
            if known.asked[parent] == MAX_SINGLE_HEADS + 1 and self.readers != LOCAL_READERS:
                with suppress(NotFound):
                    self.content(parent)
            listed = known.contents.get(parent)
        if listed is not None and name in listed.files:
            return listed.files[name]
        if listed is not None and name in listed.folders:
            return None
        if path not in known.states:
            known.states[path] = self._folder.state(path)
        return known.states[path]

    def open(self, path: str, state: FileState) -> tuple[InputFile, SourceFiles]:
        return self._folder.open(path, state)

    def close(self) -> None:
        self._folder.close()

    def _of_request(self) -> _Known:
        trace = current_trace()
        if trace is None:
            return _Known()
        place = id(trace)
        if place not in self._known:
            self._known[place] = _Known()
            trace.at_end(partial(self._forget, place))
        return self._known.get(place) or _Known()

    def _forget(self, place: int) -> None:
        self._known.pop(place, None)


def named_folders(items: Sequence[str], settings: StoreSettings | None = None) -> dict[str, FileFolder]:
    """Open the places of `--files`; return a dict that maps the name of each served folder to the place.

    An item is `NAME=PLACE` or `PLACE`; without a name the last part of the place is the name. A place is a directory,
    `s3://bucket/prefix` (read with the S3 options in `settings`), or the URL of a page that lists files.
    """
    found: dict[str, FileFolder] = {}
    for item in items:
        name, place = _parted(item)
        if not place:
            raise Misconfigured(
                f"--files {item}: no place follows the =; name a directory, bucket or web folder."
            )
        if not is_key(name) or "/" in name:
            raise Misconfigured(
                f"--files {item}: {name!r} cannot be a folder's name; write --files NAME={place}."
            )
        if name in found:
            raise Misconfigured(
                f"--files {item}: another item has the folder name {name!r} already; write --files NAME={place}."
            )
        if place.startswith("s3://"):
            folder: FileFolder = S3.load().S3Files(place, settings or StoreSettings())
        elif place.startswith(("https://", "http://")):
            folder = HttpFiles(place)
        else:
            folder = DirectoryFiles(Path(place))
        found[name] = AskedOnce(folder)
    return found


def names_of(items: Sequence[str]) -> list[str]:
    """Return the names of the folders that the items of `--files` are served as."""
    return [_parted(item)[0] for item in items]


def _parted(item: str) -> tuple[str, str]:
    """Return the name and the place of an item of `--files`."""
    name, equals, place = item.partition("=")
    if not equals or "://" in name:
        last = item.rstrip("/").rpartition("/")[2] if "://" in item else Path(item).resolve().name
        return last, item
    return name, place
