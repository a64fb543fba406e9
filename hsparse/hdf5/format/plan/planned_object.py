"""The plans of groups, datasets and committed datatypes.

Up to 8 links or attributes are messages of the object's header; larger numbers are in dense storage, as in libhdf5
(H5.format.html, III.A.2, III.G and IV.A.2). HDF5 1.8 and later read both kinds of storage.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from hsparse.errors import BadRequest
from hsparse.format.codec_library import lookup3
from hsparse.format.dataspace_message import encode_shape
from hsparse.format.filters.definition import Filter
from hsparse.hdf5.format.file_fields import Addressed, Key, encode_name
from hsparse.hdf5.format.messages.attribute_message import encode_attribute
from hsparse.hdf5.format.messages.datatype_message import encode_datatype
from hsparse.hdf5.format.messages.file_type import FileType
from hsparse.hdf5.format.messages.filter_pipeline_message import encode_pipeline
from hsparse.hdf5.format.messages.group_messages import (
    ATTRIBUTE_ID_SIZE,
    ATTRIBUTE_NAMES,
    ATTRIBUTE_ORDER_WIDTH,
    ATTRIBUTE_ORDERS,
    DEFAULT_GROUP_INFO,
    LINK_ID_SIZE,
    LINK_NAMES,
    LINK_ORDER_WIDTH,
    LINK_ORDERS,
    DenseStorage,
    LinkMessage,
    StoredExternalLink,
    StoredHardLink,
    StoredSoftLink,
    UserDefinedLink,
    encode_dense_storage,
    encode_link,
)
from hsparse.hdf5.format.messages.layout_message import (
    ChunkedLayout,
    ContiguousLayout,
    LayoutMessage,
    encode_layout,
)
from hsparse.hdf5.format.messages.object_messages import (
    ZERO_FILL,
    FillValue,
    encode_fill,
    encode_reference_count,
)
from hsparse.hdf5.format.object_header import SHARED_FLAG, MessageType, encode_shared_location
from hsparse.hdf5.format.plan.file_plan import FilePiece, FilePlan
from hsparse.hdf5.format.plan.planned_structures import (
    MAX_MESSAGE,
    PlannedMessage,
    plan_btree_v2,
    plan_fractal_heap,
    plan_object_header,
)
from hsparse.model.dataspace import Shape

MAX_COMPACT_ITEMS = 8
"""The maximum number of links, and of attributes, in an object header; the number is HDF5's default."""
CONSTANT = 1
"""The flag of a message that never changes; libhdf5 sets it for a dataset's type and fill value."""


@dataclass(frozen=True, slots=True)
class PlannedTarget:
    """The target of a hard link: a planned object."""

    key: Key


@dataclass(frozen=True, slots=True)
class PlannedLink:
    """A link: its name in a group, and its target."""

    name: str
    target: PlannedTarget | StoredSoftLink | StoredExternalLink | UserDefinedLink


