"""What a domain has over REST, compared with a file by h5py, and before and after a round trip, known changes named."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5json.hdf5dtype import createDataType

from hsparse.client.connection import Connection
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.filters.definition import Filter
from hsparse.format.selections.selection_json import parse_selection_json
from hsparse.hdf5.format.messages.file_type import (
    FileType,
    file_type,
    has_addresses,
    has_references,
    names_of_enum,
)
from hsparse.model.dataspace import dims_of, max_dims_of
from hsparse.model.datatype import parse_type
from tests.format.hdf5.h5py_files import KINDS, kind_of, packed, plain

LARGE = 10_000
"""Elements of numbers that are compared as bytes."""
NOT_DTYPES = (KeyError, TypeError, ValueError)
"""What h5json raises for types that it has no dtype of."""


def domain_differences(file: h5py.File, connection: Connection) -> list[str]:
    """Return what the domain has otherwise than the file: one `path: what` each."""
    return list(_Comparison(file, connection).run())


def assert_is_file(connection: Connection, path: Path) -> None:
    """Assert that a domain has what a file has."""
    with h5py.File(path) as file:
        assert domain_differences(file, connection) == []


class _Comparison:
    """Walks both along the links; an object met again must be met again in both."""

    def __init__(self, file: h5py.File, connection: Connection) -> None:
        self._file = file
        self._connection = connection
        self._ids: dict[int, str] = {}

    def run(self) -> Iterator[str]:
        root = self._connection.json("GET", "/")["root"]
        objects = [("/", root)]
        ahead = list(objects)
        self._ids[self._address(self._file)] = root
        while ahead:
            path, id = ahead.pop()
            if id[0] != "g" or not isinstance(self._file[path], h5py.Group):
                continue
            for name, link in self._links(path, id):
                if isinstance(link, str):
                    yield link
                    continue
                inner = f"{path.rstrip('/')}/{name}"
                address = self._address(self._file[inner])
                if self._ids.setdefault(address, link["id"]) != link["id"]:
                    yield f"{inner}: not the same object as elsewhere"
                elif all(link["id"] != known for _, known in objects):
                    objects.append((inner, link["id"]))
                    ahead.append(objects[-1])
        for path, id in objects:
            yield from self._objects(path, id)

    def _links(self, path: str, id: str) -> Iterator[tuple[str, Any]]:
        """Yield the hard links of a group; with a text those that differ."""
        group = self._file[path]
        found = self._connection.json("GET", f"/groups/{id}/links", CreateOrder=1)["links"]
        links = {link["title"]: link for link in found}
        ordered = bool(group.id.get_create_plist().get_link_creation_order())
        if (list(links) if ordered else set(links)) != (list(group) if ordered else set(group)):
            yield "", f"{path}: links {list(links)}"
            return
        for name in group:
            link, there = group.get(name, getlink=True), links[name]
            if isinstance(link, h5py.HardLink):
                yield name, there
            elif isinstance(link, h5py.ExternalLink):
                if (there["h5path"], there["file"]) != (link.path, link.filename):
                    yield name, f"{path}/{name}: external link {there}"
            elif there["h5path"] != link.path or there["class"] != "H5L_TYPE_SOFT":
                yield name, f"{path}/{name}: soft link {there}"

    def _objects(self, path: str, id: str) -> Iterator[str]:
        item = self._file[path]
        collection = f"{KINDS[kind_of(item)]}s"
        if collection[0] != {"datatypes": "d"}.get(collection, id[0]):
            yield f"{path}: {id}"
            return
        url = f"/{collection}/{id}"
        record = self._connection.json("GET", url)
        if isinstance(item, h5py.Dataset):
            yield from self._typed(path, record, item.id, item.dtype)
            if record["shape"]["class"] != "H5S_NULL" and item.maxshape != max_dims_of(record["shape"]):
                yield f"{path}: maxdims {record['shape']}"
            if item.dtype.kind in "iuf" and (item.size or 0) > LARGE:
                if self._connection.binary("GET", f"{url}/value") != item[()].tobytes():
                    yield f"{path}: value"
            elif item.shape is not None:
                value = self._connection.json("GET", f"{url}/value")["value"]
                expected = item[()]
                if item.dtype.kind == "M":  # opaque in the file, with a tag that h5py knows
                    expected = expected.view("V8")
                yield from self._same(f"{path}: value", value, expected)
                yield from self._fill(path, record, item)
        elif isinstance(item, h5py.Datatype) and not _same_type(record["type"], item.dtype):
            yield f"{path}: type {record['type']}"
        yield from self._attributes(path, url, item)

    def _attributes(self, path: str, url: str, item: Any) -> Iterator[str]:
        listed = self._connection.json("GET", f"{url}/attributes", IncludeData=1, CreateOrder=1)["attributes"]
        found = {one["name"]: one for one in listed}
        plist = h5py.h5g.GroupID.get_create_plist if isinstance(item, h5py.Group) else None
        ordered = plist is not None and bool(plist(item.id).get_attr_creation_order())
        if (list(found) if ordered else set(found)) != (list(item.attrs) if ordered else set(item.attrs)):
            yield f"{path}: attributes {list(found)}"
            return
        for name in item.attrs:
            kind = item.attrs.get_id(name)
            yield from self._typed(f"{path}@{name}", found[name], kind, kind.dtype)
            if dims_of(found[name]["shape"]) is not None:
                yield from self._same(f"{path}@{name}: value", found[name]["value"], item.attrs[name])

    def _typed(self, path: str, record: Any, id: Any, dtype: np.dtype[Any]) -> Iterator[str]:
        is_null = id.get_space().get_simple_extent_type() == h5py.h5s.NULL
        if dims_of(record["shape"]) != (None if is_null else id.shape):
            yield f"{path}: extent {record['shape']}"
        if not _same_type(record["type"], dtype):
            yield f"{path}: type {record['type']}"
        committed = isinstance(record["type"], dict) and "id" in record["type"]
        if committed != id.get_type().committed():
            yield f"{path}: committed {committed}"

    def _fill(self, path: str, record: Any, item: h5py.Dataset) -> Iterator[str]:
        defined = item.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
        fill = np.asarray(item.fillvalue)
        if defined and (fill.dtype.hasobject or any(fill.tobytes())):
            value = record["creationProperties"].get("fillValue")
            named = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}
            value = named.get(value, value) if isinstance(value, str) else value
            yield from self._same(f"{path}: fill value", value, item.fillvalue)

    def _same(self, what: str, found: Any, value: Any) -> Iterator[str]:
        expected = json.dumps(_coded(plain(value, self._file, self._spell)))
        if json.dumps(found) != expected:
            yield f"{what} {json.dumps(found)[:200]}, not {expected[:200]}"

    def _spell(self, path: str, file: h5py.File) -> str:
        id = self._ids[self._address(file[path])]
        return f"{ {'g': 'groups', 'd': 'datasets', 't': 'datatypes'}[id[0]] }/{id}"

    def _address(self, item: Any) -> int:
        return int(h5py.h5o.get_info(item.id).addr)


def _same_type(item: Any, dtype: np.dtype[Any]) -> bool:
    try:
        found = createDataType(item)
    except NOT_DTYPES:
        return True
    if found.hasobject or dtype.hasobject or dtype.kind in "cM" or found.names or dtype.names:
        return True  # values tell them apart
    return packed(found) == packed(dtype)


def _coded(value: Any) -> Any:
    """Return what JSON has no type of as it is spelled there."""
    if isinstance(value, list | tuple):
        return [_coded(part) for part in value]
    if isinstance(value, complex):
        return [value.real, value.imag]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode() if any(value) else ""
    return value


COLLECTIONS = {"g": "groups", "d": "datasets", "t": "datatypes"}
SPELLED = re.compile(r"(?:(?:groups|datasets|datatypes)/)?[gdt]?-?[0-9a-f]{8}(?:-[0-9a-f]+)+")
"""An id, with its collection in references, without its first letter in those to regions."""
KEPT = ("fillValue", "CreateOrder")
SPARSE = "H5D_SPARSE_DATA"
Picture = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """What is otherwise after a round trip: the object's path, what of it, and that before and after."""

    path: str
    what: str
    before: Any
    after: Any


