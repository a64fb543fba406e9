"""Variable-length elements as sections: random types and values, the library's own bytes, and bytes that lie."""

from __future__ import annotations

import io
import struct
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.structured.vlen_sections import decode_elements, encode_elements
from hsparse.model.datatype import parse_type
from hsparse.model.vlen_array import VlenArray
from tests.model.type_strategies import ITEMS, length_prefixed, text, values_of

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
def test_references_that_lie(form: str, values: tuple[int, ...], reason: str) -> None:
    element = parse_type(TEXT).element
    _, heap = encode_elements(array_of(TEXT, ["abc"]), element)
    with pytest.raises(Corrupt, match=f"^Section 1 does not decode: .*{reason}"):
        decode_elements(struct.pack(form, *values), heap, element, NAMES)


@pytest.mark.parametrize("revision", FormatRevision)
def test_references_that_share_a_payload_are_not_copied_without_bound(revision: FormatRevision) -> None:
    element = parse_type(LISTS).element
    fixed, heap = encode_elements(array_of(LISTS, [[list(range(1000))] * 50]), element, revision)
    shared = bytes(fixed) * 1000
    with pytest.raises(Corrupt, match="lead to"):
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
