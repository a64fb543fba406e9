"""What a domain has, over REST, compared with what h5py reads in a file: paths, links, types, extents, values."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
from h5json.hdf5dtype import createDataType

from hsparse.client.connection import Connection
from hsparse.model.dataspace import dims_of, max_dims_of
from tests.format.hdf5.h5py_files import KINDS, kind_of, packed, plain

LARGE = 10_000
"""Elements of numbers that are compared as bytes."""
NOT_DTYPES = (KeyError, TypeError, ValueError)
"""What h5json raises for types that it has no dtype of."""


def domain_differences(file: h5py.File, connection: Connection) -> list[str]:
    """Return what the domain has otherwise than the file: one `path: what` each."""
    return list(_Comparison(file, connection).run())


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
