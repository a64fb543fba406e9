"""Copying an HDF5 file to a server as it is: groups, datasets with types, chunks and filters, attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np
from h5json.hdf5dtype import createDataType, getTypeItem

from demo.story import Story
from hsparse.client.connection import Connection, Json
from hsparse.clock import SystemClock


@dataclass(slots=True)
class Copied:
    """What was copied: paths of groups and datasets, elements and bytes of values, seconds of writing them."""

    groups: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)
    elements: int = 0
    nbytes: int = 0
    seconds: float = 0.0


def copy_file(
    connection: Connection, file: h5py.File, skip: str, advance: Callable[[], None] = lambda: None
) -> Copied:
    """Copy everything in `file` but the object at `skip` and what is in it; `advance` is called an object."""
    copied = Copied()
    clock = SystemClock()
    root = connection.json("GET", "/")["root"]
    if file.attrs:
        connection.json("PUT", f"/groups/{root}/attributes", {"attributes": attributes_of(file)})
    for path, item in objects(file, skip):
        if isinstance(item, h5py.Group):
            body = {"h5path": path, "attributes": attributes_of(item)}
            connection.json("POST", "/groups", body, implicit=1)
            copied.groups.append(path)
        else:
            values = item[()]
            started = clock.monotonic()
            _copy_dataset(connection, path, item, values)
            copied.seconds += clock.monotonic() - started
            copied.datasets.append(path)
            copied.elements += values.size
            copied.nbytes += values.nbytes
        advance()
    return copied


def check_copy(connection: Connection, file: h5py.File, copied: Copied, story: Story) -> int:
    """Compare all that was copied with what h5py reads; return the bytes the datasets take in the store."""
    stored = 0
    for path in copied.datasets:
        record = connection.json("GET", "/datasets/", h5path=path)
        owner = f"/datasets/{record['id']}"
        stored += connection.json("GET", owner, verbose=1)["allocated_size"]
        wanted = file[path][()]
        dtype = createDataType(record["type"])
        story.require(f"The type of {path}", np.array(dtype == wanted.dtype), np.array(True))
        values = np.frombuffer(connection.binary("GET", f"{owner}/value"), dtype)
        shape = record["shape"].get("dims", [])
        story.require(f"The shape of {path}", np.array(shape), np.array(wanted.shape))
        story.require(f"The values of {path}", values.reshape(shape), wanted)
        check_attributes(connection, owner, file[path], story)
    for path in ("/", *copied.groups):
        record = connection.json("GET", "/groups/", h5path=path)
        check_attributes(connection, f"/groups/{record['id']}", file[path], story)
    return stored


def check_attributes(
    connection: Connection, owner: str, item: h5py.Group | h5py.Dataset, story: Story
) -> None:
    """Compare the attributes of the object at `owner`, a path like `/groups/{id}`, with those of `item`."""
    for name, attribute in attributes_of(item).items():
        got = connection.json("GET", f"{owner}/attributes/{name}")["value"]
        story.require(f"The attribute {name} of {item.name}", got, attribute["value"])


def objects(file: h5py.File, skip: str) -> list[tuple[str, h5py.Group | h5py.Dataset]]:
    """Return the objects below the root with their paths, parents first, without `skip`."""
    found: list[tuple[str, h5py.Group | h5py.Dataset]] = []

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        path = f"/{name}"
        if path != skip and not path.startswith(f"{skip}/"):
            found.append((path, item))

    file.visititems(visit)
    return found


def attributes_of(item: h5py.Group | h5py.Dataset) -> Json:
    """Return an object's attributes as HDF5/JSON, by name."""
    return {name: _attribute(item, name) for name in item.attrs}


def _attribute(item: h5py.Group | h5py.Dataset, name: str) -> Json:
    kind = item.attrs.get_id(name)
    return {"type": getTypeItem(kind.dtype), "shape": list(kind.shape), "value": _json(item.attrs[name])}


def _json(value: Any) -> Any:
    value = np.asarray(value).tolist()
    return value.decode() if isinstance(value, bytes) else value


def _copy_dataset(connection: Connection, path: str, item: h5py.Dataset, values: Any) -> None:
    properties: Json = {"filters": []}
    if item.chunks is not None:
        properties["layout"] = {"class": "H5D_CHUNKED", "dims": list(item.chunks)}
    if item.shuffle:
        properties["filters"].append({"class": "H5Z_FILTER_SHUFFLE", "id": 2})
    if item.compression == "gzip":
        properties["filters"].append({"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": item.compression_opts})
    body: Json = {
        "type": getTypeItem(item.dtype),
        "shape": list(item.shape),
        "creationProperties": properties,
        "attributes": attributes_of(item),
        "h5path": path,
    }
    if item.maxshape != item.shape:
        body["maxdims"] = list(item.maxshape)
    id = connection.json("POST", "/datasets", body, implicit=1)["id"]
    connection.json("PUT", f"/datasets/{id}/value", values.tobytes())
