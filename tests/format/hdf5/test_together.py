"""Readers side by side ask for all they want in one step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hsparse.errors import Corrupt
from hsparse.format.hdf5.reads import ByteRange, Reads, run_reads
from hsparse.format.hdf5.together import together

FILE = bytes(range(100))


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
        return [FILE[address : address + size] for address, size in wanted]

    return run_reads(reads, fetch), asked


def test_each_finds_its_own() -> None:
    found, asked = run(together([follow(10, 3), follow(50, 0), follow(60, 1), follow(70, 2)]))
    assert found == [[10, 11, 12], [], [60], [70, 71]]
    assert asked == [3, 2, 1]


def test_none_at_all() -> None:
    assert run(together([])) == ([], [])


def test_an_error_of_one_ends_all() -> None:
    def broken() -> Reads[list[int]]:
        yield (ByteRange(0, 1),)
        raise Corrupt("It is broken.")

    with pytest.raises(Corrupt, match="broken"):
        run(together([follow(10, 3), broken()]))
