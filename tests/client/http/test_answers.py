"""Bytes of answers are received where they stay, whatever pieces they come in."""

from __future__ import annotations

import io
from http.client import HTTPResponse, IncompleteRead
from typing import Any, cast

import numpy as np
import pytest

from hsparse.client.http.answers import ALIGNED, RECEIVED, SHARED, receive, taking

SHORT, LONG = 100, RECEIVED.start + 1


class InPieces(io.BytesIO):
    """An answer of which each call receives a part."""

    def readinto(self, data: Any) -> int:
        return super().readinto(memoryview(data)[:1000])


def answer(data: bytes) -> HTTPResponse:
    return cast(HTTPResponse, InPieces(data))


def test_pieces_of_any_length_are_taken_in_order() -> None:
    sizes = [4, LONG, SHORT, LONG, LONG, 0, SHARED + 1, LONG]
    data = bytes(number % 251 for number in range(sum(sizes[:-2]))) + bytes(sizes[-2] + sizes[-1])
    take = taking(answer(data))
    taken = [bytes(take(size)) for size in sizes]
    assert [len(piece) for piece in taken] == sizes
    assert b"".join(taken) == data
    assert take(SHORT) == b""


def test_long_pieces_begin_where_numbers_are_aligned() -> None:
    take = taking(answer(bytes(4 * LONG)))
    _, second, third = (np.frombuffer(take(LONG), np.uint8) for _ in range(3))
    assert third.ctypes.data - second.ctypes.data == -(-LONG // ALIGNED) * ALIGNED > LONG


def test_an_answer_that_ends_before_is_told() -> None:
    with pytest.raises(IncompleteRead) as caught:
        receive(answer(b"abc"), memoryview(bytearray(5)))
    assert (caught.value.partial, caught.value.expected) == (b"abc", 2)
    with pytest.raises(IncompleteRead):
        taking(answer(b"abc"))(LONG)
