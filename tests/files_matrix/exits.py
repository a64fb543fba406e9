"""Ways out of a domain, each compared with the file that it was imported from: `path: what` for each difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import fsspec
import h5py
import h5pyd
import numpy as np
import orjson
import scipy.sparse
import xarray
import zarr

import hsparse
from hsparse.cli.main import main
from tests.clients.hdf5_difference import differences


@dataclass(frozen=True, slots=True)
class Imported:
    """A file, and the domain at a server that has it; `folder` is for what comes out."""

    name: str
    path: Path
    url: str
    domain: str
    folder: Path


REFERENCE = "a reference"
Exit = Callable[[Imported], list[str]]
EXITS: dict[str, Exit] = {}


def way(name: str) -> Callable[[Exit], Exit]:
    def register(function: Exit) -> Exit:
        EXITS[name] = function
        return function

    return register


@way("export")
def export(given: Imported) -> list[str]:
    out = given.folder / f"{given.path.stem}-export.h5"
    assert (
        main(["export", given.domain, str(out), "--endpoint", given.url, "--progress", "none", "--force"])
        == 0
    )
    return [*differences(given.path, out), *_user_blocks(given.path, out.read_bytes())]


@way("/files")
def files(given: Imported) -> list[str]:
    out = given.folder / f"{given.path.stem}-files.h5"
    with urlopen(f"{given.url}/files{given.domain}") as reply:
        out.write_bytes(reply.read())
    return [*differences(given.path, out), *_user_blocks(given.path, out.read_bytes())]


def _user_blocks(path: Path, data: bytes) -> Iterator[str]:
    with h5py.File(path) as file:
        size = file.userblock_size
    if path.read_bytes()[:size] != data[:size]:
        yield "/: user block"


@way("client")
def client(given: Imported) -> list[str]:
    with h5py.File(given.path) as file, hsparse.open(f"{given.url}{given.domain}") as other:
        return list(_objects("/", file, other))


@way("h5pyd")
def by_h5pyd(given: Imported) -> list[str]:
    with h5py.File(given.path) as file, h5pyd.File(given.domain, "r", endpoint=given.url) as other:
        return list(_objects("/", file, other))


def _objects(path: str, one: Any, other: Any, above: tuple[Any, ...] = ()) -> Iterator[str]:
    """Compare an object and all below it by values alone; a group in itself is left out."""
    if isinstance(one, h5py.Group) and hasattr(other, "shape"):
        yield from _matrices(path, one, other)
        return
    yield from _attributes(path, one, other)
    if isinstance(one, h5py.Dataset):
        yield from _datasets(path, one, other)
    elif isinstance(one, h5py.Group) and one.id not in above:
        if sorted(one) != sorted(other):
            yield f"{path}: members {sorted(other)}"
            return
        for name in one:
            yield from _member(path, name, one, other, (*above, one.id))


def _member(path: str, name: str, one: Any, other: Any, above: tuple[Any, ...]) -> Iterator[str]:
    below = f"{path.rstrip('/')}/{name}"
    if (name in one) != (name in other):
        yield f"{below}: is {'not ' * (name not in other)}in the group"
    if (link := _link(one, name)) != (there := _link(other, name)):
        yield f"{below}: {there}, not {link}"
    if (found := one.get(name)) is None:
        return
    try:
        there = other[name]
    except Exception as error:  # noqa: BLE001 - told as a difference
        yield f"{below}: {type(error).__name__} {error}"
        return
    yield from _objects(below, found, there, above)


def _link(group: Any, name: str) -> tuple[str, ...]:
    link = group.get(name, getlink=True)
    named = (getattr(link, part, "") or "" for part in ("filename", "path"))
    return (type(link).__name__, *named)


def _attributes(path: str, one: Any, other: Any) -> Iterator[str]:
    try:
        names = sorted(other.attrs)
    except Exception as error:  # noqa: BLE001 - told as a difference
        yield f"{path}: attributes: {type(error).__name__} {error}"
        return
    if sorted(one.attrs) != names:
        yield f"{path}: attributes {names}"
    for name in one.attrs:
        with suppress(KeyError):
            yield from _same(
                f"{path}@{name}", lambda name=name: one.attrs[name], lambda name=name: other.attrs[name]
            )


def _datasets(path: str, one: Any, other: Any) -> Iterator[str]:
    if one.shape != other.shape:
        yield f"{path}: shape {other.shape}"
        return
    if one.maxshape != other.maxshape:
        yield f"{path}: maxshape {other.maxshape}"
    if one.dtype.kind in "biufcSV" and one.dtype.fields is None and one.dtype != np.dtype(other.dtype):
        yield f"{path}: dtype {other.dtype}"
    if one.shape is not None:
        yield from _same(path, lambda: one[()], lambda: other[()])


def _same(path: str, one: Callable[[], Any], other: Callable[[], Any]) -> Iterator[str]:
    try:
        found = plain(other())
    except Exception as error:  # noqa: BLE001 - told as a difference
        yield f"{path}: {type(error).__name__} {error}"
        return
    if not _alike(plain(one()), found):
        yield f"{path}: values"


def _alike(one: Any, other: Any) -> bool:
    """Say whether plain values are the same; libraries have references in forms of their own."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return one == REFERENCE or repr(one) == repr(other)


