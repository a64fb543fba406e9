"""The variable-length heap of a structured chunk: the protocol of heap forms, and the two forms.

Each variable-length part of an element is stored as a 16-byte reference; its bytes, the payload, are on the heap. The
form of the heap determines the bytes of references and the framing of payloads.

The packed heap (RFC "File Format Changes for Enabling Sparse Storage in HDF5", section 2.1) has payloads one after the
other. Its first four bytes are the number of unused bytes of the heap. A reference is a pair of offset and length, in
bytes. Where the RFC leaves this open, hsparse assumes: offsets count from the section's first byte, numbers have
the width of the layout's offsets (4 bytes in July 2023, 8 in October 2025), and the rest of the 16 bytes is zero.

The heap set, the form of the HDF5 library's prototype (`FormatRevision.LIB_2026_09`), is a set of global heap
collections, little-endian:

| bytes | content |
| --- | --- |
| 8 | `HGLS`, version 1, three zeros |
| 4 | number of slots |
| 16 per slot | offset in the section, and length, of the slot's collection: u64; both 0 if the slot is unused |
| rest | the collections, see H5.format.html, III.E "Global Heap" |

A collection is `GCOL`, version 1, three zeros, its length (u64), then objects: index (u16, from 1), number of
references (u16, 0), four zeros, size (u64), and the payload, padded to 8 bytes. A reference is the number of elements
(u32), slot (u16), index (u16), eight zeros; a null reference is all zeros. A heap without payloads has no bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.model.element import HEAP_REFERENCE_SIZE
from hsparse.model.layout import MAX_REFERENCES

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class HeapDraft:
    """A heap that is complete except for its payloads.

    `image: (m,) uint8` has the heap's bytes. `begins: (k,)`, ascending, are the offsets of the payloads in the image,
    and `references: (k, 16) uint8` refer to them.
    """

    image: NDArray[np.uint8]
    begins: Places
    references: NDArray[np.uint8]


class OpenHeap(Protocol):
    """A heap whose framing was read, so that payloads of references can be found."""

    def find(self, references: NDArray[np.uint8], itemsize: int) -> tuple[Places, Places]:
        """Return a pair for `references: (k, 16)`: the payloads' offsets in the heap's section, and sizes in bytes.

        A size is a multiple of `itemsize` bytes, and 0 for a null reference. Raises `Corrupt` for an invalid reference.
        """
        ...


class HeapForm(Protocol):
    """One of the forms of the heap that this module describes."""

    def draft(self, sizes: Places, counts: Places) -> HeapDraft:
        """Return a heap for k payloads, in order, of `sizes: (k,)` bytes with `counts: (k,)` elements."""
        ...

    def open(self, section: Buffer) -> OpenHeap:
        """Read the framing of a heap; raise `Corrupt` if it is inconsistent."""
        ...


UNUSED = 4
"""Bytes of the field at the start of a packed heap; it has the number of unused bytes."""


@dataclass(frozen=True, slots=True)
class PackedHeap:
    """The `HeapForm` of the RFC, with offsets and lengths of `width` bytes, 4 or 8."""

    width: int

    def draft(self, sizes: Places, counts: Places) -> HeapDraft:
        """Return a heap without unused bytes; raise `TooLarge` if it exceeds the width of offsets."""
        count = len(sizes)
        pairs = np.zeros((count, HEAP_REFERENCE_SIZE // self.width), f"<u{self.width}")
        if not count:
            return HeapDraft(np.zeros(0, np.uint8), np.zeros(0, np.int64), _as_bytes(pairs))
        ends = UNUSED + np.cumsum(sizes)
        if int(ends[-1]) >= 1 << 8 * self.width:
            raise TooLarge(f"A chunk's heap would have {ends[-1]} bytes; its offsets have only {self.width}.")
        pairs[:, 0], pairs[:, 1] = ends - sizes, sizes
        pairs[sizes == 0, 0] = 0
        return HeapDraft(np.zeros(int(ends[-1]), np.uint8), ends - sizes, _as_bytes(pairs))

    def open(self, section: Buffer) -> OpenPackedHeap:
        """Read the number of unused bytes; raise `Corrupt` if it is larger than the heap."""
        size = memoryview(section).nbytes
        unused = int.from_bytes(memoryview(section)[:UNUSED], "little")
        if size and unused > size - UNUSED:
            raise Corrupt(f"it has {size} bytes, too few for the {unused} unused bytes that it claims")
        return OpenPackedHeap(size, self.width)


@dataclass(frozen=True, slots=True)
class OpenPackedHeap:
    """`OpenHeap` of a packed heap of `size` bytes."""

    size: int
    width: int

    def find(self, references: NDArray[np.uint8], itemsize: int) -> tuple[Places, Places]:
        """See `OpenHeap`."""
        pairs = np.ascontiguousarray(references).view(f"<u{self.width}")
        begins, sizes = pairs[:, 0].astype(np.uint64), pairs[:, 1].astype(np.uint64)
        if pairs[:, 2:].any():
            raise Corrupt("a reference is not valid: its reserved bytes are not zero")
        some = sizes > 0
        end = np.uint64(self.size)
        if (
            ((begins < UNUSED) & some).any()
            or (sizes > end).any()
            or (begins[some] > end - sizes[some]).any()
        ):
            raise Corrupt(f"a reference leads out of a heap of {self.size} bytes")
        if (sizes % np.uint64(itemsize)).any():
            raise Corrupt(f"a reference leads to a fraction of an element of {itemsize} bytes")
        begins[~some] = 0
        return begins.astype(np.int64), sizes.astype(np.int64)


def _as_bytes(pairs: NDArray[np.unsignedinteger]) -> NDArray[np.uint8]:
    return pairs.view(np.uint8).reshape(len(pairs), HEAP_REFERENCE_SIZE)


HEAD = struct.Struct("<4sB3xI")
COLLECTION = np.dtype([("magic", "S4"), ("version", "<u4"), ("length", "<u8")])
OBJECT = np.dtype([("index", "<u2"), ("references", "<u2"), ("zero", "<u4"), ("size", "<u8")])
ENTRY = np.dtype([("begin", "<u8"), ("length", "<u8")])
SET_REFERENCE = np.dtype([("count", "<u4"), ("slot", "<u2"), ("index", "<u2"), ("zero", "<u8")])
FRAME = 16
"""The bytes of a collection's head, of an object's head, of a slot's entry and of a reference."""

