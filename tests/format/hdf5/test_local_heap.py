"""Names in local heaps."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.format.hdf5.local_heap import LocalHeap

NAMES = b"\0" * 8 + b"one\0" + "größe".encode() + b"\0end"


def heap() -> LocalHeap:
    return LocalHeap(NAMES, 96, len(NAMES))


def test_names() -> None:
    names = heap()
    assert [names.text(8), names.text(12), names.text(0)] == ["one", "größe", ""]


@pytest.mark.parametrize("offset", [len(NAMES) - 3, len(NAMES), 10**9])
def test_a_name_without_an_end(offset: int) -> None:
    with pytest.raises(Corrupt, match=f"heap at address 96 has no name at offset {offset}"):
        heap().text(offset)


def test_names_are_not_longer_together_than_the_heap() -> None:
    names = heap()
    with pytest.raises(Corrupt, match="no name at offset 8"):
        [names.text(8) for _ in range(7)]
