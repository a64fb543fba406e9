"""Readers ask for ranges and are sent bytes; concurrent readers ask in one step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hsparse.errors import Corrupt
from hsparse.hdf5.format.file_fields import ByteRange, Reads, concurrently, run_reads

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


BYTES = bytes(range(100))


def follow(address: int, steps: int) -> Reads[list[int]]:
    found = []
    for _ in range(steps):
        (data,) = yield (ByteRange(address, 1),)
        address = data[0] + 1
        found.append(data[0])
    return found


def run(reads: Reads[list[list[int]]]) -> tuple[list[list[int]], list[int]]:
    asked = []

    def fetch(wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        asked.append(len(wanted))
        return [BYTES[address : address + size] for address, size in wanted]

    return run_reads(reads, fetch), asked


def test_each_finds_its_own() -> None:
    found, asked = run(concurrently([follow(10, 3), follow(50, 0), follow(60, 1), follow(70, 2)]))
    assert found == [[10, 11, 12], [], [60], [70, 71]]
    assert asked == [3, 2, 1]


def test_none_at_all() -> None:
    assert run(concurrently([])) == ([], [])


def test_an_error_of_one_ends_all() -> None:
    def broken() -> Reads[list[int]]:
        yield (ByteRange(0, 1),)
        raise Corrupt("It is broken.")

    with pytest.raises(Corrupt, match="broken"):
        run(concurrently([follow(10, 3), broken()]))