MAGIC, COLLECTION_MAGIC = b"HGLS", b"GCOL"
HEAP_VERSION = 1
MAX_SLOTS = 65536
MAX_INDEX = 65535
SLOT_BYTES = 512 * 1024
"""The most bytes of a collection; a payload that does not fit gets its own, longer collection."""


class HeapSet:
    """The `HeapForm` of the HDF5 library's prototype."""

    def draft(self, sizes: Places, counts: Places) -> HeapDraft:
        """Return a heap of collections; raise `TooLarge` if there would be more than `MAX_SLOTS`."""
        count = len(sizes)
        if not count:
            return HeapDraft(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros((0, FRAME), np.uint8))
        taken = FRAME + (sizes + 7 & ~7)
        ends = np.cumsum(taken)
        firsts = _slots(ends, taken)
        slots = len(firsts)
        if slots > MAX_SLOTS:
            raise TooLarge(f"A chunk's heap would have {slots} collections; the limit is {MAX_SLOTS}.")
        slot_of = np.repeat(np.arange(slots), np.diff(firsts, append=count))
        head = HEAD.size + FRAME * slots
        begins = head + ends - taken + FRAME * (slot_of + 2)
        image = np.zeros(head + FRAME * slots + int(ends[-1]), np.uint8)
        image[: HEAD.size] = np.frombuffer(HEAD.pack(MAGIC, HEAP_VERSION, slots), np.uint8)
        entries = np.zeros(slots, ENTRY)
        entries["begin"] = begins[firsts] - 2 * FRAME
        entries["length"] = np.diff(entries["begin"], append=np.uint64(len(image)))
        image[HEAD.size : head] = entries.view(np.uint8)
        windows = sliding_window_view(image, FRAME, writeable=True)
        collections = np.zeros(slots, COLLECTION)
        collections["magic"], collections["version"] = COLLECTION_MAGIC, HEAP_VERSION
        collections["length"] = entries["length"]
        windows[begins[firsts] - 2 * FRAME] = collections.view(np.uint8).reshape(-1, FRAME)
        objects = np.zeros(count, OBJECT)
        objects["index"], objects["size"] = np.arange(count) - firsts[slot_of] + 1, sizes
        windows[begins - FRAME] = objects.view(np.uint8).reshape(-1, FRAME)
        references = np.zeros(count, SET_REFERENCE)
        references["count"], references["slot"], references["index"] = counts, slot_of, objects["index"]
        return HeapDraft(image, begins, references.view(np.uint8).reshape(-1, FRAME))

    def open(self, section: Buffer) -> OpenHeapSet:
        """Read the positions of all objects; raise `Corrupt` if the collections are inconsistent."""
        view = memoryview(section).cast("B")
        keys, begins = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        directory = _directory(view)
        end, count = HEAD.size + FRAME * len(directory), 0
        for slot, (begin, length) in enumerate(directory):
            if not begin and not length:
                continue
            if begin < end or length < FRAME or begin + length > len(view):
                raise Corrupt(
                    f"the collection of slot {slot} is not inside the section, after the previous one"
                )
            end = begin + length
            indexes, places = _objects(view[begin:end], slot)
            keys.append(indexes | slot << 16)
            begins.append(places + begin)
            count += len(places)
            if count > MAX_REFERENCES:
                raise Corrupt(f"it has more than {MAX_REFERENCES} objects")
        return OpenHeapSet.of(view, np.concatenate(keys), np.concatenate(begins))


