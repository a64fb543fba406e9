"""Structured chunks: sections, checksums and footer; heaps and elements of variable length; regions."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, TooLarge, Unsupported
from hsparse.format.codec_library import lookup3
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import undo_filters
from hsparse.format.selections.points import Points
from hsparse.format.structured.container import (
    MAX_FOOTER,
    METADATA_FIXED,
    METADATA_VL,
    build,
    footer_size,
    open_chunk,
    read_footer,
    seal,
    unseal,
)
from hsparse.format.structured.heap import FRAME, HEAD, MAX_SLOTS, SLOT_BYTES, HeapSet, PackedHeap
from hsparse.format.structured.region import (
    decode_region,
    decode_vlen_region,
    encode_region,
    encode_vlen_region,
)
from hsparse.format.structured.vlen_sections import decode_elements, encode_elements
from hsparse.model.datatype import parse_type
from hsparse.model.vlen_array import VlenArray
from tests.model.type_strategies import ITEMS, length_prefixed, text, values_of

DEFLATE = (Filter(2, (4,)), Filter(1, (4,)))
LZF = (Filter(32000, (4, 0x0105, 100)),)

contents = st.lists(st.binary(max_size=200), min_size=2, max_size=3)
pipelines = st.lists(st.sampled_from([(), DEFLATE, LZF, (Filter(3),)]), min_size=3, max_size=3)


@given(contents, pipelines)
def test_the_layout_is_the_specifications(sections: list[bytes], filters: list[tuple[Filter, ...]]) -> None:
    filters = filters[: len(sections)]
    chunk = build(sections, METADATA_VL, filters)
    end = 0
    for content, pipeline, section in zip(sections, filters, chunk.sections, strict=True):
        checked = content + struct.pack("<I", lookup3(content)) if content else b""
        assert section.offset == end
        assert section.unfiltered == len(checked)
        stored = chunk.data[section.offset : section.offset + section.size]
        assert bytes(undo_filters(pipeline, stored, section.mask, len(checked))) == checked
        end += section.size
    assert end == len(chunk.data)


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (0, {"offset": 1}, "Section 0"), (1, {"offset": 10}, "Section 1"), (1, {"offset": 8}, "Section 1"),
        (1, {"size": 3}, "Section 1"), (1, {"size": 5}, "Section 1"), (1, {"unfiltered": 3}, "Section 1"),
        (0, {"unfiltered": 1 << 40}, "Section 0"), (1, {"mask": 1}, "Section 1"),
    ],
    ids=str,
)  # fmt: skip
def test_metadata_that_does_not_fit_is_corrupt(number: int, change: dict[str, int], message: str) -> None:
    chunk = build([b"where", b"what"], METADATA_FIXED, [(), ()])
    sections = list(chunk.sections)
    sections[number] = replace(sections[number], **change)
    with pytest.raises(Corrupt, match=message):
        open_chunk(chunk.data, sections, METADATA_FIXED, [(), ()])


def test_a_mandatory_filter_that_fails_is_refused() -> None:
    with pytest.raises(BadRequest, match="bitshuffle"):
        build([b"where", b"what"], METADATA_FIXED, [(), (Filter(32008, (0, 4, 3), optional=False),)])


def test_its_bytes_are_as_documented() -> None:
    footer = seal(build([b"ab", b"c"], METADATA_FIXED, [(), ()]), 5)[7:]
    assert struct.unpack_from("<QQQI", footer, 0) == (0, 6, 6, 0)
    assert struct.unpack_from("<QQQI", footer, 32) == (6, 1, 1, 0)
    assert struct.unpack_from("<QHHI", footer, 64) == (5, 2, 0, len(footer))
    assert footer[80:88] == b"hsparse\1"
    assert struct.unpack_from("<I", footer, 88) == (lookup3(footer[:88]),)
    assert len(footer) == 92


def test_every_changed_byte_is_found_and_its_section_named() -> None:
    chunk = build([b"where", b"what"], METADATA_FIXED, [(), ()])
    data = seal(chunk, 4)
    for place in range(len(data)):
        name = "Section 0" if place < 9 else "Section 1" if place < 13 else "footer"
        for change in (1, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= change
            with pytest.raises(Corrupt, match=name):
                unseal(bytes(damaged))


def test_a_footer_of_another_object_is_corrupt() -> None:
    short = seal(build([b"where", b"what"], METADATA_FIXED, [(), ()]), 4)
    longer = seal(build([b"where", b"whatever"], METADATA_FIXED, [(), ()]), 4)
    with pytest.raises(Corrupt, match="Section 1"):
        read_footer(short[-footer_size(2) :], len(longer))
    with pytest.raises(Corrupt, match="Section 1"):
        unseal(longer[: -footer_size(2)] + short[-footer_size(2) :])


def resealed(footer: bytearray) -> bytes:
    return bytes(footer[:-4]) + struct.pack("<I", lookup3(footer[:-4]))


def test_a_newer_version_is_told_apart_from_damage() -> None:
    footer = bytearray(seal(build([b""], (), [()]), 0))
    footer[-5] = 3
    with pytest.raises(Unsupported, match="version 3"):
        read_footer(resealed(footer), len(footer))


def test_a_footer_without_room_for_a_section_is_corrupt() -> None:
    footer = struct.pack("<I7sB", 16, b"hsparse", 1)
    with pytest.raises(Corrupt, match="too few"):
        read_footer(footer + struct.pack("<I", lookup3(footer)), 16)


@pytest.mark.parametrize("columns", [1, 4])
def test_statistics_stand_before_the_number_of_elements(columns: int) -> None:
    words = bytes(range(40)) * columns
    chunk = build([b"where", b"what"], METADATA_FIXED, [(), ()])
    data = seal(chunk, 4, words)
    footer = read_footer(data[-MAX_FOOTER:], len(data))
    assert (footer.statistics, footer.defined) == (words, 4)
    assert len(data) == len(chunk.data) + footer_size(2, columns) <= len(chunk.data) + MAX_FOOTER
    assert data[: len(chunk.data)] == chunk.data
    for version, count in [(1, columns), (2, columns + 1), (2, 0)]:
        damaged = bytearray(data[-footer_size(2, columns) :])
        damaged[-5] = version
        struct.pack_into("<H", damaged, len(damaged) - 18, count)
        with pytest.raises(Corrupt, match="do not describe"):
            read_footer(resealed(damaged), len(data))


EXTENT = (70000, 9)
points = st.lists(st.tuples(*(st.integers(0, length - 1) for length in EXTENT)), max_size=20)


@given(points)
def test_what_is_written_is_read(found: list[tuple[int, int]]) -> None:
    coords = np.array(found, np.uint64).reshape(-1, 2)
    values = np.arange(len(coords), dtype=">i4") - 3
    selection, read = decode_region(encode_region(Points(EXTENT, coords), values), values.dtype)
    assert np.array_equal(selection.coords(), coords)
    assert np.array_equal(read, values)
    assert selection.extent == EXTENT


def test_a_changed_byte_of_the_selection_is_found() -> None:
    coords = np.array([[3, 4], [60000, 8]], np.uint64)
    whole = encode_region(Points(EXTENT, coords), np.array([1, 2], "u1"))
    assert decode_region(whole, np.dtype("u1"))[1].tolist() == [1, 2]
    for place in range(len(whole) - 2):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        with pytest.raises(Corrupt):
            decode_region(damaged, np.dtype("u1"))


@pytest.mark.parametrize("change", [-1, 1])
def test_too_few_or_too_many_values_are_found(change: int) -> None:
    whole = encode_region(Points(EXTENT, np.zeros((3, 2), np.uint64)), np.arange(3, dtype="u4"))
    data = whole[:change] if change < 0 else whole + b"x"
    with pytest.raises(Corrupt, match="3 elements of 4 bytes"):
        decode_region(data, np.dtype("u4"))


@pytest.mark.parametrize("values", [np.zeros(2), np.zeros((3, 1)), np.zeros(())])
def test_values_must_be_one_a_point(values: np.ndarray) -> None:
    with pytest.raises(BadRequest, match="3 elements"):
        encode_region(Points(EXTENT, np.zeros((3, 2), np.uint64)), values)


WORDS = parse_type(text("H5T_VARIABLE")).element


def words(*found: str) -> VlenArray:
    return VlenArray.of([length_prefixed(text("H5T_VARIABLE"), word) for word in found])


@given(points, st.data())
def test_elements_of_variable_length(found: list[tuple[int, int]], data: st.DataObject) -> None:
    item = data.draw(ITEMS.filter(lambda item: parse_type(item).is_vlen))
    element = parse_type(item).element
    values = [length_prefixed(item, data.draw(values_of(item))) for _ in found]
    coords = np.array(found, np.uint64).reshape(-1, 2)
    whole = encode_vlen_region(Points(EXTENT, coords), VlenArray.of(values), element)
    selection, read = decode_vlen_region(whole, element)
    assert np.array_equal(selection.coords(), coords)
    assert list(read) == values


def test_a_changed_byte_of_any_section_is_found() -> None:
    coords = np.array([[3, 4], [60000, 8]], np.uint64)
    whole = encode_vlen_region(Points(EXTENT, coords), words("one", ""), WORDS)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        with pytest.raises(Corrupt):
            decode_vlen_region(damaged, WORDS)
    for length in range(len(whole)):
        with pytest.raises(Corrupt):
            decode_vlen_region(whole[:length], WORDS)


def test_elements_of_variable_length_must_be_one_a_point() -> None:
    with pytest.raises(BadRequest, match="3 elements"):
        encode_vlen_region(Points(EXTENT, np.zeros((3, 2), np.uint64)), words("a", "b"), WORDS)


def test_more_references_than_a_heap_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.format.structured.vlen_sections.MAX_REFERENCES", 2)
    with pytest.raises(TooLarge, match="select less"):
        encode_vlen_region(Points(EXTENT, np.zeros((3, 2), np.uint64)), words("a", "b", "c"), WORDS)


SMALLEST = 4096
"""libhdf5 takes no shorter collection from a file."""


def drafted(payloads: list[bytes]) -> tuple[bytes, np.ndarray]:
    """Return a heap with the payloads, and the references to them."""
    sizes = np.array([len(payload) for payload in payloads], np.int64)
    draft = HeapSet().draft(sizes, sizes)
    image = draft.image.tobytes()
    for begin, payload in zip(draft.begins.tolist(), payloads, strict=True):
        image = image[:begin] + payload + image[begin + len(payload) :]
    return image, draft.references


def collections(image: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("<I", image, 8)
    entries = struct.iter_unpack("<QQ", image[HEAD.size : HEAD.size + FRAME * count])
    return [image[begin : begin + length] for begin, length in entries]


def grown(collection: bytes) -> bytes:
    """Return a collection with free space at its end, as long as libhdf5 wants one."""
    rest = SMALLEST - len(collection)
    collection = collection[:8] + struct.pack("<Q", SMALLEST) + collection[16:]
    return collection + struct.pack("<HHIQ", 0, 0, 0, rest) + bytes(rest - FRAME)


def test_libhdf5_reads_the_collections() -> None:
    """A file's strings are made to lead to a collection of ours, put at its end."""
    words = [b"one", b"", b"three" * 30, b"last"]
    image, _ = drafted(words)
    (collection,) = collections(image)
    file = io.BytesIO()
    with h5py.File(file, "w") as made:
        dataset = made.create_dataset(
            "words", data=np.array([b"?"] * 4, object), dtype=h5py.string_dtype("ascii")
        )
        place = dataset.id.get_offset()
    data = bytearray(file.getvalue())
    address = len(data)
    for number, word in enumerate(words):
        struct.pack_into("<IQI", data, place + 16 * number, len(word), address, number + 1)
    struct.pack_into("<Q", data, 40, address + SMALLEST)  # the superblock's end of file
    with h5py.File(io.BytesIO(bytes(data) + grown(collection)), "r") as made:
        assert made["words"][...].tolist() == words
    opened = HeapSet().open(HEAD.pack(b"HGLS", 1, 1) + struct.pack("<QQ", 28, SMALLEST) + grown(collection))
    assert opened.sizes.tolist() == [len(word) for word in words]


