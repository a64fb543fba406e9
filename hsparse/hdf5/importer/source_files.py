"""Files that an HDF5 file names: sources of its virtual datasets, and external raw files.

A name is looked up as libhdf5 does it: an absolute one as it is, and if there is none its last component; then beside
the file that has the name, then in each place that the caller adds, an absolute one under its last component. Only
files below allowed places are read: the directory of the imported file, and those that the caller adds. So a hostile
file cannot have the files of this machine imported.

The data of a dataset in external raw files, as one source: the runs of bytes that the file lists, end to end.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from posixpath import normpath
from threading import Lock

from hsparse.cli.file_arguments import SCHEME, S3Url
from hsparse.errors import BadRequest, Conflict, Corrupt, Forbidden, NotFound, Unsupported
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.parse.parsed_object import ParsedDataset
from hsparse.hdf5.format.parse.virtual_mapping import ExternalFile
from hsparse.hdf5.importer.source import Source
from hsparse.model.dataspace import dims_of

MAX_OPEN = 64
"""Open files that are kept for the next read."""
OpenSource = Callable[[str], Source]


class SourceFiles:
    """The files that `main` names; `open_source` opens one by its path or URL.

    `places` are further directories, or prefixes `s3://bucket/path`, below which files may be. `name` is what `main` is
    called in errors. Any number of threads may use it.
    """

    def __init__(
        self, main: str, open_source: OpenSource, places: Sequence[str] = (), name: str = ""
    ) -> None:
        self._open_source = open_source
        self._called = {name: main} if name else {}
        self._beside = tuple(one for place in _folders(main) for one in _real(place))
        self._places = tuple(one for place in places for one in _real(place))
        self._found: dict[tuple[str, str], str | None] = {}
        self._kept: OrderedDict[str, Source] = OrderedDict()
        self._users: dict[str, int] = {}
        self._lock = Lock()
        self.missing: set[str] = set()

    def find(self, name: str, beside: str) -> str | None:
        """Return the path or URL of the file that `beside` calls `name`, None if there is none.

        `Forbidden` if it could only be outside of the allowed places, whether it is there or not.
        """
        key = (name, beside)
        if key not in self._found:
            self._found[key] = self._lookup(name, beside)
        return self._found[key]

    @property
    def names_others(self) -> bool:
        """Whether any other file was looked for."""
        return bool(self._found)

    def looked_at(self, name: str, beside: str) -> str:
        """Return where `find` looked for a file, in words; nothing for the name of a file itself."""
        return (
            ""
            if name == "."
            else ", ".join(one for one in self._candidates(name, beside) if self._is_allowed(one))
        )

    @contextmanager
    def use(self, location: str) -> Iterator[Source]:
        """Open a file that `find` has returned, or take it from those that are open."""
        source = self._acquire(location)
        try:
            yield source
        finally:
            self._release(location)

    def close(self) -> None:
        """Close all files; none is in use."""
        while self._kept:
            self._kept.popitem()[1].close()

    def _lookup(self, name: str, beside: str) -> str | None:
        candidates = _candidates(name, self._called.get(beside, beside))
        searched = self._candidates(name, beside)
        allowed = [one for one in searched if self._is_allowed(one)]
        for one in allowed:
            with suppress(NotFound), self.use(one):
                return one
        if not all(map(self._is_allowed, candidates)):
            raise Forbidden(
                f"The file {name!r} is outside of the places whose files may be read. Put it beside {beside}, or allow "
                "its directory (--sources)."
            )
        return None

    def _candidates(self, name: str, beside: str) -> list[str]:
        """Return where a file may be: where libhdf5 looks for it, and below the added places."""
        found = dict.fromkeys(_candidates(name, self._called.get(beside, beside)))
        inside = normpath(name.rpartition("/")[2] if name.startswith("/") else name)
        if name.startswith(SCHEME) or inside.startswith(".."):
            return list(found)
        for place in self._places:
            is_prefix = place.startswith(SCHEME)
            found[f"{place}{inside}" if is_prefix else os.path.realpath(Path(place) / inside)] = None
        return list(found)

    def _is_allowed(self, location: str) -> bool:
        if location.startswith(SCHEME):
            places = (*self._beside, *self._places)
            return any(place.startswith(SCHEME) and location.startswith(place) for place in places)
        path = Path(location)
        if any(not place.startswith(SCHEME) and path.is_relative_to(place) for place in self._places):
            return True
        beside = (path.relative_to(place) for place in self._beside if path.is_relative_to(place))
        # A file in a home directory must not lead to what programs keep there.
        return any(not any(part.startswith(".") for part in one.parts) for one in beside)

    def _acquire(self, location: str) -> Source:
        with self._lock:
            found = self._kept.get(location)
            if found is not None:
                self._kept.move_to_end(location)
                self._users[location] = self._users.get(location, 0) + 1
                return found
        opened = self._open_source(location)
        with self._lock:
            found = self._kept.setdefault(location, opened)
            self._users[location] = self._users.get(location, 0) + 1
        if found is not opened:  # another thread was faster
            opened.close()
        return found

    def _release(self, location: str) -> None:
        gone = []
        with self._lock:
            self._users[location] -= 1
            for other in list(self._kept):
                if len(self._kept) <= MAX_OPEN:
                    break
                if not self._users.get(other):
                    gone.append(self._kept.pop(other))
        for source in gone:
            source.close()


class SharedSource(Source):
    """The file at a place that `files` has found; it is open only while it is read, and longer if there is room."""

    def __init__(self, files: SourceFiles, location: str) -> None:
        self.name = location
        self._files = files
        with files.use(location) as source:
            self.size, self.fingerprint = source.size, source.fingerprint

    def close(self) -> None:
        """Close nothing: the files are closed by `SourceFiles`."""

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        with self._files.use(self.name) as source:
            if source.fingerprint != self.fingerprint:
                raise Conflict(f"{self.name} was changed while it was read: import it again.")
            return source.fetch(wanted)


def _folders(main: str) -> tuple[str, ...]:
    """Return the directory of a file by its name, or the prefix of an object's."""
    if main.startswith(SCHEME):
        return (main.rpartition("/")[0],)
    return str(Path(main).absolute().parent), str(Path(os.path.realpath(main)).parent)


