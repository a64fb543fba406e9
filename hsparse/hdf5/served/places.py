"""The places of `--files`, by the names that they are served as, each asked once in a request."""

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
from hsparse.hdf5.importer.source import Source
from hsparse.hdf5.importer.source_files import SourceFiles
from hsparse.hdf5.served.folders import LOCAL_READERS, DirectoryFiles, FileFolder, FileState, FolderContent
from hsparse.hdf5.served.http_files import HttpFiles
from hsparse.optional_module import OptionalModule
from hsparse.storage.object_store import is_key
from hsparse.storage.store_settings import StoreSettings

S3 = OptionalModule("hsparse.hdf5.served.s3_files", "s3")


FEW = 4
"""Files of a folder far away that are asked for one by one in a request; of more the folder is listed."""


@dataclass(slots=True)
class _Known:
    """What is known in a request: contents of folders, states, and how many of each folder were asked for."""

    contents: dict[str, FolderContent] = field(default_factory=dict)
    states: dict[str, FileState | None] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)


class AskedOnce:
    """A place that is asked once in a request: what a listing has found is not asked for again, file by file.

    A data node in a process of its own gets the listing and the files by messages of their own.
    """

    def __init__(self, folder: FileFolder) -> None:
        self._folder = folder
        self._known: dict[int, _Known] = {}
        """By requests that are under way."""

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
            if known.asked[parent] == FEW + 1 and self.readers != LOCAL_READERS:
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

    def open(self, path: str, state: FileState) -> tuple[Source, SourceFiles]:
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
