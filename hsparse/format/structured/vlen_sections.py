"""Variable-length elements in the sections of a structured chunk: elements with references, and a heap.

An element has the bytes of its file datatype: fixed-size parts unchanged, and for each string or sequence a reference
to the heap (`hsparse.format.structured.heap`). If the elements of a sequence have variable-length parts themselves, the
sequence's payload has these elements with their references. Region references, which HDF5 stores on a heap of the file,
are sequences of bytes here. As in the library's type conversion, an empty sequence is a null reference, but an empty
string has an object. Payloads are in the order of elements, and a payload follows the payloads that it refers to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.structured.heap import MAGIC, HeapForm, HeapSet, OpenHeap, PackedHeap, Places
from hsparse.model.element import (
    PREFIX_SIZE,
    ArrayOfVlen,
    Compound,
    Element,
    Fixed,
    Region,
    VlenSequence,
    VlenString,
)
from hsparse.model.layout import MAX_REFERENCES
from hsparse.model.vlen_array import VlenArray, add_prefixes, ends, runs_mask, skipper, take_elements

Bytes = NDArray[np.uint8]

FRAMES = 128
"""The bytes between payloads, per payload, up to which a mask is faster than copying payloads one by one."""

FORMS: dict[FormatRevision, HeapForm] = {
    FormatRevision.RFC_2023_07: PackedHeap(4),
    FormatRevision.RFC_2025_10: PackedHeap(8),
    FormatRevision.LIB_2026_09: HeapSet(),
}


def revision_of_heap(heap: Buffer, declared: FormatRevision) -> FormatRevision:
    """Return the revision that determines a heap's form; `declared` is the revision in the layout message.

    Version 28 of the RFC and the prototype have the same layout message. A heap of the prototype begins with `HGLS`. A
    heap of the RFC cannot begin so: read as the number of unused bytes, it would exceed the size of any section.
    """
    if declared is FormatRevision.LIB_2026_09 and len(heap) and bytes(memoryview(heap)[:4]) != MAGIC:
        return FormatRevision.RFC_2025_10
    return declared


def encode_elements(
    array: VlenArray, element: Element, revision: FormatRevision = FormatRevision.LIB_2026_09
) -> tuple[Buffer, Buffer]:
    """Return a pair: the section of elements with references, and the heap, both without checksums.

    The heap is empty if there are no payloads. Raises `TooLarge` for more than `MAX_REFERENCES` references, including
    references on the heap.
    """
    walk = _Walk(array.heap, array.size * element.references)
    _check_references(walk.references)
    rows = np.zeros((array.size, element.file_size), np.uint8)
    walk.fill(element, array.offsets[:-1].astype(np.int64), rows)
    return byte_view(rows), byte_view(walk.heap(FORMS[revision]))


def decode_elements(
    elements: Buffer,
    heap: Buffer,
    element: Element,
    names: tuple[str, str],
    revision: FormatRevision = FormatRevision.LIB_2026_09,
) -> VlenArray:
    """Return the elements, (n,), in the two sections; raise `Corrupt`, naming the section by `names`, if invalid.

    Memory is bounded by the sections: several references may share a payload, but if the payloads of all references
    together are larger than the heap, the sections are rejected.
    """
    try:
        opened = FORMS[revision].open(heap)
    except Corrupt as error:
        raise Corrupt(f"{names[1]} does not decode: {error.message}.") from error
    rows = np.frombuffer(elements, np.uint8)
    if len(rows) % element.file_size:
        raise Corrupt(f"{names[0]} has {len(rows)} bytes, no multiple of {element.file_size} (an element).")
    reader = _ElementReader(np.frombuffer(heap, np.uint8), opened, names)
    return reader.length_prefixed(element, rows.reshape(-1, element.file_size), 0)


# --- to sections ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Payloads:
    """The payloads of one part of all elements, without null references.

    `keys: (k,)` are the ends of the parts in the length-prefixed form. `begins` and `sizes` locate the payloads in
    `source`, `counts` are the payloads' numbers of elements, and `references[rows]` are the references to set.
    """

    keys: Places
    source: Bytes
    begins: Places
    sizes: Places
    counts: Places
    references: Bytes
    rows: Places


@dataclass(slots=True)
class _Walk:
    """A walk through elements in length-prefixed form, part by part, that collects the payloads for the heap."""

    prefixed: Bytes
    references: int
    found: list[_Payloads] = field(default_factory=list)

    def fill(self, element: Element, at: Places, rows: Bytes) -> Places:
        """Set `rows: (k, file size)` to the parts that begin at `at: (k,)`, and return the ends of the parts, (k,)."""
        if not len(at):
            return at
        if isinstance(element, Fixed):
            size = element.dtype.itemsize
            rows[...] = sliding_window_view(self.prefixed, size)[at]
            return at + size
        if isinstance(element, Compound):
            first = 0
            for part in element.parts:
                at = self.fill(part, at, rows[:, first : first + part.file_size])
                first += part.file_size
            return at
        if isinstance(element, ArrayOfVlen):
            return self._fill_arrays(element, at, rows)
        return self._fill_runs(element, at, rows)

    def _fill_arrays(self, element: ArrayOfVlen, at: Places, rows: Bytes) -> Places:
        count, size = prod(element.dims), element.base.file_size
        starts, stops = self._members(element.base, at, count)
        # Filling all elements at once would need a copy of `rows`, whose first two axes cannot be joined in a view.
        if count <= len(at):
            for number in range(count):
                self.fill(element.base, starts[:, number], rows[:, number * size : (number + 1) * size])
        else:
            for row in range(len(at)):
                self.fill(element.base, starts[row], rows[row].reshape(count, size))
        return stops

    def _members(self, base: Element, at: Places, count: int) -> tuple[Places, Places]:
        """Return a pair: the starts of the elements of k arrays, (k, count), and the ends of the arrays, (k,)."""
        skip, data, end = skipper(base), self.prefixed.data, len(self.prefixed)
        starts = np.empty((len(at), count + 1), np.int64)
        for row, place in enumerate(at.tolist()):
            places = [place]
            for _ in range(count):
                place = skip(data, place, end)
                places.append(place)
            starts[row] = places
        return starts[:, :-1], starts[:, -1]

    def _fill_runs(self, element: VlenString | Region | VlenSequence, at: Places, rows: Bytes) -> Places:
        """Collect the payloads of strings or sequences, write references to `rows`, and return their ends, (k,)."""
        lengths = sliding_window_view(self.prefixed, PREFIX_SIZE)[at].view("<u4")[:, 0].astype(np.int64)
        begins = at + PREFIX_SIZE
        stops = begins + lengths
        source, counts = self.prefixed, lengths
        if isinstance(element, VlenSequence):
            base = element.base
            if isinstance(base, Fixed):
                counts = lengths // base.dtype.itemsize
            else:
                starts, counts = self._inside(base, begins, stops)
                self.references += len(starts) * base.references
                inner = np.zeros((len(starts), base.file_size), np.uint8)
                self.fill(base, starts, inner)
                source, lengths = inner.reshape(-1), counts * base.file_size
                begins = np.cumsum(lengths) - lengths
        some = np.arange(len(at)) if isinstance(element, VlenString) else np.flatnonzero(counts)
        self.found.append(
            _Payloads(stops[some], source, begins[some], lengths[some], counts[some], rows, some)
        )
        return stops

    def _inside(self, base: Element, begins: Places, stops: Places) -> tuple[Places, Places]:
        """Return a pair: the starts of all elements of sequences, and the number of elements of each sequence."""
        skip, data = skipper(base), self.prefixed.data
        most = (MAX_REFERENCES - self.references) // base.references
        starts: list[int] = []
        counts = []
        for at, stop in zip(begins.tolist(), stops.tolist(), strict=True):
            before = len(starts)
            while at < stop:
                starts.append(at)
                at = skip(data, at, stop)
                if len(starts) > most:
                    _check_references(self.references + len(starts) * base.references)
            counts.append(len(starts) - before)
        return np.array(starts, np.int64), np.array(counts, np.int64)

    def heap(self, form: HeapForm) -> Bytes:
        """Return the heap of the collected payloads, and set the references to it."""
        if not self.found:
            return np.zeros(0, np.uint8)
        # A sequence and its last element have the same end; the stable sort keeps the element first.
        order = np.argsort(np.concatenate([some.keys for some in self.found]), kind="stable")
        sizes = np.concatenate([some.sizes for some in self.found])
        counts = np.concatenate([some.counts for some in self.found])
        draft = form.draft(sizes[order], counts[order])
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        places = []
        first = 0
        for some in self.found:
            mine = rank[first : first + len(some.keys)]
            some.references[some.rows] = draft.references[mine]
            places.append(draft.begins[mine])
            first += len(some.keys)
        self._copy(draft.image, places)
        return draft.image

    def _copy(self, image: Bytes, places: list[Places]) -> None:
        """Copy each payload to its position in the heap; all references must have been set before."""
        plain = [
            (some, where)
            for some, where in zip(self.found, places, strict=True)
            if some.source is self.prefixed
        ]
        if plain:  # payloads without references have the same order in the heap and in the prefixed form
            begins, sizes, where = (
                np.concatenate(columns)
                for columns in zip(*((some.begins, some.sizes, where) for some, where in plain), strict=True)
            )
            order = np.argsort(begins, kind="stable") if len(plain) > 1 else slice(None)
            begins, sizes, where = begins[order], sizes[order], where[order]
            image[runs_mask(where, sizes, len(image))] = self.prefixed[
                runs_mask(begins, sizes, len(self.prefixed))
            ]
        target = image.data
        for some, where in zip(self.found, places, strict=True):
            if some.source is not self.prefixed:
                for begin, piece in zip(
                    where.tolist(), _pieces(some.source, some.begins, some.sizes), strict=True
                ):
                    target[begin : begin + len(piece)] = piece


def _check_references(count: int) -> None:
    if count > MAX_REFERENCES:
        raise TooLarge(
            f"A chunk would have {count} strings and sequences; the limit is {MAX_REFERENCES}: make the dataset's "
            "chunks smaller."
        )


def _pieces(source: Bytes, begins: Places, sizes: Places) -> Iterator[memoryview]:
    return map(source.data.__getitem__, map(slice, begins.tolist(), (begins + sizes).tolist()))


# --- from sections --------------------------------------------------------------------------------


@dataclass(slots=True)
class _ElementReader:
    """A reader that assembles elements; `depth` is 0 for elements in section 1, and higher for elements on the heap."""

    source: Bytes
    heap: OpenHeap
    names: tuple[str, str]
    read: int = 0
    references: int = 0

    def length_prefixed(self, element: Element, rows: Bytes, depth: int) -> VlenArray:
        """Return the elements in `rows: (k, file size)` in length-prefixed form, (k,)."""
        if isinstance(element, Fixed):
            offsets = ends(np.full(len(rows), element.dtype.itemsize))
            return VlenArray((len(rows),), offsets, np.ascontiguousarray(rows).reshape(-1))
        if isinstance(element, Compound):
            return self._record(element, rows, depth)
        if isinstance(element, ArrayOfVlen):
            count = prod(element.dims)
            whole = np.ascontiguousarray(rows).reshape(len(rows) * count, element.base.file_size)
            return _grouped(self.length_prefixed(element.base, whole, depth), count)
        base = element.base if isinstance(element, VlenSequence) else None
        if base is None or isinstance(base, Fixed):
            heap, sizes = self._payloads(rows, 1 if base is None else base.file_size, depth)
            return add_prefixes(heap, sizes)
        heap, sizes = self._payloads(rows, base.file_size, depth)
        inner = self.length_prefixed(base, heap.reshape(-1, base.file_size), depth + 1)
        edges = np.append(0, np.cumsum(sizes // base.file_size))
        return add_prefixes(inner.heap, np.diff(inner.offsets[edges].astype(np.int64)))

    def _record(self, element: Compound, rows: Bytes, depth: int) -> VlenArray:
        columns = []
        first = 0
        for part in _merged(element.parts):
            columns.append(self.length_prefixed(part, rows[:, first : first + part.file_size], depth))
            first += part.file_size
        if len(columns) == 1:
            return columns[0]
        index = np.arange(len(rows))[:, None] + len(rows) * np.arange(len(columns))
        return _grouped(take_elements(columns, index), len(columns))

    def _payloads(self, references: Bytes, itemsize: int, depth: int) -> tuple[Bytes, Places]:
        """Return a pair: the concatenated payloads of references, and the payloads' sizes, (k,), in bytes."""
        name = self.names[min(depth, 1)]
        self.references += len(references)
        if self.references > MAX_REFERENCES:
            raise Corrupt(f"{name} has more than {MAX_REFERENCES} references, including earlier ones.")
        try:
            begins, sizes = self.heap.find(references, itemsize)
        except Corrupt as error:
            raise Corrupt(f"{name} does not decode: {error.message}.") from error
        self.read += int(sizes.sum())
        if self.read > len(self.source):
            raise Corrupt(
                f"{name} does not decode: its references read {self.read} bytes of a heap of {len(self.source)}."
            )
        return _gathered(self.source, begins, sizes), sizes


