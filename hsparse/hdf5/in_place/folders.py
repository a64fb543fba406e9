"""Places (directories, bucket prefixes, URLs) whose HDF5 files are served: contents of folders and states of files.

A file that has changed is treated as a new file: data that was cached for its old state is no longer served.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from errno import EINVAL, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Protocol

from hsparse.errors import (
    BadRequest,
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
from hsparse.hdf5.importer.source import InputFile, LocalSource
from hsparse.hdf5.importer.source_files import SourceFiles
from hsparse.hdf5.in_place.signatures import Signatures
from hsparse.storage.object_store import is_key

SUFFIXES = (
    *(".h5", ".hdf5", ".hdf", ".he5", ".nc", ".nc4", ".nxs", ".nx5", ".cxi", ".nwb"),
    *(".h5ad", ".h5mu", ".mcool", ".cool", ".loom"),
)
"""Suffixes of HDF5 files, case-insensitive. A file with such a suffix is listed even if it cannot be read."""
RAW_SUFFIXES = (".raw", ".bin", ".dat", ".data", ".img", ".cbf", ".edf", ".tif", ".tiff", ".gb2", ".frame")
"""Suffixes of files that are not served, but that may contain raw data of served files (`H5Pset_external`)."""


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file: its size in bytes, its modification time (seconds since the Unix epoch), and an etag."""

    size: int
    modified: float
    etag: str
    changed: float = 0.0
    """Status change time (ctime, which users cannot set) in seconds since the Unix epoch; 0 if the place has none."""
    error: HsparseError | None = field(default=None, compare=False)
    """The reason why a file with an HDF5 suffix is not an HDF5 file or cannot be read; listings show the reason."""


@dataclass(frozen=True, slots=True)
class FolderContent:
    """The direct contents of a folder: the states of its HDF5 files, and the names of its folders."""

    files: dict[str, FileState]
    folders: frozenset[str]
    identity: str = ""
    """A text that is equal for all paths (through links) to the same folder; "" if the place cannot determine it."""


ABSENT = (ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EINVAL)
"""Error numbers by which the operating system reports that nothing exists at a path."""
LOCAL_READERS, REMOTE_READERS = 2, 32
"""Reader threads for local files, where decoding takes most time, and for remote files, where waiting takes most."""


class FileFolder(Protocol):
    """A place with files, named by their paths in the place, such as `sub/run.h5`. All methods block."""

    @property
    def place(self) -> str:
        """A string that identifies the place."""
        ...

    @property
    def readers(self) -> int:
        """The number of threads that should read files concurrently."""
        ...

    def content(self, path: str) -> FolderContent:
        """Return the contents of a folder ("" is the place itself); raise `NotFound` if there is no such folder."""
        ...

    def state(self, path: str) -> FileState | None:
        """Return the state of the file at a path, or None if the path is a folder.

        Raises `NotFound` if nothing is at the path, and `Forbidden` for a path outside of the place. If the file is not
        HDF5 or cannot be read, the error is in `FileState.error` or, if the name has no HDF5 suffix, is raised.
        """
        ...

    def open(self, path: str, state: FileState) -> tuple[InputFile, SourceFiles]:
        """Return a pair: the opened file, and access to the files it may name. Reads raise `Conflict` if it changed."""
        ...

    def close(self) -> None:
        """Close the connections, after the last read of a file."""
        ...


def is_served_name(name: str) -> bool:
    """Return whether a file is served because of its name: it has an HDF5 suffix and does not begin with a dot."""
    return is_visible(name) and name.lower().endswith(SUFFIXES)


def is_unnamed(path: str) -> bool:
    """Return whether a file is visible and has no known suffix, so that other files may name it only if it is HDF5."""
    return is_visible(path) and not path.lower().endswith((*SUFFIXES, *RAW_SUFFIXES))


def is_visible(path: str) -> bool:
    """Return whether a path can be part of a domain path and no component of it begins with a dot (is hidden)."""
    return not path or (is_key(path) and not any(part.startswith(".") for part in path.split("/")))