def test_a_slot_that_is_not_used_is_passed_over() -> None:
    image, references = drafted([b"abc"])
    (collection,) = collections(image)
    moved = HEAD.pack(b"HGLS", 1, 2) + struct.pack("<QQQQ", 0, 0, 44, len(collection)) + collection
    references = references.copy()
    references[:, 4] = 1
    begins, sizes = HeapSet().open(moved).find(references, 1)
    assert moved[begins[0] :][: sizes[0]] == b"abc"


def test_more_collections_than_slots() -> None:
    sizes = np.full(MAX_SLOTS + 1, SLOT_BYTES, np.int64)
    with pytest.raises(TooLarge, match="65537 collections"):
        HeapSet().draft(sizes, sizes)


def test_more_objects_than_indexes() -> None:
    count = 70_000
    collection = struct.pack("<4sIQ", b"GCOL", 1, 16 + 16 * count) + struct.pack("<HHIQ", 1, 0, 0, 0) * count
    image = HEAD.pack(b"HGLS", 1, 1) + struct.pack("<QQ", 28, len(collection)) + collection
    with pytest.raises(Corrupt, match="65535 objects"):
        HeapSet().open(image)


def changed(place: int, value: bytes) -> bytes:
    image, _ = drafted([b"abc", b"defgh"])
    return image[:place] + value + image[place + len(value) :]


