"""Heaps of structured chunks: collections of libhdf5's, and packed ones."""

from __future__ import annotations

import io
import struct

import h5py
import numpy as np
import pytest

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.structured.heap import FRAME, HEAD, MAX_SLOTS, SLOT_BYTES, HeapSet, PackedHeap

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
    with pytest.raises(TooLarge, match="offsets have 4"):
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