def check_named(path: str, begin: bytes = b"") -> None:
    """Raise `Forbidden` if other files may not name a file: because it is hidden, or neither HDF5 nor raw data.

    `begin` is the beginning of the file, if known: a file that begins with HDF5's signature needs no suffix.
    """
    name = path.rpartition("/")[2].lower()
    if not is_visible(path) or not (name.endswith((*SUFFIXES, *RAW_SUFFIXES)) or begin == SIGNATURE):
        raise Forbidden(
            f"The file {path} may not be read for another file: only HDF5 files and raw data files (their names end "
            f"with {', '.join(RAW_SUFFIXES)}) may, and no hidden files. Rename it."
        )


def joined(*parts: str) -> str:
    """Return the path of the given parts, joined with slashes; empty parts are omitted."""
    return "/".join(filter(None, parts))


def walked(folder: FileFolder, path: str) -> Iterator[tuple[str, FolderContent]]:
    """Yield the path and contents of a folder and of all folders below it, each once; skip folders that disappear.

    A folder without an identity whose contents equal those of a parent is skipped: it may be a link to the parent.
    """
    seen: set[str] = set()
    ahead: list[tuple[str, tuple[FolderContent, ...]]] = [(path, ())]
    while ahead:
        at, above = ahead.pop()
        try:
            content = folder.content(at)
        except (NotFound, Forbidden):
            if not above:
                raise
            continue
        if content.identity in seen if content.identity else content in above:
            continue
        seen.add(content.identity)
        yield at, content
        ahead += [(joined(at, one), (*above, content)) for one in sorted(content.folders, reverse=True)]