DAMAGED = [
    (b"HGLS\1\0\0\0", "too few"),
    (changed(0, b"HGLT"), "begins with"),
    (changed(4, b"\2"), "version 2"),
    (changed(8, b"\xff\xff\0\0"), "65535 slots"),
    (changed(12, b"\0"), "slot 0 is not inside"),
    (changed(20, b"\xff"), "slot 0 is not inside"),
    (changed(28, b"GCOM"), "no global heap collection"),
    (changed(36, b"\0"), "no global heap collection"),
    (changed(52, b"\xff\xff"), "reaches beyond"),
    (changed(52, b"\xff" * 8), "reaches beyond"),
    (changed(44, b"\2"), "the same index"),
    (changed(44, b"\0"), "behind the free space"),
    (changed(68, b"\0"), "does not end"),
]


@pytest.mark.parametrize(("image", "reason"), DAMAGED, ids=range(len(DAMAGED)))
def test_framing_that_does_not_hold_together(image: bytes, reason: str) -> None:
    with pytest.raises(Corrupt, match=reason):
        HeapSet().open(image)


def test_more_bytes_than_offsets_tell() -> None:
    sizes = np.array([2**32 - 4], np.int64)
    with pytest.raises(TooLarge, match="offsets have only 4"):
        PackedHeap(4).draft(sizes, sizes)