def _real(place: str) -> tuple[str, ...]:
    """Return a place with symbolic links resolved; a prefix of objects with a slash at its end."""
    if place.startswith(SCHEME):
        return (place.rstrip("/") + "/",)
    return (os.path.realpath(place),)


def _candidates(name: str, beside: str) -> list[str]:
    """Return where a file may be, as paths with symbolic links resolved or as URLs."""
    if not name or "\0" in name:
        raise BadRequest(f"{beside} names a file {name!r}, which is no name.")
    last = name.rpartition("/")[2]
    if beside.startswith(SCHEME):
        return _objects(name, last, beside)
    names = [name] if not name.startswith("/") else [name, last]
    folders = dict.fromkeys(_folders(beside))
    return list(
        dict.fromkeys(os.path.realpath(Path(folder) / one) for one in names if one for folder in folders)
    )


def _objects(name: str, last: str, beside: str) -> list[str]:
    """Return URLs beside an object; an absolute path has no meaning in a bucket, and counts by its last component."""
    if name.startswith(SCHEME):
        place = S3Url.parse(name)
        return [str(S3Url(place.bucket, normpath(place.key)))]
    place = S3Url.parse(beside)
    key = normpath(place.key.rpartition("/")[0] + "/" + (last if name.startswith("/") else name)).lstrip("/")
    if key.startswith("../"):
        raise Forbidden(f"The file {name!r} is outside of the bucket of {beside}.")
    return [str(S3Url(place.bucket, key))]


def _refuse(location: str) -> Source:
    raise Unsupported(f"Data in another file, {location}, cannot be read here.")


NO_FILES = SourceFiles("/nowhere/none", _refuse)
"""For files of which no others are read."""


class NoOtherFiles(SourceFiles):
    """For a file without any beside it: what it names is missing, wherever it is said to be."""

    def __init__(self) -> None:
        super().__init__("/nowhere/none", _refuse)

    def find(self, name: str, beside: str) -> str | None:
        return None

    @property
    def names_others(self) -> bool:
        """Whether any other file was looked for."""
        return bool(self._found)

    def looked_at(self, name: str, beside: str) -> str:
        return ""


class ExternalData(Source):
    """The bytes of a dataset that the file `beside` has in other files. A file that is too short ends in zeros.

    `NotFound` without one of the files, `Corrupt` if they are for fewer bytes than the dataset has.
    """

    def __init__(self, files: SourceFiles, beside: str, dataset: ParsedDataset) -> None:
        self.name = beside
        self.fingerprint = ""
        self.size = prod(dims_of(dataset.shape) or ()) * dataset.type.size
        self._files = files
        self._parts: list[tuple[int, int, int, str]] = []
        """Of each run: where it begins and ends in the data, where in its file, and the place of the file."""
        at = 0
        for one in dataset.external:
            if at < self.size:
                stop = self.size if one.size is None else min(self.size, at + one.size)
                self._parts.append((at, stop, one.offset, self._place(one, beside)))
                at = stop
        if at < self.size:
            raise Corrupt(f"The external files are for {at} bytes; the dataset has {self.size}.")

    def close(self) -> None:
        """Close nothing: the files are closed by `SourceFiles`."""

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        for one in wanted:
            self.check(one)
        return [b"".join(self._read(one.address, one.address + one.size)) for one in wanted]

    def _read(self, start: int, stop: int) -> Iterator[bytes]:
        for begin, end, offset, place in self._parts:
            low, high = max(start, begin), min(stop, end)
            if low >= high:
                continue
            with self._files.use(place) as source:
                first = offset + low - begin
                there = max(0, min(high - low, source.size - first))
                if there:
                    yield source.read(first, there)
                # As libhdf5 (`H5D__efl_read`) reads beyond the end of a file.
                yield bytes(high - low - there)

    def _place(self, one: ExternalFile, beside: str) -> str:
        found = self._files.find(one.name, beside)
        if found is None:
            raise NotFound(f"There is no external file {one.name!r} beside {beside}: put it there.")
        return found