def picture_of(connection: Connection) -> Picture:
    """Return each object by its path, the first of its paths that a walk by names meets."""
    root = connection.json("GET", "/")["root"]
    paths, ahead, links = {root: "/"}, [root], {}
    while ahead:
        id = ahead.pop()
        if id[0] != "g":
            continue
        links[id] = connection.json("GET", f"/groups/{id}/links", CreateOrder=1)["links"]
        below = sorted((link["title"], link["id"]) for link in links[id] if "id" in link)
        for title, child in below:
            if child not in paths:
                paths[child] = f"{paths[id].rstrip('/')}/{title}"
                ahead.append(child)
    short = {id.partition("-")[2]: path for id, path in paths.items()}

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: named(part) for key, part in value.items()}
        if isinstance(value, list):
            return [named(part) for part in value]
        if isinstance(value, str) and SPELLED.fullmatch(value):
            return f"-> {short.get(value.partition('-')[2], short.get(value, 'nowhere'))}"
        return value

    found = {}
    for id, path in paths.items():
        seen = _object(connection, id)
        if id in links:
            ordered = seen["properties"].get("CreateOrder")
            listed = [_link(link) for link in links[id]]
            seen["links"] = listed if ordered else sorted(listed, key=str)
        found[path] = named(seen)
    return found


