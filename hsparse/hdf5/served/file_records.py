"""The records of the objects of an HDF5 file, as a service node would store them for what an import would send.

What no server can have, as for an import, and what is damaged, is a soft link that says why, and hides nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from hsparse.errors import BadRequest, Conflict, HsparseError, StoreFailed, Unsupported
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.filters.filters_json import filters_to_json
from hsparse.hdf5.format.messages.group_messages import HardLink, LinkMessage
from hsparse.hdf5.format.messages.layout_message import RawStructuredLayout
from hsparse.hdf5.format.parse.parsed_object import ObjectKind, ParsedObject
from hsparse.hdf5.format.plan.file_plan import USER_BLOCK
from hsparse.hdf5.importer.file_objects import FileObject, FileObjects
from hsparse.hdf5.importer.hdf5_matrix import open_column, values_body
from hsparse.hdf5.importer.object_body import attribute_body, common_body, dataset_body, link_bodies
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.structured_upload import DefinedData, StructuredData
from hsparse.hdf5.importer.virtual_data import open_data
from hsparse.hdf5.served.file_chunks import band_of, is_kept
from hsparse.model.attribute import parse_attribute
from hsparse.model.dataspace import dims_of, parse_shape
from hsparse.model.datatype import Datatype, parse_requested_type
from hsparse.model.file_backed import SERVED, slab_dims
from hsparse.model.initial_values import parse_fill_value
from hsparse.model.layout import CHUNKED, parse_layout
from hsparse.model.link import MAX_PATH, parse_link
from hsparse.wire.message import Record

Json = dict[str, Any]
LEAST_CHUNK, MOST_CHUNK = 1024 * 1024, 4 * 1024 * 1024
"""Bytes of the chunks of datasets that have none in the file, or very small ones."""
CREATED = "created"
LEFT_OUT = "not served: "
"""What the path of a soft link begins with where an object is left out; the reason follows."""


class FileRecords:
    """The records of a file's objects, by id; `objects` are those of the file, `now` is when it was modified."""

    def __init__(self, objects: FileObjects, root: str, now: float) -> None:
        self._objects = objects
        self._root = root
        self._now = now
        self.records: dict[str, Record] = {}
        for kind in (ObjectKind.DATATYPE, ObjectKind.DATASET):
            for one in objects.of(kind):
                self._add(one, self._type if kind == ObjectKind.DATATYPE else self._dataset)
        for one in objects.matrices():
            self._add(one, self._matrix)
        self._links: dict[str, tuple[LinkMessage, ...]] = {}
        for one in objects.of(ObjectKind.GROUP):
            self._add(one, self._group)
        for one in objects.of(ObjectKind.GROUP):
            if one.id in self.records:
                self._link(one, self._links[one.id])

    def _add(self, one: FileObject, make: Any) -> None:
        try:
            with path_in_errors(one.path):
                stored = self._objects.read(one)
                record = make(one, stored)
                _check_texts(record)
                self.records[one.id] = record
        except (StoreFailed, Conflict):
            raise
        except HsparseError as error:
            if one.path == "/":
                raise
            self._objects.skipped[one.path] = self._objects.failed[one.address] = error.message

    def _common(self, one: FileObject, stored: ParsedObject) -> Record:
        body = common_body(self._objects, stored, one.path, attributes=False)
        times = {"created": self._now, "lastModified": self._now}
        return {
            "id": one.id,
            "root": self._root,
            **times,
            "attributes": self._attributes(one, stored),
            "creationProperties": body["creationProperties"],
        }

    def _attributes(self, one: FileObject, stored: ParsedObject) -> Record:
        found: Record = {}
        for attribute in stored.attributes:
            path = f"{one.path} (attribute {attribute.name})"
            try:
                with path_in_errors(path):
                    body = attribute_body(self._objects, attribute)
                    _check_texts(body)
                    found[attribute.name] = parse_attribute(body, self._datatype(body["type"])) | {
                        CREATED: self._now
                    }
            except (StoreFailed, Conflict):
                raise
            except HsparseError as error:
                self._objects.skipped[path] = error.message
        return found

    def _datatype(self, item: Any) -> Datatype:
        """Return the type of a body's item, which may name a committed type of the file."""
        if isinstance(item, str) and item.startswith("datatypes/"):
            committed = self.records.get(item.removeprefix("datatypes/"))
            if committed is None:
                raise BadRequest("Its committed type is not there.")
            item = {**committed["type"], "id": committed["id"]}
        return parse_requested_type(item)

    def _type(self, one: FileObject, stored: ParsedObject) -> Record:
        assert stored.type is not None
        return self._common(one, stored) | {"type": parse_requested_type(stored.type.item).item}

    def _group(self, one: FileObject, stored: ParsedObject) -> Record:
        self._links[one.id] = stored.links
        record = self._common(one, stored) | {"links": {}}
        if one.path == "/" and (block := self._objects.user_block()) is not None:
            record["creationProperties"][USER_BLOCK] = block
        return record

    def _link(self, one: FileObject, stored: tuple[LinkMessage, ...]) -> None:
        """Put links into the record of a group: to what there is, and for what is left out one that says why."""
        bodies, links = link_bodies(self._objects, stored), self.records[one.id]["links"]
        for link in stored:
            body, path = bodies.get(link.name), f"{one.path.rstrip('/')}/{link.name}"
            if body is None or body.get("id", self._root) not in self.records:
                reason = self._reason(link, path)
                if not reason:
                    continue  # it is part of another object
                text = reason.encode(errors="backslashreplace").decode()
                body = {"h5path": f"{LEFT_OUT}{text}"[:MAX_PATH]}
            try:
                _check_texts(body)
                links[link.name] = parse_link(body) | {CREATED: self._now}
            except HsparseError as error:
                self._objects.skipped[path] = error.message

    def _reason(self, link: LinkMessage, path: str) -> str:
        """Return why what a link leads to is left out."""
        if isinstance(link.target, HardLink):
            return self._objects.failed.get(link.target.address, "")
        return self._objects.skipped.get(path, "")

    def _dataset(self, one: FileObject, stored: ParsedObject) -> Record:
        dataset = stored.dataset
        assert dataset is not None
        if isinstance(dataset.layout, RawStructuredLayout):
            body = StructuredData(self._objects, stored).body(one.path)
        elif one.defined is not None:
            body = DefinedData(self._objects, stored, one.defined.address).body(one.path)
            body["creationProperties"]["filters"] = ["none"]
        else:
            data = open_data(self._objects, dataset)
            body = dataset_body(self._objects, replace(stored, dataset=data.dataset), one.path)
            if "filters" in body["creationProperties"]:
                record = self._of_body(one, stored, body)
                if is_kept(data, chunk_spec(record)):
                    return record
                del body["creationProperties"]["filters"]  # what is decoded is not encoded again
        return self._of_body(one, stored, body)

    def _matrix(self, one: FileObject, stored: ParsedObject) -> Record:
        assert one.matrix is not None
        body = values_body(self._objects, one.matrix)
        column = open_column(self._objects, one.matrix.indices[0], "indices")
        dims = band_of(one.matrix, column.dims[0])
        layout = {"class": "H5D_STRUCT_CHUNK", "dims": list(dims), "flags": ["H5D_SPARSE_DATA"]}
        body["shape"] = list(one.matrix.shape)
        body["creationProperties"] |= {"layout": layout, "filters": ["none"]}
        return self._of_body(one, stored, body)

    def _of_body(self, one: FileObject, stored: ParsedObject, body: Json) -> Record:
        """Return the record that the creation of a dataset makes of a body."""
        record, datatype = self._common(one, stored), self._datatype(body["type"])
        properties = {**record["creationProperties"], **body["creationProperties"]}
        filters = properties.get("filters") or []
        if filters:
            properties["filters"] = filters_to_json(filters)
        asked = properties.pop("layout", None)
        shape = parse_shape(body)
        layout = parse_layout(
            asked,
            shape,
            datatype,
            filtered=bool(filters),
            min_bytes=LEAST_CHUNK,
            max_bytes=MOST_CHUNK,
        )
        if (dims := dims_of(shape)) and asked and "dims" not in asked:
            # It is read from ranges of the file, or of other datasets that are mostly one beside the other.
            grid = {"class": CHUNKED, "dims": list(slab_dims(dims, datatype.guessed_size))}
            layout = replace(layout, asked=grid if asked["class"] == CHUNKED else layout.asked, grid=grid)
        fill = parse_fill_value(properties, datatype)
        rest = {name: value for name, value in properties.items() if not name.startswith("fillValue")}
        rest[SERVED] = True
        return record | {"type": datatype.item, "shape": shape} | layout.fields(rest | fill)


def _check_texts(record: Json) -> None:
    """Raise `Unsupported` for a text that JSON cannot contain."""
    try:
        orjson.dumps(record)
    except TypeError as error:
        raise Unsupported(
            f"It has a text that is no UTF-8, or a number that is too large ({error})."
        ) from error
