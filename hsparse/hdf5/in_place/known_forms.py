"""Recognize objects of a large group whose headers differ from a parsed object's header only in addresses and values.

A form is the pattern of such headers. If an object can be served (has a record), all objects of its form can be
served, so they are parsed only on request. Parts outside of the header, such as a chunk index, may be damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hsparse.errors import HsparseError
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.attribute_message import attribute_head
from hsparse.hdf5.format.messages.group_messages import (
    ATTRIBUTE_ORDER_WIDTH,
    StoredHardLink,
    decode_dense_storage,
    decode_link,
)
from hsparse.hdf5.format.messages.layout_message import (
    CHUNKED,
    COMPACT,
    CONTIGUOUS,
    ContiguousLayout,
    decode_layout,
)
from hsparse.hdf5.format.object_header import HeaderMessage, MessageType, block_size, first_block
from hsparse.hdf5.format.parse.parsed_object import ObjectKind
from hsparse.hdf5.format.plan.domain_plan import DEFINED
from hsparse.hdf5.format.plan.matrix_encoding import BINSPARSE, ENCODING_TYPE, OLD_FORMAT

MAX_HEADER_BYTES = 4096
"""Bytes of the longest header that is compared."""
MOST_FORMS = 64
REFERENCES = slice(4, 8)
TIMES, TIMES_FLAG = slice(6, 22), 0x20
CHECKSUM = slice(-4, None)
SAME = {
    MessageType.DATASPACE,
    MessageType.DATATYPE,
    MessageType.FILL,
    MessageType.OLD_FILL,
    MessageType.PIPELINE,
}
"""Header messages that are compared whole."""
FREE = {
    0,
    MessageType.LINK_INFO,
    MessageType.GROUP_INFO,
    MessageType.SYMBOL_TABLE,
    MessageType.TIME,
    MessageType.OLD_TIME,
    MessageType.COMMENT,
    MessageType.REFERENCE_COUNT,
}
"""Header messages (0: padding) that are not compared, because they do not decide whether an object has a record."""
TELLING = tuple(
    name.encode() for name in (BINSPARSE, ENCODING_TYPE, OLD_FORMAT, DEFINED, "NX_class", "hsparse_")
)
"""Substrings of names of attributes that may make an object a matrix or the like; such an object gets no form."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A pattern of headers of `size` bytes: a header, read as a little-endian integer, equals `value` under `mask`.

    `place` is the header's byte position of the address of `extent` bytes of contiguous data, or None without data.
    """

    kind: ObjectKind
    size: int
    mask: int
    value: int
    place: int | None
    extent: int


class KnownForms:
    """The forms of objects of a file that have a record, most recently used first. Not thread-safe."""

    def __init__(self, file: Hdf5File) -> None:
        self._file = file
        self._forms: list[_Form] = []

    def kind(self, start: memoryview) -> ObjectKind | None:
        """Return the kind of the object whose header is at the beginning of `start`, or None for an unknown form."""
        for number, form in enumerate(self._forms):
            found = int.from_bytes(start[: form.size], "little")
            if found & form.mask == form.value and len(start) >= form.size and self._is_in_file(form, start):
                if number:
                    self._forms.insert(0, self._forms.pop(number))
                return form.kind
        return None

    def add(self, start: memoryview, kind: ObjectKind) -> None:
        """Add the form of an object that has a record, unless its header has a message that must always be parsed."""
        try:
            size = block_size(start)
            mask = bytearray(b"\xff" * size)
            is_old = bytes(start[:4]) != b"OHDR"
            for free in (REFERENCES,) if is_old else (CHECKSUM, TIMES if start[5] & TIMES_FLAG else slice(0)):
                mask[free] = bytes(len(mask[free]))
            place, extent = None, 0
            for message, begin in first_block(start):
                for free in self._free(message):
                    zone = range(len(message.data))[free]
                    mask[begin + zone.start : begin + zone.stop] = bytes(len(zone))
                if message.kind == MessageType.LAYOUT:
                    layout = decode_layout(ByteReader(message.data), self._file.widths)
                    if isinstance(layout, ContiguousLayout) and layout.address is not None:
                        place, extent = begin + 2, layout.size or 0
        except (HsparseError, LookupError):
            return
        bits = int.from_bytes(mask, "little")
        value = int.from_bytes(start[:size], "little") & bits
        self._forms.insert(0, _Form(kind, size, bits, value, place, extent))
        del self._forms[MOST_FORMS:]

    def _is_in_file(self, form: _Form, start: memoryview) -> bool:
        if form.place is None:
            return True
        address = int.from_bytes(start[form.place : form.place + self._file.widths.address], "little")
        return address + form.extent <= self._file.size - self._file.base

    def _free(self, message: HeaderMessage) -> Iterator[slice]:
        """Yield the bytes of a message that are not compared; raise `LookupError` if the message must be parsed."""
        reader, widths = ByteReader(message.data), self._file.widths
        if message.shared:
            raise LookupError(message.kind)
        if message.kind in FREE:
            yield slice(None)
        elif message.kind == MessageType.ATTRIBUTE:
            head = attribute_head(reader)
            if any(name in head for name in TELLING):
                raise LookupError(head)
            yield slice(len(head), None)
        elif message.kind == MessageType.ATTRIBUTE_INFO:
            if decode_dense_storage(reader, widths, ATTRIBUTE_ORDER_WIDTH).heap is not None:
                raise LookupError(message.kind)
        elif message.kind == MessageType.LINK:
            if not isinstance(decode_link(reader, widths).target, StoredHardLink):
                raise LookupError(message.kind)
            yield slice(reader.place - widths.address, reader.place)
        elif message.kind == MessageType.LAYOUT:
            yield self._free_layout(message.data)
        elif message.kind not in SAME:
            raise LookupError(message.kind)

    def _free_layout(self, data: memoryview) -> slice:
        """Return the bytes of a layout message that hold addresses, compact values or parameters of an index."""
        version, kind = data[:2]
        if version in (3, 4) and kind == CONTIGUOUS:
            return slice(2, 2 + self._file.widths.address)
        if version in (3, 4) and kind == COMPACT:
            return slice(4, None)
        if version == 3 and kind == CHUNKED:
            return slice(3, 3 + self._file.widths.address)
        if version == 4 and kind == CHUNKED:
            return slice(5 + data[3] * data[4] + 1, None)
        raise LookupError(kind)