def _gathered(source: Bytes, begins: Places, sizes: Places) -> Bytes:
    """Return the concatenated bytes of the runs at `begins: (k,)` of `sizes: (k,)` in `source`."""
    some = np.flatnonzero(sizes)
    if not len(some):
        return source[:0]
    firsts, stops = begins[some], begins[some] + sizes[some]
    low, high = int(firsts[0]), int(stops[-1])
    # Runs that hsparse wrote ascend. A mask is then the fastest way, unless most bytes lie between the runs.
    if high - low <= 4 * int(sizes.sum()) + FRAMES * len(some) and (firsts[1:] >= stops[:-1]).all():
        return source[low:high][runs_mask(firsts - low, sizes[some], high - low)]
    return np.frombuffer(b"".join(_pieces(source, firsts, sizes[some])), np.uint8)


def _merged(parts: Iterable[Element]) -> list[Element]:
    """Return the parts of a compound with adjacent fixed-size parts merged into one."""
    merged: list[Element] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Fixed) and isinstance(last, Fixed):
            merged[-1] = Fixed(np.dtype(f"V{last.file_size + part.file_size}"))
        else:
            merged.append(part)
    return merged


def _grouped(array: VlenArray, count: int) -> VlenArray:
    """Return an array in which every `count` adjacent elements are joined to one element."""
    return VlenArray((array.size // count,), array.offsets.reshape(-1)[::count], array.heap)
