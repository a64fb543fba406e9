"""Encoding of messages and replies: a msgpack header, then the arrays' own bytes, not copied.

A frame is `header length: u32 little-endian | header | buffers`. In the header, a dataclass is a map with its name
under `!`. An array is an extension of type 1, `[dtype, shape, nbytes]`, which stands for the next buffer; each buffer
begins at a multiple of 8 bytes from the frame's start. A record is JSON in an extension of type 2. Arrays of compound
types travel as opaque elements, because both sides know the datatype.

Writer and reader are strict: they accept only the contract in its one version. A node refuses other versions.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import orjson

from hsparse.errors import BadRequest, Outdated
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.chunk_kind import DefinedElements, FoundElements, QueryRequest
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Reduction
from hsparse.format.selections.points import Boxes, Orthogonal, Points, StridedSpan
from hsparse.model.stripes import Stripes
from hsparse.model.vlen_array import VlenArray
from hsparse.wire import chunk_info_message, chunk_message, message, record_message
from hsparse.wire.message import Record

MESSAGE_VERSION = 1
"""The version of the messages; it is raised when a released message or field changes, or a new one is added."""

MODULES = (message, record_message, chunk_message, chunk_info_message)
"""The modules whose dataclasses are messages or parts of messages."""
PARTS = (
    Filter,
    ChunkSpec,
    StridedSpan,
    Orthogonal,
    Boxes,
    Points,
    VlenArray,
    Stripes,
    ChunkSelection,
    DefinedElements,
    FoundElements,
    QueryRequest,
    Reduction,
    Partials,
)
"""The dataclasses in messages that are defined outside the messages' own modules."""


def check_version(version: int, own: int = MESSAGE_VERSION) -> None:
    """Raise `Outdated` if a sender's version of the messages differs from this node's version, `own`."""
    if version != own:
        raise Outdated(
            f"The message has version {version}, but this node uses version {own}: install one hsparse on all nodes."
        )


def _all_kinds() -> dict[str, type]:
    own = (
        item
        for module in MODULES
        for item in vars(module).values()
        if isinstance(item, type) and dataclasses.is_dataclass(item)
    )
    return {kind.__name__: kind for kind in (*PARTS, *own)}


KINDS = _all_kinds()
"""The dataclasses that travel between nodes, by name."""


ARRAY = 1
RECORD = 2
ALIGN = 8


def encode_frame(value: Any) -> list[bytes | memoryview]:
    """Return a frame as a list of buffers to send in order; buffers of arrays are views of the arrays' memory."""
    writer = _Writer()
    header = msgpack.packb(value, default=writer.pack, strict_types=True)
    head = len(header).to_bytes(4, "little") + header
    return [head + bytes(-len(head) % ALIGN), *writer.buffers]


def decode_frame(data: bytes | memoryview) -> Any:
    """Return the value of a frame, with arrays as views of `data`; raise `BadRequest` if `data` is no frame."""
    view = memoryview(data)
    try:
        length = int.from_bytes(view[:4], "little")
        reader = _Reader(view, 4 + length)
        return msgpack.unpackb(
            view[4 : 4 + length],
            ext_hook=reader.extension,
            object_hook=_unpack,
            strict_map_key=False,
        )
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise BadRequest(f"The bytes are not a message frame: {error}.") from error


class _Writer:
    """Packs the values that msgpack does not know; `buffers` are the arrays' buffers, in order."""

    def __init__(self) -> None:
        self.buffers: list[memoryview | bytes] = []

    def pack(self, item: Any) -> Any:
        if isinstance(item, tuple):
            return list(item)
        if isinstance(item, np.ndarray):
            return _pack_array(item, self.buffers)
        if isinstance(item, np.generic):
            return item.item()
        name = type(item).__name__
        if KINDS.get(name) is not type(item):
            raise TypeError(f"{type(item)} is not part of the wire contract")
        records = _records(type(item))
        packed: dict[str, Any] = {"!": name}
        for field in _converters(type(item)):
            value = getattr(item, field)
            packed[field] = _pack_record(value) if field in records else value
        return packed


