"""Build the request bodies that create a file's objects: type, shape, attributes, links and creation properties."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hsparse.errors import BadRequest
from hsparse.format.buffer import byte_view
from hsparse.format.filters.filters_json import creation_property, parse_hsds_filters
from hsparse.format.filters.pipeline import BY_ID, CODECS
from hsparse.format.plan.grid import Grid
from hsparse.hdf5.format.messages.file_type import FileType
from hsparse.hdf5.format.messages.group_messages import (
    LinkMessage,
    StoredExternalLink,
    StoredHardLink,
    StoredSoftLink,
)
from hsparse.hdf5.format.messages.layout_message import (
    ChunkedLayout,
    CompactLayout,
    ContiguousLayout,
    VirtualLayoutMessage,
)
from hsparse.hdf5.format.messages.object_messages import NEVER, ON_ALLOCATION
from hsparse.hdf5.format.parse.parsed_elements import check_readable, parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedAttribute, ParsedDataset, ParsedObject
from hsparse.hdf5.importer.file_objects import FileObjects, is_ordered
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.model.dataspace import dims_of, is_extensible, max_dims_of
from hsparse.model.element import element_of
from hsparse.model.json_values import Values, to_json
from hsparse.model.layout import MAX_CHUNK_BYTES
from hsparse.model.link import left_out_link
from hsparse.model.vlen_array import VlenArray

Json = dict[str, Any]
MAX_KEPT = 1 << 16
"""With more chunks than this, the server may enlarge the file's chunk dimensions."""
FILL_TIMES = {ON_ALLOCATION: "H5D_FILL_TIME_ALLOC", NEVER: "H5D_FILL_TIME_NEVER"}
"""Maps the times when fill values are written, except the default, to HDF5's names."""


def values_bytes(values: Values) -> memoryview:
    """Return the bytes of values without a copy. Values have no gaps; vlen values are length-prefixed."""
    return byte_view(values.heap if isinstance(values, VlenArray) else values)


def type_body(objects: FileObjects, stored: FileType, committed: int | None) -> Any:
    """Return the JSON of a type, or `datatypes/ID` if the type is the committed type at the address `committed`."""
    one = objects.at(committed) if committed is not None else None
    return stored.item if one is None else f"datatypes/{one.id}"


def common_body(objects: FileObjects, stored: ParsedObject, path: str, *, attributes: bool = True) -> Json:
    """Return the part of the request body that all kinds of objects have: id, attributes and creation order."""
    found = {}
    for one in stored.attributes if attributes else ():
        with path_in_errors(f"{path} (attribute {one.name})"):
            found[one.name] = attribute_body(objects, one)
    return {
        "id": objects.by_address[stored.header.address].id,
        "attributes": found,
        "creationProperties": {"CreateOrder": 1} if is_ordered(stored) else {},
    }


def attribute_body(objects: FileObjects, one: ParsedAttribute) -> Json:
    """Return the request body of an attribute; the value is in base64."""
    check_readable(one.type)
    body: Json = {"type": type_body(objects, one.type, one.committed), "shape": one.shape}
    dims = dims_of(one.shape)
    if dims is None:
        return body
    reads = parse_elements(objects.file, one.type, one.data, dims, objects.find)
    data = values_bytes(objects.source.run(reads))
    return body | {"value": base64.b64encode(data).decode(), "encoding": "base64"}


def link_bodies(objects: FileObjects, links: Iterable[LinkMessage]) -> Json:
    """Return a dict of link name to request body; a link to a skipped object states the reason."""
    found = {link.name: _link(objects, link) for link in links}
    return {name: body for name, body in found.items() if body}


def _link(objects: FileObjects, link: LinkMessage) -> Json:
    """Return the request body of a link, or {} if its target is imported only as a part of another object."""
    if why := objects.why_left_out(link):
        return left_out_link(why)
    match link.target:
        case StoredHardLink(address):
            one = objects.by_address.get(address)
            return {} if one is None else {"id": one.id}
        case StoredSoftLink(target):
            return {"h5path": target}
        case StoredExternalLink(file, target):
            return {"h5path": target, "file": objects.files.domain(file, objects.source.name)}
    raise AssertionError(link)


def virtual_body(objects: FileObjects, stored: ParsedObject, path: str, layout: Json) -> Json:
    """Return the request body of a virtual dataset that stays virtual, with the layout `layout`."""
    dataset = stored.dataset
    assert dataset is not None
    body = common_body(objects, stored, path)
    body |= {"type": type_body(objects, dataset.type, dataset.committed), "shape": dataset.shape}
    body["creationProperties"] |= {"layout": layout} | fill_body(objects, dataset)
    return body