@dataclass(frozen=True, slots=True, eq=False)
class OpenHeapSet:
    """`OpenHeap` of a heap set: its objects by `keys: (k,)`, which are 65536 times the slot plus the index, ascending.

    `begins: (k,)` and `sizes: (k,)` are the offsets in the section and the sizes of the payloads, in bytes.
    """

    keys: Places
    begins: Places
    sizes: Places

    @classmethod
    def of(cls, view: memoryview, keys: Places, heads: Places) -> OpenHeapSet:
        """Return the objects whose heads are at `heads: (k,)`; raise `Corrupt` if two have the same key."""
        order = np.argsort(keys, kind="stable")
        keys, heads = keys[order], heads[order]
        if (keys[1:] == keys[:-1]).any():
            raise Corrupt("two objects of a collection have the same index")
        sizes = np.zeros(0, np.int64)
        if len(heads):
            windows = sliding_window_view(np.frombuffer(view, np.uint8), FRAME)
            sizes = windows[heads].view(OBJECT)["size"][:, 0].astype(np.int64)
        return cls(keys, heads + FRAME, sizes)

    def find(self, references: NDArray[np.uint8], itemsize: int) -> tuple[Places, Places]:
        """See `OpenHeap`."""
        rows = np.ascontiguousarray(references).view(SET_REFERENCE).reshape(-1)
        null = (rows["count"] == 0) & (rows["index"] == 0) & (rows["slot"] == 0)
        if rows["zero"].any() or ((rows["index"] == 0) & ~null).any():
            raise Corrupt("a reference is not valid: its index is zero, or its reserved bytes are not zero")
        begins, sizes = np.zeros((2, len(rows)), np.int64)
        some = np.flatnonzero(~null)
        if not len(some):
            return begins, sizes
        rows = rows[some]
        keys = rows["slot"].astype(np.int64) << 16 | rows["index"]
        places = np.searchsorted(self.keys, keys)
        known = places < len(self.keys)
        known[known] = self.keys[places[known]] == keys[known]
        if not known.all():
            slot, index = divmod(int(keys[~known][0]), 1 << 16)
            raise Corrupt(f"a reference leads to object {index} of slot {slot}, which is not there")
        begins[some], sizes[some] = self.begins[places], self.sizes[places]
        wrong = sizes[some] != rows["count"].astype(np.int64) * itemsize
        if wrong.any():
            size, count = int(sizes[some][wrong][0]), int(rows["count"][wrong][0])
            raise Corrupt(f"a reference to {count} elements of {itemsize} bytes leads to {size} bytes")
        return begins, sizes


def _slots(ends: Places, taken: Places) -> Places:
    """Return the number of each collection's first object; `taken: (k,)` has object sizes, `ends` running sums."""
    firsts, at = [], 0
    while at < len(ends):
        firsts.append(at)
        room = ends[at] - taken[at] + SLOT_BYTES - FRAME
        at = max(at + 1, int(np.searchsorted(ends, room, side="right")))
    return np.array(firsts, np.int64)


def _directory(view: memoryview) -> list[tuple[int, int]]:
    if not len(view):
        return []
    if len(view) < HEAD.size:
        raise Corrupt(f"it has {len(view)} bytes, too few for a head")
    magic, version, count = HEAD.unpack_from(view)
    if magic != MAGIC or version != HEAP_VERSION:
        raise Corrupt(
            f"it begins with {magic!r}, version {version}, not with {MAGIC!r}, version {HEAP_VERSION}"
        )
    if count > MAX_SLOTS or HEAD.size + FRAME * count > len(view):
        raise Corrupt(f"its directory of {count} slots is cut short")
    found: list[tuple[int, int]] = np.frombuffer(view, ENTRY, count, HEAD.size).tolist()
    return found


def _objects(data: memoryview, slot: int) -> tuple[Places, Places]:
    """Return a pair: the indexes of a collection's objects, and the offsets of their heads in the collection.

    A collection may end with free space: an object of index 0 whose size includes its head, or fewer bytes than an
    object's head.
    """
    magic, version, length = np.frombuffer(data, COLLECTION, 1)[0].tolist()
    if magic != COLLECTION_MAGIC or version != HEAP_VERSION or length != len(data):
        raise Corrupt(f"slot {slot} has no global heap collection of {len(data)} bytes")
    words = data[: len(data) & ~7].cast("Q")
    end = len(words)
    heads: list[int] = []
    at = 2
    while at + 1 < end:
        if len(heads) > MAX_INDEX:
            raise Corrupt(f"slot {slot} has more than {MAX_INDEX} objects")
        heads.append(at)
        at += 2 + (words[at + 1] + 7 >> 3)
    places = np.array(heads, np.int64) * 8
    if len(places):
        rows = sliding_window_view(np.frombuffer(data, np.uint8), FRAME)[places].view(OBJECT)[:, 0]
    else:
        rows = np.zeros(0, OBJECT)
    if len(rows) and rows["index"][-1] == 0:
        if int(places[-1]) + int(rows["size"][-1]) != len(data):
            raise Corrupt(f"the free space of slot {slot} does not end with its collection")
        rows, places = rows[:-1], places[:-1]
    elif at > end:
        raise Corrupt(f"an object of slot {slot} reaches beyond its collection")
    if (rows["index"] == 0).any():
        raise Corrupt(f"there are objects behind the free space of slot {slot}")
    return rows["index"].astype(np.int64), places
