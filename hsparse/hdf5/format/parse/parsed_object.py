"""Groups, datasets and committed datatypes of a file, with their links and attributes.

The messages of an object determine whether it is a group, dataset or committed datatype: H5.format.html, IV.A.2, and
libhdf5's `H5O_obj_class`, where the specification is unclear.

`carried_type` replaces types that servers do not support by types that an import can use. Integers with unused bits
become integers that use all bits, with equal values, as in h5py. Complex numbers become compounds of r and i. Times,
and numbers that have no predefined type, become opaque elements with the same bytes; a tag describes the original
type, so that an export can restore it (`hsparse.hdf5.format.messages.file_type`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader, decode_shape
from hsparse.format.filters.definition import Filter
from hsparse.hdf5.format.file_fields import Reads, concurrently, decode_name
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.attribute_message import AttributeMessage, decode_attribute
from hsparse.hdf5.format.messages.datatype_message import decode_datatype
from hsparse.hdf5.format.messages.file_type import FileType, carrying_tag
from hsparse.hdf5.format.messages.filter_pipeline_message import decode_pipeline
from hsparse.hdf5.format.messages.group_messages import (
    ATTRIBUTE_ORDER_WIDTH,
    LINK_ORDER_WIDTH,
    DenseStorage,
    LinkMessage,
    decode_dense_storage,
    decode_link,
    decode_symbol_table,
)
from hsparse.hdf5.format.messages.layout_message import (
    ContiguousLayout,
    LayoutMessage,
    RawStructuredLayout,
    decode_layout,
)
from hsparse.hdf5.format.messages.object_messages import (
    FillValue,
    decode_fill,
    decode_old_fill,
    decode_old_time,
    decode_reference_count,
    decode_time,
)
from hsparse.hdf5.format.object_header import (
    HeaderMessage,
    MessageType,
    ObjectHeader,
    SharedHeapId,
    SharedLocation,
    decode_shared_location,
    read_object_header,
    read_shared_messages,
)
from hsparse.hdf5.format.parse.dense_storage import parse_dense_attributes, parse_dense_links
from hsparse.hdf5.format.parse.link_storage import parse_symbol_table
from hsparse.hdf5.format.parse.virtual_mapping import ExternalFile, parse_external_files
from hsparse.model.dataspace import Shape

Result = TypeVar("Result")


class ObjectKind(StrEnum):
    """The kind of an object."""

    GROUP = "group"
    DATASET = "dataset"
    DATATYPE = "datatype"


@dataclass(frozen=True, slots=True)
class ParsedAttribute:
    """An attribute; `data` are its elements in the file. `committed` is the address of its type if it is committed."""

    name: str
    type: FileType
    shape: Shape
    data: bytes
    committed: int | None = None
    order: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedDataset:
    """The properties of a dataset; `external` are the external files that hold its data, if any.

    `pipeline` is empty for structured chunks; their filters are in an undecoded message of the object's header.
    """

    type: FileType
    shape: Shape
    layout: LayoutMessage
    fill: FillValue
    pipeline: tuple[Filter, ...] = ()
    external: tuple[ExternalFile, ...] = ()
    committed: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedObject:
    """A group with its links, a dataset, or a committed datatype (`type`). Objects of all kinds have attributes.

    Links and attributes are sorted by creation order if the order is tracked, else by name. `references` counts hard
    links. `modified` is in seconds since 1970. `header` has all messages.
    """

    header: ObjectHeader
    kind: ObjectKind
    attributes: tuple[ParsedAttribute, ...]
    links: tuple[LinkMessage, ...] = ()
    dataset: ParsedDataset | None = None
    type: FileType | None = None
    references: int = 1
    modified: int | None = None
    comment: str | None = None


class _Ordered(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def order(self) -> int | None: ...


Named = TypeVar("Named", bound=_Ordered)


def parse_object(file: Hdf5File, address: int) -> Reads[ParsedObject]:
    """Read the object whose header is at `address`; raises `Corrupt` or `Unsupported`.

    All links of a group are read, but not followed, because links may form cycles.
    """
    header = yield from read_object_header(file, address)
    parts = _Parts(file, header)
    attributes = yield from _read_attributes(parts)
    kind = _kind(parts)
    links: tuple[LinkMessage, ...] = ()
    dataset, datatype = None, None
    if kind == ObjectKind.GROUP:
        links = yield from _read_links(parts)
    elif kind == ObjectKind.DATASET:
        dataset = yield from _read_dataset(parts)
    else:
        datatype, _ = yield from parts.read(MessageType.DATATYPE, decode_datatype)
    references = parts.one(MessageType.REFERENCE_COUNT, decode_reference_count) or header.references or 1
    comment = parts.one(
        MessageType.COMMENT, lambda reader: decode_name(bytes(reader.data).partition(b"\0")[0])
    )
    modified = _modified(parts)
    return ParsedObject(header, kind, attributes, links, dataset, datatype, references, modified, comment)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Finds and decodes the messages of an object header by their type."""

    file: Hdf5File
    header: ObjectHeader

    def all(self, kind: int) -> list[HeaderMessage]:
        return [message for message in self.header.messages if message.kind == kind]

    def has(self, kind: int) -> bool:
        return any(message.kind == kind for message in self.header.messages)

    def reader(self, message: HeaderMessage) -> ByteReader:
        subject = f"message {message.kind:#04x} of the object at address {self.header.address}"
        return ByteReader(message.data, subject=subject)

    def one(self, kind: int, decode: Callable[[ByteReader], Result]) -> Result | None:
        """Decode the first message of type `kind` as an unshared message; return None if there is no such message."""
        for message in self.all(kind):
            return decode(self.reader(message))
        return None

    def read(self, kind: int, decode: Callable[[ByteReader], Result]) -> Reads[tuple[Result, int | None]]:
        """Return the first message of type `kind`, decoded, and the header it is shared from (an address), or None."""
        message = self.all(kind)[0]
        if not message.shared:
            return decode(self.reader(message)), None
        where = decode_shared_location(self.reader(message), self.file.widths)
        found = yield from _read_elsewhere(self.file, where, kind, decode)
        return found, where if isinstance(where, int) else None

    def maybe(self, kind: int, decode: Callable[[ByteReader], Result]) -> Reads[Result | None]:
        """Decode the first message of a type, shared or not; return None if the header has no such message."""
        if not self.has(kind):
            return None
        return (yield from self.read(kind, decode))[0]


