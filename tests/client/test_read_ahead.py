from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from hsparse.client.read_ahead import read_ahead


def test_items_come_in_order() -> None:
    assert list(read_ahead(range(100))) == list(range(100))
    assert list(read_ahead([])) == []


def test_one_item_is_made_ahead_and_no_more() -> None:
    begun: list[int] = []
    ahead = threading.Event()

    def items() -> Iterator[int]:
        for number in range(10):
            begun.append(number)
            if number == 1:
                ahead.set()
            yield number

    reader = read_ahead(items())
    assert next(reader) == 0
    ahead.wait()
    assert begun == [0, 1]
    reader.close()  # type: ignore[attr-defined]
    assert begun == [0, 1]


def test_an_error_is_raised_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("two")

    reader = read_ahead(items())
    assert next(reader) == 1
    with pytest.raises(ValueError, match="two"):
        next(reader)