@dataclass(frozen=True, slots=True)
class PlannedAttribute:
    """An attribute; `data` are its elements in the file. `committed` is the key of its type, if that is committed."""

    name: str
    type: FileType
    shape: Shape
    data: Addressed
    committed: Key | None = None


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group; if `ordered`, the file records the order of `links` and of `attributes` as the creation order."""

    key: Key
    links: Sequence[PlannedLink] = ()
    attributes: Sequence[PlannedAttribute] = ()
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class PlannedDataset:
    """A dataset; `layout` is an encoded layout message (`plan_layout`).

    `fill_places` are the (offset, key) of each address in the fill value. `messages` are additional messages, such as
    the filters of structured chunks.
    """

    key: Key
    type: FileType
    shape: Shape
    layout: Addressed
    fill: FillValue = ZERO_FILL
    pipeline: tuple[Filter, ...] = ()
    attributes: Sequence[PlannedAttribute] = ()
    committed: Key | None = None
    ordered: bool = False
    messages: Sequence[PlannedMessage] = ()
    fill_places: tuple[tuple[int, Key], ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedDatatype:
    """A committed datatype."""

    key: Key
    type: FileType
    attributes: Sequence[PlannedAttribute] = ()
    ordered: bool = False


PlannedObject: TypeAlias = PlannedGroup | PlannedDataset | PlannedDatatype


def plan_file(
    objects: Sequence[PlannedObject],
    root: Key,
    others: Iterable[FilePiece] = (),
    version: int = 2,
    user_block: bytes = b"",
) -> FilePlan:
    """Lay out a file: user block, superblock, each object with its dense storage, and then `others` (heaps, data).

    Raises `BadRequest` if a link or a committed type refers to an object that is not in `objects`, `TooLarge` if a part
    of the file exceeds a limit of the file format.
    """
    counts = _reference_counts(objects)
    counts[root] += 1
    known = {one.key for one in objects}
    for key in counts:
        if key not in known:
            raise BadRequest(f"A link or attribute refers to {key!r}, which is not in the file.")
    pieces = [piece for one in objects for piece in _plan(one, counts[one.key])]
    return FilePlan([*pieces, *others], root, version, user_block)


def plan_layout(layout: LayoutMessage, key: Key | None = None) -> Addressed:
    """Encode a layout message; `key` is the key of the piece with the data or chunk index, or None without either."""
    if key is None:
        return Addressed(encode_layout(layout))
    if isinstance(layout, ContiguousLayout):
        return Addressed(encode_layout(layout), ((2, key),))
    if not isinstance(layout, ChunkedLayout):
        raise BadRequest("Only contiguous and chunked layouts have data elsewhere.")
    data = encode_layout(layout)
    return Addressed(data, ((3 if data[0] == 3 else len(data) - 8, key),))


def _reference_counts(objects: Iterable[PlannedObject]) -> Counter[Hashable]:
    """Count the references to each object: hard links, and objects and attributes with a committed type."""
    counts: Counter[Hashable] = Counter()
    for one in objects:
        if isinstance(one, PlannedGroup):
            counts.update(link.target.key for link in one.links if isinstance(link.target, PlannedTarget))
        if isinstance(one, PlannedDataset) and one.committed is not None:
            counts[one.committed] += 1
        counts.update(attribute.committed for attribute in one.attributes if attribute.committed is not None)
    return counts


def _plan(one: PlannedObject, references: int) -> Iterator[FilePiece]:
    messages: list[PlannedMessage] = []
    dense: list[FilePiece] = []
    if isinstance(one, PlannedGroup):
        messages += _links(one, dense)
    elif isinstance(one, PlannedDataset):
        messages += _dataset(one)
    else:
        messages.append(PlannedMessage(MessageType.DATATYPE, Addressed(encode_datatype(one.type)), CONSTANT))
    messages += _attributes(one, dense)
    if references > 1:
        messages.append(
            PlannedMessage(MessageType.REFERENCE_COUNT, Addressed(encode_reference_count(references)))
        )
    yield plan_object_header(one.key, messages, attribute_order=one.ordered)
    yield from dense


def _dataset(one: PlannedDataset) -> Iterator[PlannedMessage]:
    yield PlannedMessage(MessageType.DATASPACE, Addressed(encode_shape(one.shape)))
    datatype, shared = _type(one.type, one.committed)
    yield PlannedMessage(MessageType.DATATYPE, datatype, CONSTANT | (SHARED_FLAG if shared else 0))
    fill = encode_fill(one.fill)
    head = len(fill) - len(one.fill.value or b"")
    places = tuple((head + offset, key) for offset, key in one.fill_places)
    yield PlannedMessage(MessageType.FILL, Addressed(fill, places), CONSTANT)
    yield PlannedMessage(MessageType.LAYOUT, one.layout)
    if one.pipeline:
        yield PlannedMessage(MessageType.PIPELINE, Addressed(encode_pipeline(one.pipeline)), CONSTANT)
    yield from one.messages


def _type(datatype: FileType, committed: Key | None) -> tuple[Addressed, bool]:
    if committed is None:
        return Addressed(encode_datatype(datatype)), False
    return Addressed(encode_shared_location(0), ((2, committed),)), True


def _links(group: PlannedGroup, dense: list[FilePiece]) -> Iterator[PlannedMessage]:
    """Yield the messages of a group's links; the pieces of dense storage are appended to `dense`."""
    count = len(group.links)
    names = _names(group.key, group.links)
    found = [_link(link, number if group.ordered else None) for number, link in enumerate(group.links)]
    next_order = count if group.ordered else None
    storage = DenseStorage(next_order=next_order, indexed=group.ordered)
    compact = _is_compact(found)
    if compact:
        yield PlannedMessage(
            MessageType.LINK_INFO, Addressed(encode_dense_storage(storage, LINK_ORDER_WIDTH))
        )
    else:
        pieces, ids = plan_fractal_heap((group.key, "links"), found, LINK_ID_SIZE)
        records = [Addressed(_hash(name) + id) for name, id in zip(names, ids, strict=True)]
        orders = [Addressed(struct.pack("<Q", number) + id) for number, id in enumerate(ids)]
        yield _info((group.key, "links"), storage, pieces, (LINK_NAMES, LINK_ORDERS), LINK_ORDER_WIDTH)
        dense += pieces
        dense += plan_btree_v2((group.key, "links"), LINK_NAMES, _by_hash(records, names))
        dense += plan_btree_v2((group.key, "links"), LINK_ORDERS, orders) if group.ordered else []
    yield PlannedMessage(MessageType.GROUP_INFO, Addressed(DEFAULT_GROUP_INFO), CONSTANT)
    if compact:
        yield from (PlannedMessage(MessageType.LINK, link) for link in found)