@pytest.mark.parametrize("data", [b"\1", b"\0\0\0", b"\1\0\0\0", b"\2\0\0\0a", b"\xff" * 10])
def test_more_unused_bytes_than_there_are(data: bytes) -> None:
    with pytest.raises(Corrupt, match="unused"):
        PackedHeap(8).open(data)


@pytest.mark.parametrize(
    ("begin", "size", "reason"),
    [
        (0, 1, "leads out"),
        (3, 2, "leads out"),
        (4, 9, "leads out"),
        (13, 1, "leads out"),
        (2**64 - 1, 2, "leads out"),
        (4, 2**64 - 1, "leads out"),
        (4, 3, "a fraction of an element of 2"),
    ],
)
def test_references_that_lie(begin: int, size: int, reason: str) -> None:
    references = np.array([[begin, size]], "<u8").view(np.uint8).reshape(1, 16)
    with pytest.raises(Corrupt, match=reason):
        PackedHeap(8).open(bytes(12)).find(references, 2)


def test_bytes_beside_a_pair_must_be_zero() -> None:
    references = np.array([[4, 2, 0, 1]], "<u4").view(np.uint8).reshape(1, 16)
    with pytest.raises(Corrupt, match="reserved bytes are not zero"):
        PackedHeap(4).open(bytes(12)).find(references, 1)


