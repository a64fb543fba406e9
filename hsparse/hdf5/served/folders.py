"""Places with HDF5 files that are served: what a folder has, and the state of a file.

A file whose state changes is another file to the server: what it knew of the old one is never answered again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Protocol

from hsparse.errors import Conflict, Forbidden, Misconfigured, NotFound
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer.source import LocalSource, Source
from hsparse.hdf5.importer.source_files import SourceFiles
from hsparse.storage.object_store import is_key

SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5", ".nc", ".nxs", ".h5ad", ".cxi")
"""The ends of names of files that are served, in any case."""


@dataclass(frozen=True, slots=True)
class FileState:
    """A file as it is now: bytes, seconds since the Unix epoch, and what tells its states apart."""

    size: int
    modified: float
    etag: str


@dataclass(frozen=True, slots=True)
class FolderContent:
    """What is directly below a folder: its files with a name that is served, and the names of its folders."""

    files: dict[str, FileState]
    folders: frozenset[str]


LOCAL_READERS, REMOTE_READERS = 2, 32
"""Threads that read files of this machine, which decode more than they wait, and of others."""


class FileFolder(Protocol):
    """A place with files, which are named by their paths in it, as in errors: `sub/run.h5`. All methods block."""

    @property
    def place(self) -> str:
        """What tells this place from all others."""
        ...

    @property
    def readers(self) -> int:
        """How many threads should read files at once."""
        ...

    def content(self, path: str) -> FolderContent:
        """Return what a folder has, "" for the place itself; `NotFound` without such a folder."""
        ...

    def state(self, path: str) -> FileState | None:
        """Return the state of a file, None for a folder.

        `NotFound` where there is neither, `Forbidden` if it lies outside of the place.
        """
        ...

    def open(self, path: str, state: FileState) -> tuple[Source, SourceFiles]:
        """Open a file in a state, with the files that it may name; reading fails with `Conflict` in another state."""
        ...

    def close(self) -> None:
        """End the connections; no file is read any more."""
        ...


def is_served_name(name: str) -> bool:
    """Say whether a file of this name is served; one that begins with a point is not."""
    return is_visible(name) and name.lower().endswith(SUFFIXES)


def is_visible(path: str) -> bool:
    """Say whether no part of a path is hidden, and all can be parts of a domain's path."""
    return not path or (is_key(path) and not any(part.startswith(".") for part in path.split("/")))


def joined(*parts: str) -> str:
    """Return the path of parts, of which some may be empty."""
    return "/".join(filter(None, parts))


def walked(folder: FileFolder, path: str) -> Iterator[tuple[str, FolderContent]]:
    """Yield a folder and all that are below it, each with what it has; a link to a folder above is not followed."""
    ahead = [path]
    while ahead:
        at = ahead.pop()
        content = folder.content(at)
        yield at, content
        ahead += [joined(at, one) for one in sorted(content.folders, reverse=True)]


class SourceStates:
    """The states in which the files that the file at `path` names were first opened: in others they are refused."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._etags: dict[str, str] = {}

    def check(self, name: str, etag: str) -> None:
        """Raise `Conflict` for a file in another state: what is known of the file that names it is of the old one."""
        if self._etags.setdefault(name, etag) != etag:
            raise Conflict(
                f"The file {name} was changed, which {self._path} names: change that, too, if only its time (touch), "
                "and open it again."
            )


class DirectoryFiles:
    """The files below a directory of this machine; a symbolic link that leads out of it is no part of it."""

    readers = LOCAL_READERS

    def __init__(self, root: Path) -> None:
        """`Misconfigured` if there is no such directory, or it cannot be read."""
        try:
            self._root = root.resolve(strict=True)
            with os.scandir(self._root):
                pass
        except OSError as error:
            raise Misconfigured(
                f"The directory {root} of --files cannot be read: {error.strerror}."
            ) from error
        self.place = str(self._root)

    def content(self, path: str) -> FolderContent:
        files: dict[str, FileState] = {}
        folders: set[str] = set()
        place = self._inside(path)
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    try:
                        if entry.is_symlink():
                            self._inside(f"{path}/{entry.name}")
                        if entry.is_dir():
                            if not entry.name.startswith(".") and is_key(entry.name):
                                folders.add(entry.name)
                        elif is_served_name(entry.name) and entry.is_file():
                            files[entry.name] = _state(entry.stat())
                    except (Forbidden, NotFound, OSError):
                        continue  # what leads nowhere, or out of the place, hides no other
        except OSError as error:
            raise NotFound(f"There is no folder {path}.") from error
        return FolderContent(files, frozenset(folders))

    def state(self, path: str) -> FileState | None:
        place = self._inside(path)
        try:
            status = place.stat()
        except OSError as error:
            raise NotFound(f"There is no file {path}.") from error
        if S_ISDIR(status.st_mode):
            return None
        if not S_ISREG(status.st_mode) or not is_served_name(path.rpartition("/")[2]):
            raise NotFound(f"{path} is no HDF5 file.")
        return _state(status)

    def open(self, path: str, state: FileState) -> tuple[Source, SourceFiles]:
        place, states = self._inside(path), SourceStates(path)
        files = SourceFiles(str(place), lambda other: self._other(other, states), (str(self._root),), path)
        return _WatchedSource(place, path, state), files

    def close(self) -> None:
        """Nothing is open but files that are read."""

    def _other(self, location: str, states: SourceStates) -> Source:
        """Open a file that another one names; `NotFound` without it."""
        place = Path(location)
        try:
            state = _state(place.stat())
        except OSError:
            return LocalSource(place)  # which says what is wrong
        name = str(place.relative_to(self._root)) if place.is_relative_to(self._root) else place.name
        states.check(name, state.etag)
        return _WatchedSource(place, name, state)

    def _inside(self, path: str) -> Path:
        """Return the real path of a file or folder; `Forbidden` if that is outside of the place."""
        try:
            place = (self._root / path.strip("/")).resolve(strict=True)
        except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
            raise NotFound(f"There is no {path}.") from error
        if not place.is_relative_to(self._root):
            raise Forbidden(f"{path} is a link that leads out of that directory.")
        return place


class _WatchedSource(LocalSource):
    """A file of this machine that is refused once its state is another one."""

    def __init__(self, place: Path, path: str, state: FileState) -> None:
        super().__init__(place)
        self.name, self._state = path, state
        self._check()

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        found = super().fetch(wanted)
        self._check()
        return found

    def _check(self) -> None:
        if _state(os.fstat(self._descriptor)).etag != self._state.etag:
            raise Conflict(f"The file {self.name} was changed while it was read: open it again.")


def _state(status: os.stat_result) -> FileState:
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return FileState(status.st_size, status.st_mtime, etag)