class _Reader:
    """Reads the extensions of a header: the next buffer of the frame for each array, and JSON for each record."""

    def __init__(self, view: memoryview, at: int) -> None:
        self._view = view
        self._at = at

    def extension(self, code: int, data: bytes) -> Any:
        if code == RECORD:
            return orjson.loads(data)
        if code != ARRAY:
            raise ValueError(f"unknown extension {code}")
        kind, shape, nbytes = msgpack.unpackb(data)
        self._at += -self._at % ALIGN
        buffer = self._view[self._at : self._at + nbytes]
        if len(buffer) != nbytes:
            raise ValueError(f"a buffer of {nbytes} bytes is cut short")
        self._at += nbytes
        return np.frombuffer(buffer, np.dtype(kind)).reshape(shape)


def _pack_record(value: Any) -> Any:
    return None if value is None else msgpack.ExtType(RECORD, orjson.dumps(value))


def _pack_array(array: np.ndarray[Any, Any], buffers: list[memoryview | bytes]) -> Any:
    if array.dtype.hasobject:
        raise TypeError("arrays of Python objects are not part of the wire contract")
    plain = array.dtype.isnative and array.dtype.names is None and array.dtype.kind in "biufcS"
    kind = array.dtype.str if plain else f"V{array.dtype.itemsize}"
    contiguous = np.ascontiguousarray(array).reshape(-1)
    nbytes = contiguous.nbytes
    buffers.append(contiguous.view(np.uint8).data if nbytes else b"")
    if nbytes % ALIGN:
        buffers.append(bytes(-nbytes % ALIGN))
    return msgpack.ExtType(ARRAY, msgpack.packb([kind, array.shape, nbytes]))


def _unpack(packed: dict[Any, Any]) -> Any:
    name = packed.pop("!", None)
    if name is None:
        return packed
    cls = KINDS.get(name)
    if cls is None:
        raise ValueError(f"unknown message {name!r}")
    converters = _converters(cls)
    try:
        return cls(**{key: converters[key](value) for key, value in packed.items()})
    except KeyError as error:
        raise ValueError(f"{name} has no field {error}") from None


_CONVERTERS: dict[type, dict[str, Callable[[Any], Any]]] = {}
_RECORDS: dict[type, frozenset[str]] = {}


def _converters(cls: type) -> dict[str, Callable[[Any], Any]]:
    """Return a dict that maps each field to the function that restores its value, as tuples travel as lists."""
    if cls not in _CONVERTERS:
        hints = typing.get_type_hints(cls)
        _CONVERTERS[cls] = {field.name: _converter(hints[field.name]) for field in dataclasses.fields(cls)}
    return _CONVERTERS[cls]


def _converter(hint: Any) -> Callable[[Any], Any]:
    if typing.get_origin(hint) is types.UnionType:
        converters = [one for one in map(_converter, typing.get_args(hint)) if one is not _same]
        return (
            (lambda value: converters[0](value) if isinstance(value, list) else value)
            if converters
            else _same
        )
    if typing.get_origin(hint) is not tuple:
        return _same
    inner = _converter(typing.get_args(hint)[0])
    return tuple if inner is _same else lambda items: tuple(inner(item) for item in items)


def _same(value: Any) -> Any:
    return value


def _records(cls: type) -> frozenset[str]:
    """Return the fields that travel as JSON: records, maps of records, and values of any type."""
    if cls not in _RECORDS:
        hints = typing.get_type_hints(cls)
        _RECORDS[cls] = frozenset(
            name for name, hint in hints.items() if hint is Any or _is_record(hint) or _is_record_map(hint)
        )
    return _RECORDS[cls]


def _is_record(hint: Any) -> bool:
    return Record in (hint, *typing.get_args(hint))


def _is_record_map(hint: Any) -> bool:
    return bool(typing.get_origin(hint) is dict and typing.get_args(hint)[1] == Record)
