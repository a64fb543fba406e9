"""All of a domain that a client can see, as plain values: equal when two servers serve the same."""

from __future__ import annotations

import math
from typing import Any

import h5pyd
import numpy as np

from hsparse.model.datatype import type_json
from tests.interchange.place import HOME, Json, Peer

RIGHTS = ("create", "read", "update", "delete", "readACL", "updateACL")
KEPT = ("id", "root", "created", "lastModified", "shape", "linkCount", "attributeCount")


def snapshot(peer: Peer, domain: str, *, by_h5pyd: bool = True) -> Json:
    """Return what h5pyd and REST see of the domain, by name; an exception where something cannot be read."""
    seen: Json = {}
    if not by_h5pyd:
        return {"(rest)": rest(peer, domain)}
    # A file that h5pyd 1.0.0 opens to read tries ten times what cannot be served: minutes.
    with peer.open(domain, "r+") as file:
        _group(file, "/", seen, set())
    seen["(rest)"] = rest(peer, domain)
    return seen


def rest(peer: Peer, domain: str) -> Json:
    """Return a domain's records by id, without what each server says of itself."""
    path = HOME + domain
    top = peer.send("GET", "/", path)
    seen: Json = {"domain": {key: top.get(key) for key in ("root", "owner", "class", "created")}}
    ids = [top["root"]]
    for collection in ("groups", "datasets", "datatypes"):
        ids += sorted(peer.send("GET", f"/{collection}", path)[collection])
    for id in ids:
        collection = {"g": "groups", "d": "datasets", "t": "datatypes"}[id[0]]
        record = peer.send("GET", f"/{collection}/{id}", path, include_attrs=1, include_links=1)
        seen[id] = {key: record.get(key) for key in KEPT} | {"type": type_json(record.get("type"))}
        if "maxdims" in (record.get("shape") or {}):  # 0 in HSDS 0.9, a name in 1.0
            limits = [limit or "H5S_UNLIMITED" for limit in record["shape"]["maxdims"]]
            seen[id]["shape"] = {**record["shape"], "maxdims": limits}
        properties = record.get("creationProperties") or {}
        seen[id]["creationProperties"] = _properties(properties)
        if collection == "datasets":
            seen[id]["value"] = peer.get_bytes(f"/datasets/{id}/value", path)
            seen[id]["layouts"] = Layouts(record.get("layout"), properties.get("layout"))
        seen[id]["attributes"] = {
            name: {key: named(one.get(key)) for key in ("shape", "value", "created")}
            | {"type": type_json(one.get("type"))}
            for name, one in (record.get("attributes") or {}).items()
        }
        seen[id]["links"] = {
            title: {key: one.get(key) for key in ("class", "id", "h5path", "created")}
            | {"file": one.get("file") or one.get("h5domain")}
            for title, one in record.get("links", {}).items()
        }
    return seen


def folder_snapshot(peer: Peer, folder: str) -> Json:
    """Return what is in a folder and below, by path, with owners and ACLs."""
    seen: Json = {}
    open_folders = [HOME + folder]
    while open_folders:
        path = open_folders.pop()
        for one in peer.send("GET", "/domains", path + "/")["domains"]:
            name = one["name"]
            record = peer.send("GET", "/", name)
            acls = peer.send("GET", "/acls", name)["acls"]
            seen[name] = {key: one.get(key) for key in ("class", "owner", "root")}
            seen[name]["created"] = record["created"]
            seen[name]["acls"] = {
                acl["userName"]: {key: acl[key] for key in RIGHTS}
                for acl in acls
                if any(acl[key] for key in RIGHTS)
            }
            if one["class"] == "folder":
                open_folders.append(name)
    return seen


class Layouts:
    """The layouts a server tells of a dataset: hsparse the one asked for and the chunks, HSDS the chunks alone."""

    def __init__(self, *told: Json | None) -> None:
        self.told = [layout for layout in told if layout]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layouts):
            return NotImplemented
        return self.told == other.told or any(layout in other.told for layout in self.told)

    def __repr__(self) -> str:
        return f"Layouts{self.told}"

    __hash__ = None  # type: ignore[assignment]


def named(value: Any) -> Any:
    """Return a JSON value with floats that are no numbers by name, as hsparse keeps them and HSDS then shows them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return [named(part) for part in value] if isinstance(value, list) else value


def _properties(found: Json) -> Json:
    """Return creation properties but for the layout, and without what is only a default."""
    left = {
        key: named(value) for key, value in found.items() if value not in (None, [], {}) and key != "layout"
    }
    if left.get("fillValue_encoding") == "None":
        del left["fillValue_encoding"]
    return left


def _group(group: Any, path: str, seen: Json, met: set[str]) -> None:
    met.add(group.id.id)
    seen[path] = {"kind": "group", "attributes": _attributes(group)}
    for title in group:
        link = group.get(title, getlink=True)
        where = f"{path.rstrip('/')}/{title}"
        if isinstance(link, h5pyd.SoftLink):
            seen[where] = {"kind": "soft", "path": link.path}
        elif isinstance(link, h5pyd.ExternalLink):
            seen[where] = {"kind": "external", "path": link.path, "file": link.filename}
        else:
            _object(group[title], where, seen, met)


def _object(found: Any, where: str, seen: Json, met: set[str]) -> None:
    if isinstance(found, h5pyd.Group):
        if found.id.id in met:
            seen[where] = {"kind": "group", "id": found.id.id}
        else:
            _group(found, where, seen, met)
        return
    if isinstance(found, h5pyd.Datatype):
        seen[where] = {"kind": "type", "dtype": str(found.dtype), "attributes": _attributes(found)}
        return
    seen[where] = {
        "kind": "dataset",
        "id": found.id.id,
        "dtype": found.dtype,
        "shape": found.shape,
        "maxshape": found.maxshape,
        "attributes": _attributes(found),
        "value": _attempt(lambda: _value(found)),
    }


def _value(dataset: Any) -> Any:
    if dataset.shape is None:
        return None
    return plain(dataset[()])


def _attributes(found: Any) -> Json:
    return {name: _attempt(lambda name=name: plain(found.attrs[name])) for name in found.attrs}


def _attempt(read: Any) -> Any:
    """Return what is read, or the exception as text: a value that cannot be read must not hide the others."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - whatever a client raises is what is compared
        return f"{type(error).__name__}: {error}"


def plain(value: Any) -> Any:
    """Return a value of numpy's as lists, bytes and numbers; NaN as text, since it is not equal to itself."""
    if isinstance(value, h5pyd.Empty):
        return ("empty", str(value.dtype))
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biufcSV" and not value.dtype.hasobject:
            return (value.dtype.str, value.shape, value.tobytes())
        return [value.shape, [plain(one) for one in value.reshape(-1).tolist()]]
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return (value.dtype.str, value.tobytes())
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, h5pyd.Reference):
        return f"reference to {value.id.id}"
    return repr(value) if isinstance(value, float) else value