def _matrices(path: str, one: h5py.Group, other: Any) -> Iterator[str]:
    kind = {"csr_matrix": scipy.sparse.csr_array, "csc_matrix": scipy.sparse.csc_array}[
        one.attrs["encoding-type"]
    ]
    matrix = kind((one["data"][:], one["indices"][:], one["indptr"][:]), tuple(one.attrs["shape"]))
    found = other[:].todense() if isinstance(other, hsparse.SparseDataset) else other[()]
    if not np.array_equal(matrix.toarray(), np.asarray(found)):
        yield f"{path}: values"


def plain(value: Any) -> Any:
    """Return values as lists; text is text, a reference only that it is one, an empty value None."""
    if isinstance(value, bytes | np.bytes_):
        with suppress(UnicodeDecodeError):
            return bytes(value).decode()
        return bytes(value)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, h5py.Empty | h5pyd.Empty):
        return None
    if "Ref" in type(value).__name__:
        return REFERENCE
    if isinstance(value, np.ndarray):
        return [plain(part) for part in value] if value.ndim else plain(value[()])
    if isinstance(value, np.void):
        return [plain(value[name]) for name in value.dtype.names] if value.dtype.names else bytes(value)
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


@way("xarray")
def by_xarray(given: Imported) -> list[str]:
    try:
        one = xarray.open_dataset(given.path, engine="h5netcdf", decode_timedelta=False)
    except Exception:  # noqa: BLE001 - no file of netCDF
        return []
    with (
        one,
        xarray.open_dataset(f"{given.url}{given.domain}", engine="hsparse", decode_timedelta=False) as other,
    ):
        found = [f"/{name}: missing" for name in sorted(set(one.variables) - set(other.variables))]
        found += [f"/{name}: added" for name in sorted(set(other.variables) - set(one.variables))]
        for name in sorted(set(one.attrs) | set(other.attrs)):
            if repr(plain(one.attrs.get(name, "absent"))) != repr(plain(other.attrs.get(name, "absent"))):
                found.append(f"/@{name}: {other.attrs.get(name)!r}")
        for name in set(one.variables) & set(other.variables):
            if not one[name].identical(other[name]):
                found.append(f"/{name}: not identical")
        return found


@way("kerchunk")
def by_kerchunk(given: Imported) -> list[str]:
    """Compare numbers that zarr reads by references into the file of `/files`."""
    out = given.folder / f"{given.path.stem}-references.h5"
    query = urlencode({"domain": given.domain, "format": "kerchunk", "addresses": "file", "base": str(out)})
    with urlopen(f"{given.url}/map?{query}") as reply:
        found = orjson.loads(reply.read())
    with urlopen(found["file"]["href"]) as reply:
        out.write_bytes(reply.read())
    references = fsspec.filesystem("reference", fo=found, remote_protocol="file", asynchronous=True)
    group = zarr.open_group(zarr.storage.FsspecStore(references, read_only=True), mode="r", zarr_format=2)
    names = [key.removesuffix("/.zarray") for key in found["refs"] if key.endswith("/.zarray")]
    with h5py.File(given.path) as file:
        wrong = [f"/{name}: missing" for name in _numbers(file) if name not in names]
        for name in names:
            one = file.get(name)
            if isinstance(one, h5py.Dataset) and one.dtype.kind in "biuf":
                wrong += _same(
                    f"/{name}", partial(one.__getitem__, ()), partial(group[name].__getitem__, ...)
                )
    return wrong


def _numbers(file: h5py.File) -> list[str]:
    """Return the paths of datasets of numbers, as they are met first."""
    found: list[str] = []

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None and item.dtype.kind in "biuf":
            found.append(name)

    file.visititems(note)
    return found