def _read_elsewhere(
    file: Hdf5File, where: SharedLocation, kind: int, decode: Callable[[ByteReader], Result]
) -> Reads[Result]:
    """Decode the shared message of type `kind` at `where`; raises `Corrupt` if no such message is there."""
    if not isinstance(where, int):
        (data,) = yield from read_shared_messages(file, kind, [memoryview(where.id)])
        return decode(data)
    other = _Parts(file, (yield from read_object_header(file, where)))
    found = [message for message in other.all(kind) if not message.shared]
    if not found:
        raise Corrupt(f"The object header at address {where} has no message {kind:#04x} to share.")
    return decode(other.reader(found[0]))


def _kind(parts: _Parts) -> ObjectKind:
    if parts.has(MessageType.SYMBOL_TABLE) or parts.has(MessageType.LINK_INFO):
        return ObjectKind.GROUP
    if not parts.has(MessageType.DATATYPE):
        raise Corrupt(
            f"The object header at address {parts.header.address} has no messages of a group, dataset or datatype."
        )
    return ObjectKind.DATASET if parts.has(MessageType.DATASPACE) else ObjectKind.DATATYPE


def _modified(parts: _Parts) -> int | None:
    times = parts.header.times
    if times is not None:
        return times[1]
    found = parts.one(MessageType.TIME, decode_time)
    return parts.one(MessageType.OLD_TIME, decode_old_time) if found is None else found


def _read_links(parts: _Parts) -> Reads[tuple[LinkMessage, ...]]:
    widths = parts.file.widths
    table = parts.one(MessageType.SYMBOL_TABLE, lambda reader: decode_symbol_table(reader, widths))
    if table is not None:
        return _in_order((yield from parse_symbol_table(parts.file, table)), parts)
    links = [decode_link(parts.reader(message), widths) for message in parts.all(MessageType.LINK)]
    storage = parts.one(
        MessageType.LINK_INFO, lambda reader: decode_dense_storage(reader, widths, LINK_ORDER_WIDTH)
    )
    dense = yield from parse_dense_links(parts.file, storage or DenseStorage())
    return _in_order([*links, *(decode_link(one.data, widths) for one in dense)], parts)


def _read_attributes(parts: _Parts) -> Reads[tuple[ParsedAttribute, ...]]:
    widths = parts.file.widths
    found: list[tuple[AttributeMessage, int | None]] = []
    places: set[SharedLocation] = set()
    for message in parts.all(MessageType.ATTRIBUTE):
        reader = parts.reader(message)
        if message.shared:
            where = decode_shared_location(reader, widths)
            if where in places:
                raise Corrupt(f"The object at address {parts.header.address} has the same attribute twice.")
            places.add(where)
            reader = yield from _read_elsewhere(parts.file, where, MessageType.ATTRIBUTE, lambda found: found)
        found.append((decode_attribute(reader, widths), message.order))
    storage = parts.one(
        MessageType.ATTRIBUTE_INFO, lambda reader: decode_dense_storage(reader, widths, ATTRIBUTE_ORDER_WIDTH)
    )
    dense = yield from parse_dense_attributes(parts.file, storage or DenseStorage())
    tracked = storage is not None and storage.next_order is not None
    found += [(decode_attribute(one.data, widths), one.order if tracked else None) for one in dense]
    types = yield from _all_elsewhere(
        parts, MessageType.DATATYPE, [one.type for one, _ in found], decode_datatype
    )
    shapes = yield from _all_elsewhere(
        parts,
        MessageType.DATASPACE,
        [one.shape for one, _ in found],
        lambda reader: decode_shape(reader, widths.length),
    )
    attributes = []
    for (one, order), datatype, shape in zip(found, types, shapes, strict=True):
        committed = one.type if isinstance(one.type, int) else None
        attributes.append(
            ParsedAttribute(one.name, datatype, shape, one.value(datatype, shape), committed, order)
        )
    return _in_order(attributes, parts)