def _names(key: Key, some: Sequence[PlannedLink | PlannedAttribute]) -> list[bytes]:
    """Return the encoded names of links or attributes; raises `BadRequest` if a name is empty or occurs twice."""
    names = [encode_name(one.name) for one in some]
    if not all(names) or len(set(names)) < len(names):
        raise BadRequest(f"{key!r} has two links or attributes of one name, or one without a name.")
    return names


def _link(link: PlannedLink, order: int | None) -> Addressed:
    if not isinstance(link.target, PlannedTarget):
        return Addressed(encode_link(LinkMessage(link.name, link.target, order)))
    data = encode_link(LinkMessage(link.name, StoredHardLink(0), order))
    return Addressed(data, ((len(data) - 8, link.target.key),))


def _attributes(one: PlannedObject, dense: list[FilePiece]) -> Iterator[PlannedMessage]:
    """Yield the messages of an object's attributes; the pieces of dense storage are appended to `dense`."""
    titles = _names(one.key, one.attributes)
    found = [_attribute(attribute) for attribute in one.attributes]
    storage = DenseStorage(next_order=len(found) if one.ordered else None, indexed=one.ordered)
    if _is_compact(found):
        # Without this message, libhdf5 finds attributes but reports their number as 0.
        if one.ordered or found:
            yield PlannedMessage(
                MessageType.ATTRIBUTE_INFO, Addressed(encode_dense_storage(storage, ATTRIBUTE_ORDER_WIDTH))
            )
        yield from (
            PlannedMessage(MessageType.ATTRIBUTE, data, 0, number) for number, data in enumerate(found)
        )
        return
    name = (one.key, "attributes")
    pieces, ids = plan_fractal_heap(name, found, ATTRIBUTE_ID_SIZE)
    heads = [id + struct.pack("<BI", 0, number if one.ordered else 0) for number, id in enumerate(ids)]
    records = [Addressed(head + _hash(title)) for head, title in zip(heads, titles, strict=True)]
    yield _info(name, storage, pieces, (ATTRIBUTE_NAMES, ATTRIBUTE_ORDERS), ATTRIBUTE_ORDER_WIDTH)
    dense += pieces
    dense += plan_btree_v2(name, ATTRIBUTE_NAMES, _by_hash(records, titles))
    dense += plan_btree_v2(name, ATTRIBUTE_ORDERS, [Addressed(head) for head in heads]) if one.ordered else []


def _attribute(attribute: PlannedAttribute) -> Addressed:
    datatype, shared = _type(attribute.type, attribute.committed)
    return encode_attribute(attribute.name, datatype, attribute.shape, attribute.data, shared=shared)


def _info(
    name: Key, storage: DenseStorage, pieces: Sequence[FilePiece], kinds: tuple[int, int], order_width: int
) -> PlannedMessage:
    """Return the message of dense storage: link info or attribute info, depending on `order_width`."""
    data = encode_dense_storage(replace(storage, heap=0, names=0, orders=0), order_width)
    count = 3 if storage.indexed else 2
    keys = (pieces[0].key, (name, kinds[0]), (name, kinds[1]))
    begin = len(data) - 8 * count
    places = tuple((begin + 8 * number, key) for number, key in enumerate(keys[:count]))
    return PlannedMessage(
        MessageType.ATTRIBUTE_INFO if order_width == ATTRIBUTE_ORDER_WIDTH else MessageType.LINK_INFO,
        Addressed(data, places),
    )


def _is_compact(messages: Sequence[Addressed]) -> bool:
    """Return whether the encoded links or attributes are stored in the object header instead of dense storage."""
    return len(messages) <= MAX_COMPACT_ITEMS and all(len(one.data) <= MAX_MESSAGE for one in messages)


def _hash(name: bytes) -> bytes:
    return struct.pack("<I", lookup3(name))


def _by_hash(records: Sequence[Addressed], names: Sequence[bytes]) -> list[Addressed]:
    """Sort records by the hash of their names; records with equal hashes are sorted by name."""
    order = sorted(range(len(names)), key=lambda number: (lookup3(names[number]), names[number]))
    return [records[number] for number in order]
