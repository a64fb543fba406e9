"""JSON that is encoded in pieces, beside the same in one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.sn.http import response as json_pieces
from hsparse.sn.http.response import encode_json, encode_nulls, encode_pieces, items_of, respond_pieces


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "STREAMED_ITEMS", 4)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.sampled_from(["<i8", "<f8", "?"]),
    st.sampled_from([encode_json, encode_nulls]),
    st.booleans(),
)
def test_pieces_are_the_whole(shape: list[int], kind: str, encode: Any, finite: bool) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    if kind == "<f8" and not finite and values.size:
        values.flat[values.size // 2] = np.nan
    answer = {"status": 200, "value": values, "more": {"index": values, "none": {}}}
    pieces = list(encode_pieces(answer, encode))
    assert b"".join(pieces) == encode(answer)
    assert max(map(len, pieces)) < 60


def test_no_piece_is_large() -> None:
    for shape in [(1, 300), (300, 1), (300, 0), (3, 100), (1, 1, 60, 5)]:
        pieces = list(encode_pieces(np.zeros(shape, "u1")))
        assert max(map(len, pieces)) <= 16
        assert items_of(shape) >= 300


async def test_much_is_encoded_in_a_thread() -> None:
    threads = []

    def pieces() -> Iterator[bytes]:
        threads.append(threading.current_thread())
        yield b"[1]"

    for count in (1, 1 << 20):
        assert (await respond_pieces(count, {"value": pieces()})).body == b'{"value":[1]}'
    few, many = threads
    assert few is threading.main_thread()
    assert many is not threading.main_thread()
