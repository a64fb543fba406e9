"""Find and open the files that an HDF5 file names: sources of virtual datasets, and external raw files.

A name is looked up as in libhdf5: a relative name beside the naming file; an absolute name as it is, and then by
its last component beside the naming file. Directories that the caller adds are searched last, by the last component of
absolute names. Only files below allowed directories are read: that of the imported file, and the added directories. A
malicious file can therefore not import other files of this machine.

`ExternalData` reads a dataset in external raw files: it joins the byte ranges that the HDF5 file lists.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from math import prod
from pathlib import Path
from posixpath import normpath
from threading import Lock

from hsparse.cli.file_arguments import SCHEME, S3Url
from hsparse.errors import BadRequest, Conflict, Corrupt, Forbidden, NotFound, Unsupported
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.parse.parsed_object import ParsedDataset
from hsparse.hdf5.format.parse.virtual_mapping import ExternalFile
from hsparse.hdf5.importer.source import InputFile
from hsparse.model.dataspace import dims_of

MAX_OPEN = 64
"""The maximum number of files that stay open between reads."""
OpenSource = Callable[[str], InputFile]
EtagOf = Callable[[str], str]


class SourceFiles:
    """The files that the HDF5 file `main` names; `open_source` opens a file by its path or URL. Thread-safe.

    `places` are additional allowed directories, or prefixes `s3://bucket/path`. `name` is the name of `main` in errors.
    `etag_of` returns the current etag of a file or raises `NotFound`; `is_changed` and `etag` need it.
    """

    def __init__(
        self,
        main: str,
        open_source: OpenSource,
        places: Sequence[str] = (),
        name: str = "",
        etag_of: EtagOf | None = None,
    ) -> None:
        self._open_source = open_source
        self._etag_of = etag_of
        self._etags: dict[tuple[str, str], str] = {}
        self._called = {name: main} if name else {}
        self._beside = tuple(one for place in _folders(main) for one in _real(place))
        self._places = tuple(one for place in places for one in _real(place))
        self._found: dict[tuple[str, str], str | None] = {}
        self._kept: OrderedDict[str, InputFile] = OrderedDict()
        self._users: dict[str, int] = {}
        self._lock = Lock()
        self.missing: set[str] = set()
        self.others: Mapping[str, str] = {}
        """Maps other served directories to the paths under which they are served; `in_other` finds files there."""
        self.imported: Mapping[str, str] = {}
        """Maps each directory that is imported to the domain folder that it is imported into."""

    def find(self, name: str, beside: str) -> str | None:
        """Return the path or URL of the file that the file `beside` calls `name`, or None if no such file exists.

        Raises `Forbidden` if the file is not found, but might be outside of the allowed directories.
        """
        key = (name, beside)
        if key not in self._found:
            # The etag is read before the file is opened, so that a change in between counts as a change.
            self._etags[key] = self._state_of(key)
            self._found[key] = self._lookup(name, beside)
        return self._found[key]

    @property
    def is_changed(self) -> bool:
        """Whether a name that was looked up leads to another file now, or to a file that has changed."""
        return any(self._state_of(key) != etag for key, etag in list(self._etags.items()))

    @property
    def etag(self) -> str:
        """An etag that changes if any of the files that were looked up changes."""
        return sha256(repr(sorted(self._etags.items())).encode(errors="surrogateescape")).hexdigest()[:32]

    def _state_of(self, key: tuple[str, str]) -> str:
        """Return the location and etag of the file that a name leads to now, or "" if no file is found."""
        if self._etag_of is None:
            return ""
        for one in self._candidates(*key):
            if self._is_allowed(one):
                with suppress(NotFound):
                    return f"{one} {self._etag_of(one)}"
        return ""

    @property
    def names_others(self) -> bool:
        """Whether any other file has been looked up."""
        return bool(self._found)

    def looked_at(self, name: str, beside: str) -> str:
        """Return a text for messages with the locations that `find` tries, or "" for ".", the file itself."""
        return (
            ""
            if name == "."
            else ", ".join(one for one in self._candidates(name, beside) if self._is_allowed(one))
        )

    def in_place(self, name: str, beside: str, *, named: bool = False) -> str | None:
        """Return the path, below the first of `places`, of the file that `beside` calls `name`, or None if outside.

        The file need not exist; among several candidates, the first existing local file is preferred. With `named`, an
        absolute name is only looked up as it is, not by its last component.
        """
        place = self._places[0].rstrip("/") + "/"
        found: list[str] = []
        with suppress(Forbidden):  # the name leads out of the bucket
            found = [one for one in self._candidates(name, beside) if one.startswith(place)]
        if named:
            found = [one for one in found if one == os.path.realpath(name)]
        there = [one for one in found if not one.startswith(SCHEME) and _is_there(one)]
        return next((one.removeprefix(place) for one in (*there, *found)), None)

    def in_other(self, name: str, beside: str) -> tuple[str, str] | None:
        """Return (served path, path below it) of the file that `beside` calls `name` if `others` contain the file.

        Returns None for other files. Existing candidates are preferred; if none exists, the first candidate counts.
        """
        found = [(one, self._other(one)) for one in (self._candidates(name, beside) if self.others else ())]
        found = [(one, place) for one, place in found if place or self._is_allowed(one)]
        there = (one for one in found if _is_there(one[0]))
        first, place = next(there, found[0] if found else ("", ""))
        if not place or self._is_allowed(first):
            return None
        return self.others[place], str(Path(first).relative_to(place))

    def _other(self, location: str) -> str:
        """Return the innermost directory in `others` that contains a path, or "" if none contains it."""
        return max((one for one in self.others if Path(location).is_relative_to(one)), key=len, default="")

    def domain(self, name: str, beside: str) -> str:
        """Return the domain that a file with an absolute name is imported into, or `name` for any other file."""
        if not name.startswith("/") or not self.imported:
            return name
        for one in self._candidates(name, beside):
            for folder, domain in self.imported.items():
                if Path(one).is_relative_to(folder) and Path(one).is_file():
                    return f"{domain}/{Path(one).relative_to(folder)}"
        return name

    @contextmanager
    def use(self, location: str) -> Iterator[InputFile]:
        """Yield the open file at a location that `find` has returned; up to `MAX_OPEN` files stay open afterwards."""
        source = self._acquire(location)
        try:
            yield source
        finally:
            self._release(location)

    def close(self) -> None:
        """Close all files. No file may be in use."""
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
        """Return the locations where a file may be: the locations of libhdf5, then those below added directories."""
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
        # A file in a home directory must not read hidden files there, such as keys.
        return any(not any(part.startswith(".") for part in one.parts) for one in beside)

    def _acquire(self, location: str) -> InputFile:
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


class SharedSource(InputFile):
    """The file at a location that `files` has found; `files` opens the file for reads, and may keep it open."""

    def __init__(self, files: SourceFiles, location: str) -> None:
        self.name = location
        self._files = files
        with files.use(location) as source:
            self.size, self.fingerprint = source.size, source.fingerprint

    def close(self) -> None:
        """Do nothing: `SourceFiles` closes the files."""

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        with self._files.use(self.name) as source:
            if source.fingerprint != self.fingerprint:
                raise Conflict(f"{self.name} was changed while it was read: import it again.")
            return source.fetch(wanted)


def _folders(main: str) -> tuple[str, ...]:
    """Return the directories of a local file's path and resolved path, or an object's prefix `s3://bucket/path`."""
    if main.startswith(SCHEME):
        return (main.rpartition("/")[0],)
    return str(Path(main).absolute().parent), str(Path(os.path.realpath(main)).parent)


def _real(place: str) -> tuple[str, ...]:
    """Return a directory with symbolic links resolved, or a prefix of objects with a slash at its end."""
    if place.startswith(SCHEME):
        return (place.rstrip("/") + "/",)
    return (os.path.realpath(place),)


def _is_there(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises an error of a mount that does not answer


def _candidates(name: str, beside: str) -> list[str]:
    """Return the locations where libhdf5 looks for a file: paths with symbolic links resolved, or URLs."""
    if not name or "\0" in name:
        raise BadRequest(f"{beside} names a file {name!r}, which is not a valid name.")
    last = name.rpartition("/")[2]
    if beside.startswith(SCHEME):
        return _objects(name, last, beside)
    names = [name] if not name.startswith("/") else [name, last]
    folders = dict.fromkeys(_folders(beside))
    return list(
        dict.fromkeys(os.path.realpath(Path(folder) / one) for one in names if one for folder in folders)
    )


def _objects(name: str, last: str, beside: str) -> list[str]:
    """Return the URL of the file that an object names; an absolute path is reduced to its last component."""
    if name.startswith(SCHEME):
        place = S3Url.parse(name)
        return [str(S3Url(place.bucket, normpath(place.key)))]
    place = S3Url.parse(beside)
    key = normpath(place.key.rpartition("/")[0] + "/" + (last if name.startswith("/") else name)).lstrip("/")
    if key.startswith("../"):
        raise Forbidden(f"The file {name!r} is outside of the bucket of {beside}: copy it into the bucket.")
    return [str(S3Url(place.bucket, key))]


def _refuse(location: str) -> InputFile:
    raise Unsupported(f"Data in another file, {location}, cannot be read here.")


NO_FILES = SourceFiles("/nowhere/none", _refuse)
"""The `SourceFiles` of a file whose other files may not be read: opening another file raises `Unsupported`."""


class NoOtherFiles(SourceFiles):
    """The `SourceFiles` of an uploaded file, which has no files beside it: every file that it names is missing."""

    def __init__(self) -> None:
        super().__init__("/nowhere/none", _refuse)

    def find(self, name: str, beside: str) -> str | None:
        return None

    @property
    def names_others(self) -> bool:
        """Whether any other file has been looked up, which is never the case."""
        return bool(self._found)

    def looked_at(self, name: str, beside: str) -> str:
        return ""


class ExternalData(InputFile):
    """The bytes of a dataset that the file `beside` stores in external files. Zeros follow the end of a short file.

    Raises `NotFound` if a file is missing, and `Corrupt` if the listed ranges have fewer bytes than the dataset.
    """

    def __init__(self, files: SourceFiles, beside: str, dataset: ParsedDataset) -> None:
        self.name = beside
        self.fingerprint = ""
        self.size = prod(dims_of(dataset.shape) or ()) * dataset.type.size
        self._files = files
        self._parts: list[tuple[int, int, int, str]] = []
        """For each range: its begin and end in the data, its offset in the external file, and the file's location."""
        at = 0
        for one in dataset.external:
            if at < self.size:
                stop = self.size if one.size is None else min(self.size, at + one.size)
                self._parts.append((at, stop, one.offset, self._place(one, beside)))
                at = stop
        if at < self.size:
            raise Corrupt(f"The external files provide {at} bytes; the dataset needs {self.size}.")

    def close(self) -> None:
        """Do nothing: `SourceFiles` closes the files."""

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
                # libhdf5 (`H5D__efl_read`) also reads zeros beyond the end of a file.
                yield bytes(high - low - there)

    def _place(self, one: ExternalFile, beside: str) -> str:
        found = self._files.find(one.name, beside)
        if found is None:
            raise NotFound(f"There is no external file {one.name!r} beside {beside}: put it there.")
        return found
