"""Build the records (the stored metadata) of the objects of an HDF5 file, as an import of the file would store them.

An object that is damaged, or that hsparse cannot represent, has no record. Links to it state the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from threading import RLock
from typing import Any, TypeAlias

import orjson

from hsparse.errors import BadRequest, Conflict, Forbidden, HsparseError, StoreFailed, Unsupported
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.filters.filters_json import filters_to_json
from hsparse.hdf5.format.lower_bounds import LOWER, MINLOWER, with_bounds
from hsparse.hdf5.format.messages.group_messages import LinkMessage, StoredExternalLink, StoredHardLink
from hsparse.hdf5.format.messages.layout_message import RawStructuredLayout, VirtualLayoutMessage
from hsparse.hdf5.format.parse.parsed_object import ObjectKind, ParsedDataset, ParsedObject, parse_object
from hsparse.hdf5.format.plan.file_plan import USER_BLOCK
from hsparse.hdf5.importer.defined_upload import DefinedData
from hsparse.hdf5.importer.file_objects import COLLECTIONS, FileObject, FileObjects, is_matrix
from hsparse.hdf5.importer.hdf5_matrix import open_column, values_body
from hsparse.hdf5.importer.object_body import (
    attribute_body,
    common_body,
    dataset_body,
    link_bodies,
    virtual_body,
)
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.structured_upload import StructuredData
from hsparse.hdf5.importer.virtual_data import open_data
from hsparse.hdf5.in_place.address_digest import address_of
from hsparse.hdf5.in_place.file_chunks import band_of, first_in_chunk, is_kept
from hsparse.hdf5.in_place.folders import is_visible
from hsparse.hdf5.in_place.known_forms import MAX_HEADER_BYTES, KnownForms
from hsparse.hdf5.in_place.opening import beginnings
from hsparse.hdf5.in_place.virtual_layout import as_virtual, virtual_layout
from hsparse.model.attribute import parse_attribute
from hsparse.model.dataspace import dims_of, parse_bounds, parse_shape
from hsparse.model.datatype import Datatype, parse_requested_type
from hsparse.model.file_backed import SERVED, slab_dims
from hsparse.model.initial_values import parse_fill_value
from hsparse.model.layout import CHUNKED, parse_layout
from hsparse.model.link import external_domain, parse_link
from hsparse.wire.message import Record

Json = dict[str, Any]
LEAST_CHUNK, MOST_CHUNK = 1024 * 1024, 4 * 1024 * 1024
"""Limits in bytes of the chunk size chosen for a dataset that has no chunks in the file, or very small ones."""
CREATED = "created"
MOST_KEPT = 4096
"""Most groups whose records are kept in memory, without links, until `FileRecords.of` adds the links."""
Unlinked: TypeAlias = tuple[Record, tuple[LinkMessage, ...]]


class FileRecords:
    """The records of a file's objects. All methods are thread-safe.

    `now` is the file's modification time (seconds since the Unix epoch) and `place` the folder of the served place.
    """

    def __init__(self, objects: FileObjects, root: str, now: float, place: str) -> None:
        self._objects = objects
        self._root = root
        self._now = now
        self._place = place
        self.elsewhere: set[str] = set()
        """Ids of objects whose content may change although the file does not: datasets with data in other files, and
        groups with links to objects that have no record because of other files."""
        self._out: set[int] = set()
        """Addresses of objects that have data in other files and have no record."""
        self._good: set[int] = set()
        """Addresses of objects that have a record."""
        self._kept: dict[int, Unlinked] = {}
        """Maps addresses to cached records: of committed types, which other records contain, and of unlinked groups."""
        self._paths = {objects.file.root: "/"}
        """Maps the address of each object that a link leads to, read or not, to the object's path."""
        self._forms = KnownForms(objects.file)
        self._lock = RLock()

    def all(self) -> Iterator[tuple[str, Record]]:
        """Yield the id and the record of every object that has a record."""
        leaves, groups = self._walked()
        for one in groups:
            self.has(one)
        for one in (*leaves, *groups):
            record = self.of(one)
            if record is not None:
                yield one.id, record

    def ids(self) -> list[str]:
        """Return the id of every object that has a record."""
        return [one.id for some in self._walked() for one in some if self.has(one)]

    def _walked(self) -> tuple[list[FileObject], list[FileObject]]:
        """Walk the file; return the objects without links (committed types first), and the groups."""
        objects = self._objects
        objects.walk()
        leaves = *objects.of(ObjectKind.DATATYPE), *objects.of(ObjectKind.DATASET), *objects.matrices()
        return [*leaves], objects.of(ObjectKind.GROUP)

    def find(self, id: str) -> FileObject | None:
        """Return the file's object with an id, or None if there is no such object or it cannot be read."""
        address = self._address(id)
        if address < 0:
            self._objects.at(~address)  # finding the group adds its sparse dataset, which has this address
        one = self._objects.at(address, self._paths.get(address, ""))
        return one if one is not None and one.id == id else None

    def why_not(self, id: str) -> str:
        """Return an object's path and why it has no record, or "" if it has a record or no link to it is known."""
        address = self._address(id)
        known = self._objects.by_address.get(address)
        is_told = address in self._paths if known is None else known.id == id
        return self._objects.failed.get(address, "") if is_told else ""

    def has(self, one: FileObject) -> bool:
        """Return whether an object has a record."""
        with self._lock:
            return one.address in self._good or self._made(one) is not None

    def of(self, one: FileObject) -> Record | None:
        """Return the record of an object (for a group, with its links), or None if the object cannot be served."""
        with self._lock:
            made = self._kept.get(one.address) or self._made(one)
            if made is None or one.kind != ObjectKind.GROUP or is_matrix(one):
                return made and made[0]
            self._kept.pop(one.address, None)
            record, links = made
            record["links"] = self._links(one, links)
            targets = (link.target.address for link in links if isinstance(link.target, StoredHardLink))
            if self._out and not self._out.isdisjoint(targets):
                self.elsewhere.add(one.id)
            return record

    def _address(self, id: str) -> int:
        return self._objects.file.root if id == self._root else address_of(id, self._root)

    def _made(self, one: FileObject) -> Unlinked | None:
        """Return a pair: the record of an object, without links, and the object's links in the file.

        If the record cannot be built, remembers the reason and returns None; for the root group, raises the error.
        """
        if one.address in self._objects.failed:
            return None
        make = self._matrix if is_matrix(one) else self._makers[one.kind]
        stored: ParsedObject | None = None
        try:
            with path_in_errors(one.path):
                stored = self._objects.read(one)
                record = make(one, stored)
                _check_texts(record)
        except (StoreFailed, Conflict):
            raise
        except HsparseError as error:
            if one.path == "/":
                raise
            if stored is not None and is_elsewhere(stored.dataset):
                self._out.add(one.address)
            self._objects.skipped[one.path] = self._objects.failed[one.address] = error.message
            return None
        self._good.add(one.address)
        made = record, stored.links
        if one.kind == ObjectKind.DATATYPE or (make == self._group and len(self._kept) < MOST_KEPT):
            self._kept[one.address] = made
        return made

    @property
    def _makers(self) -> dict[ObjectKind, Callable[[FileObject, ParsedObject], Record]]:
        return {
            ObjectKind.DATATYPE: self._type,
            ObjectKind.DATASET: self._dataset,
            ObjectKind.GROUP: self._group,
        }

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
        """Return the datatype that a body's `type` item describes, or the committed type of the file that it names."""
        if isinstance(item, str) and item.startswith("datatypes/"):
            one = self.find(item.removeprefix("datatypes/"))
            committed = None if one is None else self.of(one)
            if committed is None:
                raise BadRequest("Its committed datatype is missing from the file, or cannot be read.")
            item = {**committed["type"], "id": committed["id"]}
        return parse_requested_type(item)

    def _type(self, one: FileObject, stored: ParsedObject) -> Record:
        assert stored.type is not None
        return self._common(one, stored) | {"type": parse_requested_type(stored.type.item).item}

    def _group(self, one: FileObject, stored: ParsedObject) -> Record:
        record = self._common(one, stored) | {"links": {}}
        if one.path == "/" and (block := self._objects.user_block()) is not None:
            record["creationProperties"][USER_BLOCK] = block
        return record

    def _links(self, one: FileObject, stored: tuple[LinkMessage, ...]) -> Record:
        """Return the links of a group as JSON; a link to an object without a record states why it has none."""
        links: Record = {}
        ids = self._targets(one.path.rstrip("/"), stored)
        for link in stored:
            path = f"{one.path.rstrip('/')}/{link.name}"
            id = ids.get(link.target.address) if isinstance(link.target, StoredHardLink) else None
            if (
                isinstance(link.target, StoredHardLink)
                and id is None
                and not self._objects.why_left_out(link)
            ):
                continue  # the target is a part of another object
            body = link_bodies(self._objects, (link,))[link.name] if id is None else {"id": id}
            if isinstance(link.target, StoredExternalLink):
                body = body | {"file": self._domain(link.target.file)}
            try:
                _check_texts({link.name: body})
                links[link.name] = parse_link(body) | {CREATED: self._now}
            except HsparseError as error:
                self._objects.skipped[path] = error.message
        return links

    def _targets(self, parent: str, links: tuple[LinkMessage, ...]) -> dict[int, str]:
        """Return a dict that maps the address of each hard link's target that has a record to the target's id.

        Headers of unknown objects are read by one request if they are close to each other in the file.
        """
        objects = self._objects
        names: dict[int, str] = {}
        for link in links:
            if isinstance(link.target, StoredHardLink):
                names.setdefault(link.target.address, link.name)
        unknown = [] if objects.is_whole else sorted(one for one in names if one not in objects.by_address)
        ids: dict[int, str] = {}
        for address, start in beginnings(objects.source, objects.file, unknown, MAX_HEADER_BYTES):
            path = self._paths.setdefault(address, f"{parent}/{names[address]}")
            kind = self._forms.kind(start)
            if kind is not None:
                ids[address] = objects.id_at(address, COLLECTIONS[kind])
                continue
            one = objects.at(address, path)
            if one is not None and self.has(one):
                ids[address] = one.id
                self._forms.add(start, one.kind)
        for address in names:
            known = objects.at(address) if address in objects.by_address else None
            if known is not None and self.has(known):
                ids[address] = known.id
            elif address in objects.by_address:
                ids.pop(address, None)  # the object is a part of another one, or is left out
        return ids

    def _domain(self, file: str) -> str:
        """Return the domain path of the file that an external link names, as HDF5 would resolve the name.

        A name that already leads to that domain, or to a file outside of all places, is returned unchanged. If an
        absolute name leads to no file, HDF5 looks for the name's last component in the folder of the linking file.
        """
        files, source = self._objects.files, self._objects.source
        with suppress(BadRequest, Forbidden):
            if (other := files.in_other(file, source.name)) is not None:
                return "/".join(other) if is_visible(other[1]) else file
            found = files.in_place(file, source.name)
            if (
                file.startswith("/")
                and not source.is_far
                and files.in_place(file, source.name, named=True) is None
            ):
                found = found if files.find(file, source.name) else None
            if found is not None and is_visible(found):
                domain = f"{self._place}/{found}"
                beside = f"{self._place}/{source.name}"
                return file if external_domain(file, beside) == domain else domain
        return file

    def _dataset(self, one: FileObject, stored: ParsedObject) -> Record:
        dataset = stored.dataset
        assert dataset is not None
        if isinstance(dataset.layout, RawStructuredLayout):
            body = StructuredData(self._objects, stored).body(one.path)
        elif one.defined is not None:
            body = DefinedData(self._objects, stored, one.defined.address).body(one.path)
            body["creationProperties"]["filters"] = ["none"]
        elif (layout := virtual_layout(self._objects, dataset, self._place)) is not None:
            body = virtual_body(self._objects, stored, one.path, layout)
            return as_virtual(self._of_body(one, stored, body), layout)
        else:
            if is_elsewhere(dataset):
                self.elsewhere.add(one.id)
            data = open_data(self._objects, dataset)
            body = dataset_body(self._objects, replace(stored, dataset=data.dataset), one.path)
            if "filters" in body["creationProperties"]:
                record = self._of_body(one, stored, body)
                if is_kept(data, chunk_spec(record), first_in_chunk(record)):
                    return record
                del body["creationProperties"]["filters"]  # decoded chunks are not compressed again
        return self._of_body(one, stored, body)

    def _matrix(self, one: FileObject, stored: ParsedObject) -> Record:
        assert one.matrix is not None
        form = one.matrix
        for address in (form.values, *form.indices, *(() if form.pointers is None else (form.pointers,))):
            if is_elsewhere(self._objects.source.run(parse_object(self._objects.file, address)).dataset):
                self.elsewhere.add(one.id)
        body = values_body(self._objects, one.matrix)
        column = open_column(self._objects, one.matrix.indices[0], "indices")
        dims = band_of(one.matrix, column.dims[0])
        layout = {"class": "H5D_STRUCT_CHUNK", "dims": list(dims), "flags": ["H5D_SPARSE_DATA"]}
        body["shape"] = list(one.matrix.shape)
        body["creationProperties"] |= {"layout": layout, "filters": ["none"]}
        return self._of_body(one, stored, body)

    def _placed(self, one: FileObject, stored: ParsedObject, body: Json) -> Json:
        """Return a body whose lower bounds are those that attributes in the file state; drop these attributes.

        Raises `Unsupported` if a bound along one of `_fixed_axes` is not a multiple of the chunk's dimension.
        """
        bounds = [found for found in stored.attributes if found.name in (LOWER, MINLOWER)]
        found = {found.name: attribute_body(self._objects, found) for found in bounds}
        placed = with_bounds(body | {"attributes": found})
        if "lower" in placed and (fixed := self._fixed_axes(one, stored)):
            dims = body["creationProperties"]["layout"]["dims"]
            if any(placed["lower"][axis] % dims[axis] for axis in fixed):
                raise Unsupported(
                    f"Its lower bound {placed['lower']} is not a multiple of its chunk shape {dims}: import the file."
                )
        return placed

    def _fixed_axes(self, one: FileObject, stored: ParsedObject) -> tuple[int, ...]:
        """Return the axes along which chunks of the record must begin at borders of the file's chunks or matrix."""
        if one.matrix is not None:
            return (int(one.matrix.kind != "csc"),)
        is_structured = stored.dataset is not None and isinstance(stored.dataset.layout, RawStructuredLayout)
        return tuple(range(len(one.dims))) if is_structured else ()

    def _of_body(self, one: FileObject, stored: ParsedObject, body: Json) -> Record:
        """Return the record that a request to create a dataset with this body would store."""
        record, datatype = self._common(one, stored), self._datatype(body["type"])
        body = self._placed(one, stored, body)
        if "lower" in body:
            record["attributes"] = {
                name: value
                for name, value in record["attributes"].items()
                if name in body["attributes"] or name not in (LOWER, MINLOWER)
            }
        properties = {**record["creationProperties"], **body["creationProperties"]}
        filters = properties.get("filters") or []
        if filters:
            properties["filters"] = filters_to_json(filters)
        asked = properties.pop("layout", None)
        shape = parse_bounds(body, parse_shape(body))
        layout = parse_layout(
            asked,
            shape,
            datatype,
            filtered=bool(filters),
            min_bytes=LEAST_CHUNK,
            max_bytes=MOST_CHUNK,
        )
        if (dims := dims_of(shape)) and asked and "dims" not in asked:
            # Slabs suit byte ranges of the file, and the sources of a virtual dataset, which mostly lie side by side.
            grid = {"class": CHUNKED, "dims": list(slab_dims(dims, datatype.guessed_size))}
            layout = replace(layout, asked=grid if asked["class"] == CHUNKED else layout.asked, grid=grid)
        fill = parse_fill_value(properties, datatype)
        rest = {name: value for name, value in properties.items() if not name.startswith("fillValue")}
        rest[SERVED] = True
        return record | {"type": datatype.item, "shape": shape} | layout.fields(rest | fill)


def is_elsewhere(dataset: ParsedDataset | None) -> bool:
    """Return whether the data of a dataset is in other files: raw external files or virtual sources."""
    return dataset is not None and (
        bool(dataset.external) or isinstance(dataset.layout, VirtualLayoutMessage)
    )


def _check_texts(record: Json) -> None:
    """Raise `Unsupported` if a record has a text or a number that JSON cannot contain."""
    try:
        orjson.dumps(record)
    except TypeError as error:
        raise Unsupported(
            f"It has text that is not UTF-8, or an integer of more than 64 bits, which JSON cannot hold ({error})."
        ) from error