NAMES = ("Section 1", "Section 2")
TEXT = text("H5T_VARIABLE")
INTS = {"class": "H5T_VLEN", "base": "H5T_STD_U16BE"}
LISTS = {"class": "H5T_VLEN", "base": INTS}
PAIR = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "n", "type": "H5T_STD_I8LE"},
        {"name": "m", "type": "H5T_STD_I8LE"},
        {"name": "t", "type": TEXT},
        {"name": "a", "type": {"class": "H5T_ARRAY", "base": LISTS, "dims": [2]}},
    ],
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    item = draw(ITEMS.filter(lambda item: parse_type(item).is_vlen))
    return item, draw(st.lists(values_of(item), max_size=6))


def array_of(item: Any, values: list[Any]) -> VlenArray:
    return VlenArray.of([length_prefixed(item, value) for value in values])


def recoded(item: Any, array: VlenArray, revision: FormatRevision) -> VlenArray:
    element = parse_type(item).element
    fixed, heap = encode_elements(array, element, revision)
    assert len(fixed) == array.size * element.file_size
    return decode_elements(fixed, heap, element, NAMES, revision)


@pytest.mark.endurance
@pytest.mark.parametrize("revision", FormatRevision)
@given(drawn=columns())
def test_what_is_encoded_is_decoded(revision: FormatRevision, drawn: tuple[Any, list[Any]]) -> None:
    item, values = drawn
    array = array_of(item, values)
    again = recoded(item, array, revision)
    assert list(again) == list(array)
    assert again.shape == (len(values),)


@pytest.mark.parametrize("revision", FormatRevision)
def test_arrays_longer_than_the_column(revision: FormatRevision) -> None:
    item = {"class": "H5T_ARRAY", "base": TEXT, "dims": [5, 4]}
    array = array_of(item, [[["a" * (n + m) for m in range(4)] for n in range(5)]] * 3)
    assert list(recoded(item, array, revision)) == list(array)


def test_the_bytes_of_strings() -> None:
    """An empty string has an object of its own; a reference tells the length, the slot and the index."""
    fixed, heap = encode_elements(array_of(TEXT, ["fghij", ""]), parse_type(TEXT).element)
    assert bytes(fixed) == struct.pack("<IHH8xIHH8x", 5, 0, 1, 0, 0, 2)
    assert bytes(heap) == struct.pack(
        "<4sB3xIQQ4sB3xQHHIQ8sHHIQ",
        *(b"HGLS", 1, 1, 28, 56, b"GCOL", 1, 56),
        *(1, 0, 0, 5, b"fghij\0\0\0", 2, 0, 0, 0),
    )


def test_the_bytes_of_sequences_of_sequences() -> None:
    """What a payload refers to comes before it; an empty sequence is null and has no object."""
    fixed, heap = encode_elements(array_of(LISTS, [[], [[1, 2], []]]), parse_type(LISTS).element)
    assert bytes(fixed) == struct.pack("<16xIHH8x", 2, 0, 2)
    assert bytes(heap)[44:] == struct.pack(
        "<HHIQ4s4xHHIQIHH8x16x", 1, 0, 0, 4, b"\0\1\0\2", 2, 0, 0, 32, 2, 0, 1
    )