def _all_elsewhere(
    parts: _Parts, kind: int, found: Sequence[Result | SharedLocation], decode: Callable[[ByteReader], Result]
) -> Reads[list[Result]]:
    """Replace each location in `found` by the decoded message there; each message is read once."""
    places = list({one for one in found if isinstance(one, int | SharedHeapId)})
    read = yield from concurrently(_read_elsewhere(parts.file, where, kind, decode) for where in places)
    by_place = dict(zip(places, read, strict=True))
    return [by_place[one] if isinstance(one, int | SharedHeapId) else one for one in found]


def _in_order(found: Iterable[Named], parts: _Parts) -> tuple[Named, ...]:
    ordered = sorted(found, key=lambda one: one.name)
    if all(one.order is not None for one in ordered):
        ordered.sort(key=lambda one: one.order or 0)
    if len({one.name for one in ordered}) < len(ordered):
        raise Corrupt(
            f"The object at address {parts.header.address} has two links or attributes of one name."
        )
    return tuple(ordered)


def _read_dataset(parts: _Parts) -> Reads[ParsedDataset]:
    widths, file = parts.file.widths, parts.file
    datatype, committed = yield from parts.read(MessageType.DATATYPE, decode_datatype)
    shape, _ = yield from parts.read(
        MessageType.DATASPACE, lambda reader: decode_shape(reader, widths.length)
    )
    layout = parts.one(MessageType.LAYOUT, lambda reader: decode_layout(reader, widths))
    if layout is None:
        raise Corrupt(f"The dataset at address {parts.header.address} has no layout.")
    if isinstance(layout, ContiguousLayout) and layout.address is not None:
        file.check(layout.address, layout.size or 0, "contiguous data")
    fill = yield from parts.maybe(MessageType.FILL, decode_fill)
    old_fill = yield from parts.maybe(MessageType.OLD_FILL, decode_old_fill)
    # structured chunks have a pipeline for each section, in another form of the message
    stock = not isinstance(layout, RawStructuredLayout)
    pipeline = (yield from parts.maybe(MessageType.PIPELINE, decode_pipeline)) if stock else ()
    external: tuple[ExternalFile, ...] = ()
    if parts.has(MessageType.EXTERNAL_FILES):
        external = yield from parse_external_files(
            file, parts.reader(parts.all(MessageType.EXTERNAL_FILES)[0])
        )
    return ParsedDataset(
        datatype, shape, layout, fill or old_fill or FillValue(), pipeline or (), external, committed
    )


WHOLE_SIZES = (1, 2, 4, 8)
LETTERS = {"H5T_INTEGER": "U", "H5T_BITFIELD": "B"}
SIGNED = 8


def carried_object(found: ParsedObject) -> ParsedObject:
    """Replace types of an object that servers do not support by types that an import can use."""
    dataset = found.dataset
    return replace(
        found,
        attributes=tuple(replace(one, type=carried_type(one.type)) for one in found.attributes),
        dataset=None if dataset is None else replace(dataset, type=carried_type(dataset.type)),
        type=None if found.type is None else carried_type(found.type),
    )


def carried_type(stored: FileType) -> FileType:
    """Return the type that an import uses for elements of type `stored`; sizes and offsets are those in the file."""
    item = stored.item
    kind = item["class"]
    if "bits" in item:
        return _described(stored)
    parts = tuple(map(carried_type, stored.parts))
    if kind == "H5T_COMPLEX":
        part = parts[0]
        fields = [{"name": name, "type": part.item} for name in ("r", "i")]
        return FileType(
            {"class": "H5T_COMPOUND", "fields": fields}, stored.size, (part, part), (0, part.size)
        )
    if parts == stored.parts:
        return stored
    changed: dict[str, Any] = {"base": parts[0].item}
    if kind == "H5T_COMPOUND":
        pairs = zip(item["fields"], parts, strict=True)
        changed = {"fields": [{**field, "type": part.item} for field, part in pairs]}
    return replace(stored, item={**item, **changed}, parts=parts)


def _described(stored: FileType) -> FileType:
    item, kind = stored.item, stored.item["class"]
    properties = bytes.fromhex(item["properties"])
    if kind in LETTERS and stored.size in WHOLE_SIZES:
        offset, precision = struct.unpack("<HH", properties)
        letter = "I" if kind == "H5T_INTEGER" and item["bits"] & SIGNED else LETTERS[kind]
        name = f"H5T_STD_{letter}{8 * stored.size}{'BE' if item['bits'] & 1 else 'LE'}"
        if precision and offset + precision <= 8 * stored.size:
            return FileType({"class": kind, "base": name}, stored.size, bits=(offset, precision))
    tag = carrying_tag(item)
    return (
        stored
        if tag is None
        else FileType({"class": "H5T_OPAQUE", "size": stored.size, "tag": tag}, stored.size)
    )
