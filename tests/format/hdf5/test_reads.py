"""Readers ask for ranges and are sent bytes."""

from __future__ import annotations

from collections.abc import Sequence

from hsparse.format.hdf5.reads import ByteRange, Reads, run_reads

FILE = bytes(range(100))


def fetch(wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
    return [FILE[address : address + size] for address, size in wanted]


def first_byte(address: int) -> Reads[int]:
    (data,) = yield (ByteRange(address, 1),)
    return data[0]


def test_a_reader_is_sent_the_bytes_of_each_range_in_order() -> None:
    def two() -> Reads[bytes]:
        one, other = yield (ByteRange(10, 2), ByteRange(3, 1))
        return bytes(one) + bytes(other)

    assert run_reads(two(), fetch) == bytes([10, 11, 3])


def test_readers_call_each_other() -> None:
    def follow() -> Reads[int]:
        address = yield from first_byte(40)
        return (yield from first_byte(address + 1))

    assert run_reads(follow(), fetch) == 41


def test_a_reader_that_needs_nothing_is_not_sent_anything() -> None:
    def known(address: int) -> Reads[int]:
        if address > 50:
            return (yield from first_byte(address))
        return 0

    asked: list[tuple[ByteRange, ...]] = []

    def count(wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        asked.append(wanted)
        return fetch(wanted)

    assert run_reads(known(7), count) == 0
    assert not asked
    assert run_reads(known(60), count) == 60
    assert len(asked) == 1