@pytest.mark.parametrize(
    ("item", "dtype", "values"),
    [
        (TEXT, h5py.string_dtype(), ["", "a", ""]),
        (INTS, h5py.vlen_dtype(np.dtype(">u2")), [[], [7], []]),
    ],
    ids=["strings", "sequences"],
)
def test_what_is_null_is_libhdf5s_choice(item: Any, dtype: Any, values: list[Any]) -> None:
    """Its references to a heap of the file are of the same size, count first, and zero where they are null."""
    column = np.empty(3, object)
    column[:] = [np.array(value, ">u2") if isinstance(value, list) else value for value in values]
    file = io.BytesIO()
    with h5py.File(file, "w") as made:
        dataset = made.create_dataset("d", (3,), dtype)
        dataset[...] = column
        place = dataset.id.get_offset()
    theirs = [file.getvalue()[place + 16 * row : place + 16 * row + 16] for row in range(3)]
    fixed, _ = encode_elements(array_of(item, values), parse_type(item).element)
    ours = [bytes(fixed[16 * row : 16 * row + 16]) for row in range(3)]
    assert [any(one) for one in ours] == [any(one) for one in theirs]
    assert [one[:4] for one in ours] == [one[:4] for one in theirs]


def test_nothing_but_empty_sequences_have_no_heap() -> None:
    for revision in FormatRevision:
        fixed, heap = encode_elements(array_of(INTS, [[], []]), parse_type(INTS).element, revision)
        assert (bytes(fixed), bytes(heap)) == (bytes(32), b"")
        assert list(decode_elements(fixed, heap, parse_type(INTS).element, NAMES, revision)) == [bytes(4)] * 2


@pytest.mark.parametrize(
    ("revision", "fixed"),
    [
        (FormatRevision.RFC_2023_07, struct.pack("<II8xII8x", 4, 3, 7, 2)),
        (FormatRevision.RFC_2025_10, struct.pack("<QQQQ", 4, 3, 7, 2)),
    ],
)
def test_the_bytes_of_the_older_form(revision: FormatRevision, fixed: bytes) -> None:
    """The number of unused bytes, then the payloads; a reference is their offset and length."""
    array = array_of(TEXT, ["abc", "de"])
    sections = encode_elements(array, parse_type(TEXT).element, revision)
    assert tuple(map(bytes, sections)) == (fixed, b"\0\0\0\0abcde")
    unused = b"\2\0\0\0abcdeXY"
    assert list(decode_elements(fixed, unused, parse_type(TEXT).element, NAMES, revision)) == list(array)


def test_large_payloads_have_collections_of_their_own() -> None:
    sizes = [10, 600_000, 100, 300_000, 300_000, 524_272, 0]
    values = ["x" * size for size in sizes]
    array = array_of(TEXT, values)
    fixed, heap = encode_elements(array, parse_type(TEXT).element)
    references = [row[1:3] for row in struct.iter_unpack("<IHH8x", fixed)]
    assert references == [(0, 1), (1, 1), (2, 1), (2, 2), (3, 1), (4, 1), (5, 1)]
    lengths = struct.unpack_from("<12Q", heap, 12)[1::2]
    assert all(length <= 512 * 1024 for slot, length in enumerate(lengths) if slot not in (1, 4))
    assert list(decode_elements(fixed, heap, parse_type(TEXT).element, NAMES)) == list(array)


def test_many_small_payloads() -> None:
    values = [str(number) for number in range(100_000)]
    array = array_of(TEXT, values)
    again = recoded(TEXT, array, FormatRevision.LIB_2026_09)
    np.testing.assert_array_equal(again.heap, array.heap)
    np.testing.assert_array_equal(again.offsets, array.offsets)


PAIRS = [[1, 2, "text", [[[1, 2], [], [3]], [[]]]], [3, 4, "", [[], [[5]]]], [5, 6, "more", [[[6]], [[7]]]]]


@pytest.mark.endurance
@pytest.mark.parametrize("revision", FormatRevision)
@given(data=st.data())
def test_changed_bytes_are_corrupt_or_other_values(revision: FormatRevision, data: st.DataObject) -> None:
    """Never another error, and never more than the sections can hold."""
    element = parse_type(PAIR).element
    sections = [bytearray(part) for part in encode_elements(array_of(PAIR, PAIRS), element, revision)]
    for _ in range(data.draw(st.integers(1, 3))):
        section = data.draw(st.sampled_from(sections))
        place = data.draw(st.integers(0, len(section) - 1))
        change = data.draw(st.sampled_from(["flip", "cut", "double", "number"]))
        if change == "flip":
            section[place] ^= 1 << data.draw(st.integers(0, 7))
        elif change == "number":
            section[place : place + 4] = data.draw(st.sampled_from([b"\xff" * 4, b"\0" * 4, b"\x10\0\0\0"]))
        elif change == "cut" and place:
            del section[place:]
        else:
            section += bytes(section)
    outcome = told(bytes(sections[0]), bytes(sections[1]), revision)
    most = 4 * (len(sections[0]) + len(sections[1])) + 8
    assert outcome.startswith(NAMES) or int(outcome) <= most, outcome