def dataset_body(
    objects: FileObjects, stored: ParsedObject, path: str, storage: ParsedDataset | None = None
) -> Json:
    """Return the request body of a dataset without structured chunks; virtual datasets get the chunks of `storage`."""
    dataset = stored.dataset
    assert dataset is not None
    body = common_body(objects, stored, path)
    body |= {"type": type_body(objects, dataset.type, dataset.committed), "shape": dataset.shape}
    properties = body["creationProperties"]
    if isinstance(dataset.layout, VirtualLayoutMessage):
        dataset = _copied_layout(dataset, storage)
    properties |= _layout(dataset) | fill_body(objects, dataset)
    if dataset.fill.writing in FILL_TIMES:
        properties["fillTime"] = FILL_TIMES[dataset.fill.writing]
    if dataset.pipeline:
        properties["filters"] = [creation_property(one) for one in dataset.pipeline]
    return body


def changed_filters(dataset: ParsedDataset) -> str:
    """Return a text that names replaced filters and their replacements, or "" if the server keeps all filters."""
    items = [creation_property(one) for one in dataset.pipeline]
    stored = parse_hsds_filters(items, dataset.type.size, 0) if items else ()
    kept = {one.id for one in stored}
    gone, new = (
        [BY_ID[one.id].name for one in some if one.id not in other]
        for some, other in ((dataset.pipeline, kept), (stored, {one.id for one in dataset.pipeline}))
    )
    return f"{', '.join(gone)} as {', '.join(new) or 'nothing'}" if gone else ""


def fill_body(objects: FileObjects, dataset: ParsedDataset) -> Json:
    """Return the creation properties of the fill value, in base64 if necessary, or {} if it is absent or zero."""
    if not dataset.fill.value or not any(dataset.fill.value):
        return {}
    stored = dataset.type
    reads = parse_elements(objects.file, stored, dataset.fill.value, (), objects.find)
    values = objects.source.run(reads)
    try:
        return {"fillValue": to_json(values, element_of(stored.item))}
    except BadRequest:
        data = base64.b64encode(values_bytes(values)).decode()
        return {"fillValue": data, "fillValue_encoding": "base64"}


def _copied_layout(dataset: ParsedDataset, storage: ParsedDataset | None) -> ParsedDataset:
    """Return a virtual dataset with the chunk dimensions of `storage`, if `storage` is chunked and has the same rank.

    The result also has the filters of `storage` if the types are equal and hsparse supports the filters.
    """
    dims = dims_of(dataset.shape) or ()
    if (
        storage is None
        or not isinstance(storage.layout, ChunkedLayout)
        or len(storage.layout.dims) != len(dims)
    ):
        return dataset
    limits = max_dims_of(dataset.shape)
    chunk = tuple(
        length if limit is None else min(length, max(1, limit))
        for length, limit in zip(storage.layout.dims, limits, strict=True)
    )
    layout = replace(storage.layout, dims=chunk, item_size=dataset.type.size)
    alike = storage.type.item == dataset.type.item and all(one.id in CODECS for one in storage.pipeline)
    return replace(dataset, layout=layout, pipeline=storage.pipeline if alike else ())


def _layout(dataset: ParsedDataset) -> Json:
    dims, layout = dims_of(dataset.shape), dataset.layout
    if not dims:
        return {}
    if isinstance(layout, VirtualLayoutMessage) or (dataset.external and is_extensible(dataset.shape)):
        return {"layout": {"class": "H5D_CHUNKED"}}
    if isinstance(layout, ContiguousLayout):
        return {"layout": {"class": "H5D_CONTIGUOUS"}}
    if isinstance(layout, CompactLayout):
        # The size of vlen elements is an estimate, which may exceed the limit of compact data.
        fixed = not element_of(dataset.type.item).references
        return {"layout": {"class": "H5D_COMPACT" if fixed else "H5D_CONTIGUOUS"}}
    assert isinstance(layout, ChunkedLayout)
    size = dataset.type.size
    for length in layout.dims:
        size *= length
    chosen: Json = {} if size > MAX_CHUNK_BYTES else {"dims": list(layout.dims)}
    if Grid(dims, layout.dims).size <= MAX_KEPT:
        chosen |= {"enlarge": False}
    return {"layout": {"class": "H5D_CHUNKED", **chosen}}
