"""Open Zarr stores of formats 2 and 3, a directory or a `.zarr.zip`, and list their keys, groups and arrays.

See https://zarr-specs.readthedocs.io. Consolidated metadata is not used, because each node has its own metadata.
"""

from __future__ import annotations

import json
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import zarr
from zarr.storage import LocalStore, ZipStore

from hsparse.errors import BadRequest, Corrupt, HsparseError, Unsupported
from hsparse.hdf5.importer.file_objects import is_utf8_name
from hsparse.hdf5.importer.source import OpenedInput

METADATA = {2: (".zgroup", ".zarray"), 3: ("zarr.json",)}
"""Maps each Zarr format to the names of the metadata keys of groups and arrays."""
LARGEST_CHUNK = 1 << 30
"""The maximum size in bytes of a chunk, or of a value in a zip file."""
LARGEST_METADATA = 16 << 20
Node: TypeAlias = Any
"""A `zarr.Group` or `zarr.Array`."""


@contextmanager
def library_errors(path: str, library: str = "zarr") -> Iterator[None]:
    """Convert any error of a library or its codecs to `Corrupt`, with `path` at the front of the message."""
    try:
        yield
    except HsparseError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise Corrupt(f"{path}: {library} cannot read it: {type(error).__name__}: {text[:300]}.") from error


class ZarrStore(OpenedInput):
    """An open store: `keys` maps each key to the size of its value in bytes; `read(key)` returns the value.

    `state` is a text that identifies the content of the store.
    """

    def __init__(
        self, name: str, store: Any, keys: dict[str, int], state: str, read: Callable[[str], bytes]
    ) -> None:
        """Detect the store's format; raises `Corrupt` if the root of the store has no Zarr metadata."""
        self.name = name
        self.keys = keys
        self.size = sum(keys.values())
        self.fingerprint = fingerprint_of(state)
        self._store = store
        self._read_value = read
        self.version = next((one for one in (3, 2) if {*METADATA[one]} & {*keys}), 0)
        if not self.version:
            self.close()
            raise Corrupt(f"{name} is no Zarr store: it has no zarr.json, .zgroup or .zarray at its top.")

    @classmethod
    def open(cls, place: str) -> ZarrStore:
        """Open a directory or a zip file; raises `Unsupported` if the directory contains links."""
        path = Path(place)
        if path.is_dir():
            keys, state = files_below(path)
            store = LocalStore(path, read_only=True)
            return cls(place.rstrip("/"), store, keys, state, lambda key: (path / key).read_bytes())
        with library_errors(place):
            file = zipfile.ZipFile(path)
            keys, state = _members(file, place)
            return cls(place, ZipStore(path, mode="r", read_only=True), keys, state, file.read)

    def close(self) -> None:
        self._store.close()

    def nodes(self) -> Iterator[tuple[str, Node]]:
        """Yield groups and arrays with their paths, parents first; the root has the empty path.

        Raises `Corrupt` if the parent of a node is no group, and `Unsupported` for codecs that can run code (pickle).
        """
        groups, arrays = set[str](), set[str]()
        for path in sorted(self._paths(), key=lambda path: path.split("/") if path else []):
            above = path.rpartition("/")[0]
            if arrays & _parents(path):
                continue  # a key inside of an array is not a node
            if path and above not in groups:
                raise Corrupt(
                    f"/{above} has members, such as /{path}, but no metadata that makes it a group."
                )
            if any(one in (".", "..") or not is_utf8_name(one) for one in path.split("/")):
                raise Unsupported(f"{path!r} cannot be the path of an object: rename the node.")
            node = self._open(path)
            (arrays if isinstance(node, zarr.Array) else groups).add(path)
            yield path, node

    def chunk_keys(self, arrays: set[str]) -> dict[str, dict[str, int]]:
        """Return a dict that maps each array's path to a dict of relative key to size of the values below it."""
        found: dict[str, dict[str, int]] = {path: {} for path in arrays}
        for key, size in self.keys.items():
            for path in arrays & _parents(key):
                found[path][key[len(path) + 1 :] if path else key] = size
        return found

    def _paths(self) -> set[str]:
        names = METADATA[self.version]
        return {key.rpartition("/")[0] for key in self.keys if key.rpartition("/")[2] in names}

    def _open(self, path: str) -> Node:
        above = f"{path}/" if path else ""
        with library_errors(f"/{path}"), warnings.catch_warnings(action="ignore"):
            key = next(
                f"{above}{name}" for name in METADATA[self.version][::-1] if f"{above}{name}" in self.keys
            )
            described = json.loads(self._read(key))
            options = {"path": path, "mode": "r", "zarr_format": self.version}
            is_array = key.endswith(".zarray") or described.get("node_type") == "array"
            if not is_array:
                return zarr.open_group(self._store, use_consolidated=False, **options)
            _check_codecs(path, described)
            return zarr.open_array(self._store, **options)

    def _read(self, key: str) -> bytes:
        if self.keys[key] > LARGEST_METADATA:
            raise Unsupported(f"{key} has {self.keys[key]} bytes; metadata may have {LARGEST_METADATA}.")
        return self._read_value(key)