def _link(link: Any) -> Any:
    return [
        link["title"],
        {key: link[key] for key in ("class", "id", "h5path", "file", "h5domain") if key in link},
    ]


def _type(item: Any) -> Any:
    """Return a type in one of the ways in which it can be told, and the committed one that it is of."""
    id = item.get("id") if isinstance(item, dict) else None
    plain = _spelled(file_type(parse_type(item).item))
    return plain if id is None else {**plain, "id": id}


def _spelled(stored: FileType) -> dict[str, Any]:
    item = {key: stored.item[key] for key in sorted(stored.item) if key not in ("base", "fields", "id")}
    parts = [_spelled(part) for part in stored.parts]
    if item["class"] == "H5T_ENUM":
        item = {"class": "H5T_ENUM", "names": names_of_enum(stored.item)}
    elif item["class"] == "H5T_COMPOUND":
        item["names"] = [one["name"] for one in stored.item["fields"]]
    elif not parts:
        item["base"] = stored.item.get("base")
    return {**item, "parts": parts}


def _object(connection: Connection, id: str) -> dict[str, Any]:
    url = f"/{COLLECTIONS[id[0]]}/{id}"
    record = connection.json("GET", url)
    properties = record.get("creationProperties") or {}
    seen: dict[str, Any] = {"properties": {key: properties[key] for key in KEPT if properties.get(key)}}
    listed = connection.json("GET", f"{url}/attributes", IncludeData=1, CreateOrder=1)["attributes"]
    seen["attribute names"] = [one["name"] for one in listed]
    if not properties.get("CreateOrder"):
        seen["attribute names"].sort()
    for one in listed:
        shown = {"type": _type(one["type"]), "shape": one["shape"], "value": one.get("value")}
        seen[f"attribute {one['name']}"] = shown
    if "type" in record:
        seen["type"] = _type(record["type"])
    if id[0] == "d":
        seen["shape"] = [dims_of(record["shape"]), max_dims_of(record["shape"])]
        datatype = parse_type(record["type"])
        stored = file_type(datatype.item)
        seen["has places"] = has_addresses(stored)
        seen["has references on heaps"] = datatype.is_vlen and has_references(stored)
        seen["layout"] = properties.get("layout")
        seen["grid"] = record.get("layout")
        if record["shape"]["class"] != "H5S_NULL":
            seen["pipelines"] = [list(map(_filter, some)) for some in chunk_spec(record).filters]
            seen["value"] = connection.json("GET", f"{url}/value")["value"]
            if SPARSE in ((seen["grid"] or {}).get("flags") or ()):
                seen["defined"] = _defined(connection, url, dims_of(record["shape"]) or ())
    return seen


def _filter(one: Filter) -> tuple[int, tuple[int, ...]]:
    return one.id, one.values


def _defined(connection: Connection, url: str, dims: tuple[int, ...]) -> list[list[int]]:
    """Return which elements are defined, in row-major order."""
    told = connection.json("GET", f"{url}/defined")
    selection = parse_selection_json(told.get("selection", told), dims)
    return sorted(selection.coords().tolist())