def told(elements: bytes, heap: bytes, revision: FormatRevision) -> str:
    """Return the error's message, or how many bytes the elements take."""
    try:
        return str(decode_elements(elements, heap, parse_type(PAIR).element, NAMES, revision).nbytes)
    except Corrupt as error:
        return error.message


LIES = [
    ("<IHH8x", (3, 0, 2), "object 2 of slot 0"),
    ("<IHH8x", (3, 1, 1), "object 1 of slot 1"),
    ("<IHH8x", (4, 0, 1), "leads to 3 bytes"),
    ("<IHH8x", (3, 0, 0), "not valid"),
    ("<IHHQ", (3, 0, 1, 1), "not valid"),
]


@pytest.mark.parametrize(("form", "values", "reason"), LIES)
def test_references_of_elements_that_lie(form: str, values: tuple[int, ...], reason: str) -> None:
    element = parse_type(TEXT).element
    _, heap = encode_elements(array_of(TEXT, ["abc"]), element)
    with pytest.raises(Corrupt, match=f"^Section 1 does not decode: .*{reason}"):
        decode_elements(struct.pack(form, *values), heap, element, NAMES)


@pytest.mark.parametrize("revision", FormatRevision)
def test_references_that_share_a_payload_are_not_copied_without_bound(revision: FormatRevision) -> None:
    element = parse_type(LISTS).element
    fixed, heap = encode_elements(array_of(LISTS, [[list(range(1000))] * 50]), element, revision)
    shared = bytes(fixed) * 1000
    with pytest.raises(Corrupt, match="references read"):
        decode_elements(shared, heap, element, NAMES, revision)


def test_free_space_at_the_end_of_a_collection() -> None:
    """libhdf5's collections end with an object of index 0, or with less than the head of one."""
    element = parse_type(TEXT).element
    fixed, heap = encode_elements(array_of(TEXT, ["abc"]), element)
    for rest in (struct.pack("<HHIQ", 0, 0, 0, 40) + bytes(24), bytes(8)):
        grown = bytearray(heap) + rest
        struct.pack_into("<Q", grown, 20, 40 + len(rest))
        struct.pack_into("<Q", grown, 28 + 8, 40 + len(rest))
        assert list(decode_elements(fixed, bytes(grown), element, NAMES)) == [b"\3\0\0\0abc"]
    grown[68] = 1  # an index, but no object behind it: not looked at
    assert list(decode_elements(fixed, bytes(grown), element, NAMES)) == [b"\3\0\0\0abc"]


def test_more_references_than_a_chunk_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those inside sequences count too, and bound the memory that either way takes."""
    sections = {}
    for size in (8, 9):
        array = array_of(LISTS, [[[1]] * size])
        sections[size] = encode_elements(array, parse_type(LISTS).element)
    monkeypatch.setattr("hsparse.format.structured.vlen_sections.MAX_REFERENCES", 9)
    for item, values in ((LISTS, [[[1]] * 9]), (TEXT, ["a"] * 10), (LISTS, [[]] * 10)):
        with pytest.raises(TooLarge, match="limit is 9"):
            encode_elements(array_of(item, values), parse_type(item).element)
    encode_elements(array_of(LISTS, [[[1]] * 8]), parse_type(LISTS).element)
    decode_elements(*sections[8], parse_type(LISTS).element, NAMES)
    with pytest.raises(Corrupt, match="Section 2 has more than 9 references"):
        decode_elements(*sections[9], parse_type(LISTS).element, NAMES)