class SourceStates:
    """The states in which the files that the file at `path` names were first opened; other states are refused."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._etags: dict[str, str] = {}

    def check(self, name: str, etag: str) -> None:
        """Raise `Conflict` if a file has changed since it was first opened, because cached data is of the old state."""
        if self._etags.setdefault(name, etag) != etag:
            raise Conflict(
                f"The file {name}, which {self._path} names, was changed: touch {self._path}, and open {self._path} "
                "again."
            )


class DirectoryFiles:
    """A `FileFolder` below a local directory. Symbolic links that lead out of the directory are not followed."""

    readers = LOCAL_READERS

    def __init__(self, root: Path) -> None:
        """Raise `Misconfigured` if the directory does not exist or cannot be read."""
        try:
            self._root = root.resolve(strict=True)
            with os.scandir(self._root):
                pass
        except OSError as error:
            raise Misconfigured(
                f"The directory {root} of --files cannot be read: {error.strerror}."
            ) from error
        self.place = str(self._root)
        self._signatures = Signatures()

    def content(self, path: str) -> FolderContent:
        files: dict[str, FileState] = {}
        folders: set[str] = set()
        place = self._visible(path)
        above = self._above(path)
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    try:
                        if entry.is_symlink() and self._inside(f"{path}/{entry.name}") in above:
                            continue
                        if entry.is_dir():
                            if not entry.name.startswith(".") and is_key(entry.name):
                                folders.add(entry.name)
                        elif is_visible(entry.name) and entry.is_file():
                            state = self._looked_at(Path(entry.path), _state(entry.stat()))
                            if state.error is None or is_served_name(entry.name):
                                files[entry.name] = state
                    except (Forbidden, NotFound, StoreFailed, OSError):
                        continue  # a link that is broken, or leads out of the place, must not fail the listing
        except PermissionError as error:
            raise unreadable(path) from error
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"There is no folder {path}.") from error
        except OSError as error:
            raise StoreFailed(f"The folder {path} cannot be read: {error.strerror}.") from error
        return FolderContent(files, frozenset(folders), str(place))

    def _above(self, path: str) -> set[Path]:
        """Return the real paths (links resolved) of a folder and of all folders above it in its path."""
        parts = path.split("/") if path else []
        return {self._inside("/".join(parts[:count])) for count in range(len(parts) + 1)}

    def state(self, path: str) -> FileState | None:
        place = self._visible(path)
        try:
            status = place.stat()
        except OSError as error:
            raise self._failed(path, error) from error
        if S_ISDIR(status.st_mode):
            return None
        if not S_ISREG(status.st_mode):
            raise NotFound(f"{path} is not an HDF5 file.")
        state = self._looked_at(place, _state(status))
        if state.error is not None and not is_served_name(path.rpartition("/")[2]):
            raise type(state.error)(f"{path}: {state.error.message}")
        return state

    def _looked_at(self, place: Path, state: FileState) -> FileState:
        """Return the state of a file, with an `error` if it is not an HDF5 file or cannot be read."""

        def read(wanted: tuple[ByteRange, ...]) -> list[bytes]:
            with place.open("rb", buffering=0) as file:
                return [os.pread(file.fileno(), one.size, one.address) for one in wanted]

        try:
            what = self._signatures.what_is(str(place), state.etag, state.size, read)
        except PermissionError:
            return replace(state, error=unreadable("the file"))
        except OSError as error:
            return replace(state, error=StoreFailed(f"The file cannot be read: {error.strerror}."))
        return replace(state, error=Unsupported(f"The file {what}.")) if what else state

    def open(self, path: str, state: FileState) -> tuple[InputFile, SourceFiles]:
        place, states = self._inside(path), SourceStates(path)
        main = str(self._root / path)  # not the real path: names are looked up beside a link, not its target
        files = SourceFiles(
            main, lambda other: self._other(other, states), (str(self._root),), path, self._etag_of
        )
        return _WatchedSource(place, path, state), files

    def close(self) -> None:
        """Do nothing: only files that are being read are open."""

    def _other(self, location: str, states: SourceStates) -> InputFile:
        """Open a file that another file names; raise `NotFound`, or `Forbidden` if other files may not name it."""
        place = Path(location)
        name = str(place.relative_to(self._root)) if place.is_relative_to(self._root) else place.name
        try:
            status = place.stat()
            if not S_ISREG(status.st_mode):
                raise NotFound(f"{name} is not a regular file.")
            with place.open("rb") as file:
                check_named(name, file.read(len(SIGNATURE)))
        except OSError as error:
            raise self._failed(name, error) from error
        state = _state(status)
        states.check(name, state.etag)
        return _WatchedSource(place, name, state)

    def _visible(self, path: str) -> Path:
        """Return the real path of a file or folder; raise `NotFound` if a component of the path is hidden."""
        if not is_visible(path):
            raise NotFound(f"{path} is not an HDF5 file.")
        return self._inside(path)

    def _inside(self, path: str) -> Path:
        """Return the real path of a file or folder; raise `Forbidden` if the real path is outside of the place."""
        try:
            place = (self._root / path.strip("/")).resolve(strict=True)
        except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
            raise self._failed(path, error) from error
        if not place.is_relative_to(self._root):
            raise Forbidden(f"{path} is a link that leads out of the served directory: serve its target.")
        return place

    def _etag_of(self, location: str) -> str:
        try:
            return _state(Path(location).stat()).etag
        except OSError as error:
            raise self._failed(Path(location).name, error) from error

    def _failed(self, path: str, error: OSError | RuntimeError) -> HsparseError:
        """Return the error for a failed access to a path: `NotFound` only if the system reports that it is absent."""
        if isinstance(error, PermissionError):
            return unreadable(path)
        if isinstance(error, OSError) and error.errno not in ABSENT:
            return StoreFailed(f"{path} cannot be read: {error.strerror}; try again when its mount answers.")
        if path and not os.path.isdir(self._root):  # noqa: PTH112 - Path.is_dir raises what it cannot tell
            return StoreFailed(f"The served directory of {path} is missing: mount or restore the directory.")
        return NotFound(f"There is no {path}.")


def unreadable(path: str) -> Forbidden:
    return Forbidden(f"The server may not read {path or 'the place'}: let its user read it (chmod).")


class _WatchedSource(LocalSource):
    """A local file whose reads raise `Conflict` once its state has changed."""

    def __init__(self, place: Path, path: str, state: FileState) -> None:
        try:
            super().__init__(place)
        except NotFound as error:
            raise NotFound(f"There is no file {path}.") from error
        except BadRequest as error:
            raise unreadable(path) from error
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
    # Programs can set back a file's modification time, but not its status change time (ctime).
    times = f"{status.st_mtime_ns:x}-{status.st_ctime_ns:x}"
    etag = f"{status.st_dev:x}-{status.st_ino:x}-{times}-{status.st_size:x}"
    return FileState(status.st_size, status.st_mtime, etag, status.st_ctime)