def differences(before: Picture, after: Picture) -> list[Difference]:
    """Return all differences, part by part of each object."""
    found = [
        Difference(path, "object", path in before, path in after)
        for path in sorted(before.keys() ^ after.keys())
    ]
    for path in sorted(before.keys() & after.keys()):
        one, other = before[path], after[path]
        for what in sorted(one.keys() | other.keys()):
            if what != "properties":
                pairs = [(what, one.get(what), other.get(what))]
            else:
                pairs = [(key, one[what].get(key), other[what].get(key)) for key in KEPT]
            found += [Difference(path, key, old, new) for key, old, new in pairs if not _same(old, new)]
    return found


def _same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)


@dataclass(frozen=True)
class Known:
    """A difference: `explains` is asked with the layout or revision, and the picture before."""

    name: str
    why: str
    explains: Callable[[Difference, str, Picture], bool]


CHOSEN = [[[2, 1], []], [[2, 1], [2, 1], []]]
"""The ids of the filters of each section that the server chooses: shuffle and deflate."""
NOTHING = (None, "", 0, 0.0, False)


def is_refused(picture: Picture, form: str) -> bool:
    """Say whether no file of that layout or revision can have a domain; it is told which dataset is in the way.

    References to regions are on a heap of the whole file, and those beside parts of variable length would be addresses
    in a filtered heap: structured chunks have no place for either.
    """
    return form != "stock" and any(
        seen.get("has references on heaps") and _is_sparse(picture, path) for path, seen in picture.items()
    )


def _is_sparse(picture: Picture, path: str) -> bool:
    return SPARSE in ((picture[path].get("grid") or {}).get("flags") or ())


def _is_made(picture: Picture, path: str) -> bool:
    """Say whether a dense dataset's elements have places in a file: of a heap, or of objects."""
    return bool(picture[path]["has places"])


def _is_enlarged(before: Any, after: Any) -> bool:
    """Say whether the layout after has chunks that are not smaller."""
    dims = before["dims"], after.get("dims", ())
    return after["class"] == "H5D_CHUNKED" and all(one <= other for one, other in zip(*dims, strict=True))


def _is_nothing(value: Any) -> bool:
    return all(map(_is_nothing, value)) if isinstance(value, list) else value in NOTHING


KNOWN: tuple[Known, ...] = (
    Known(
        "chunks that are made for the file are unfiltered",
        "Their sizes must be known before anything is read; what has addresses in it is known later still.",
        lambda it, form, before: it.what == "pipelines" and not any(it.after) and _is_made(before, it.path),
    ),
    Known(
        "a sparse dataset from the layout stock has the filters that the server chooses",
        "The chunks of the file are no sections: it has no place for their filters.",
        lambda it, form, before: (
            form == "stock"
            and it.what == "pipelines"
            and _is_sparse(before, it.path)
            and [[id for id, _ in some] for some in it.after] in CHOSEN
        ),
    ),
    Known(
        "references in structured chunks are unfiltered",
        "Sizes must be known before addresses are.",
        lambda it, form, before: (
            form != "stock"
            and it.what == "pipelines"
            and _is_sparse(before, it.path)
            and _is_made(before, it.path)
            and it.after == [it.before[0], []]
        ),
    ),
    Known(
        "small chunks are those that the server made of them",
        "It stores them enlarged, and the file has the stored ones; they are what is asked for then.",
        lambda it, form, before: (
            it.what == "layout"
            and it.before["class"] == "H5D_CHUNKED"
            and it.after == {"class": "H5D_CHUNKED", "dims": before[it.path]["grid"]["dims"]}
        ),
    ),
    Known(
        "compact data is contiguous",
        "The file has the same elements; one class is enough to write.",
        lambda it, form, before: (
            it.what == "layout"
            and it.before == {"class": "H5D_COMPACT"}
            and it.after == {"class": "H5D_CONTIGUOUS"}
        ),
    ),
    Known(
        "a dense dataset of structured chunks is a chunked or contiguous one",
        "The RFC reserves structured chunks for dense data of variable length, and no library reads any.",
        lambda it, form, before: (
            it.what in ("layout", "grid", "pipelines")
            and ((before[it.path].get("grid") or {}).get("flags") == ["H5D_VL_DATA"])
            and (
                it.what == "pipelines"
                or _is_enlarged(it.before, it.after)
                or it.after == {"class": "H5D_CONTIGUOUS"}  # where it is one chunk
            )
        ),
    ),
    Known(
        "a fill value of nothing but zeros is none",
        "Elements never written are the same.",
        lambda it, form, before: it.what == "fillValue" and it.after is None and _is_nothing(it.before),
    ),
)