def _parents(path: str) -> set[str]:
    """Return the paths of all parents of a path, including the empty path of the root."""
    parts = path.split("/")
    return {"/".join(parts[:count]) for count in range(len(parts))}


def fingerprint_of(state: str) -> str:
    """Return a fingerprint (32 hex digits) of a text that describes the state of files."""
    return sha256(state.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def files_below(place: Path) -> tuple[dict[str, int], str]:
    """Return a pair: a dict of relative path to size of all files below a directory, and a text of their state."""
    found, state = {}, []
    ahead = [(os.fspath(place), "")]
    while ahead:
        folder, prefix = ahead.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda one: one.name)
            for one in entries:
                key = f"{prefix}{one.name}"
                if one.is_dir(follow_symlinks=False):
                    ahead.append((one.path, f"{key}/"))
                elif one.is_file(follow_symlinks=False):
                    status = one.stat(follow_symlinks=False)
                    found[key] = status.st_size
                    state.append(f"{key} {status.st_size} {status.st_mtime_ns}")
                else:
                    raise Unsupported(
                        f"{one.path} is a link, or no file: copy the store with files alone (cp -rL)."
                    )
        except OSError as error:
            raise BadRequest(f"The directory {folder} cannot be read: {error.strerror}.") from error
    return found, "\n".join(sorted(state))


def _members(file: zipfile.ZipFile, place: str) -> tuple[dict[str, int], str]:
    """Return a pair: a dict of name to size of all files in a zip file, and a text of their state."""
    found = {}
    for one in file.infolist():
        if one.file_size > LARGEST_CHUNK:
            raise Unsupported(
                f"{place}: {one.filename} has {one.file_size} bytes; the limit is {LARGEST_CHUNK}."
            )
        if one.filename in found:
            raise Corrupt(f"{place}: the zip file has {one.filename} twice.")
        if not one.is_dir():
            found[one.filename] = one.file_size
    return found, "\n".join(sorted(f"{one.filename} {one.file_size} {one.CRC}" for one in file.infolist()))


def _check_codecs(path: str, described: Any) -> None:
    """Raise `Unsupported` if metadata names a pickle codec, because reading a pickle can run code."""
    ahead = [described]
    while ahead:
        one = ahead.pop()
        if isinstance(one, dict):
            names = {str(one.get(key)).lower() for key in ("id", "name")}
            if any("pickle" in name for name in names):
                raise Unsupported(
                    f"/{path}: Its values are pickles, which run code when they are read: convert it."
                )
            ahead += [value for key, value in one.items() if key != "attributes"]
        elif isinstance(one, list):
            ahead += one
