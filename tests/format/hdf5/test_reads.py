"""Readers ask for ranges and are sent bytes; concurrent readers ask in one step."""

from __future__ import annotations

from collections.abc import Sequence

from hsparse.hdf5.format.file_fields import ByteRange, Reads, run_reads

FILE = bytes(range(100))


def fetch(wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
    return [FILE[address : address + size] for address, size in wanted]


def test_a_reader_is_sent_the_bytes_of_each_range_in_order() -> None:
    def two() -> Reads[bytes]:
        one, other = yield (ByteRange(10, 2), ByteRange(3, 1))
        return bytes(one) + bytes(other)

    assert run_reads(two(), fetch) == bytes([10, 11, 3])
