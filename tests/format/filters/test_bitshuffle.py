"""The bitshuffle filter: its framing, byte for byte, and parameters and headers that are not valid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.filters.bitshuffle import decode_bitshuffle, encode_bitshuffle


def transpose(data: bytes, itemsize: int) -> bytes:
    """Transpose the bits of a multiple of 8 elements, the slow way."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(-1, itemsize), axis=1, bitorder="little")
    return np.packbits(bits.T.reshape(-1), bitorder="little").tobytes()


def shuffle(data: bytes, itemsize: int, block: int) -> bytes:
    grouped = len(data) // itemsize // 8 * 8 * itemsize
    step = block * itemsize
    parts = [transpose(data[at : min(at + step, grouped)], itemsize) for at in range(0, grouped, step)]
    return b"".join((*parts, data[grouped:]))


@given(st.data(), st.integers(1, 9), st.sampled_from([8, 16, 128]))
def test_bits_are_transposed_by_blocks_and_the_rest_stays(
    data: st.DataObject, itemsize: int, block: int
) -> None:
    count = data.draw(st.integers(0, 300))
    content = np.random.default_rng(count).bytes(count * itemsize)
    values = (0, 4, itemsize, block)
    output = bytes(encode_bitshuffle(values, content))
    assert output == shuffle(content, itemsize, block)
    assert bytes(decode_bitshuffle(values, output, len(content))) == content


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((0, 4), "element size"),
        ((0, 4, 0), "element size"),
        ((0, 4, 4, 12), "multiple"),
        ((0, 4, 4, 8, 1), "1"),
    ],
)
def test_parameters_that_are_not_valid_are_refused(values: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_bitshuffle(values, bytes(64))


def test_more_bytes_than_there_should_be_are_refused() -> None:
    output = bytes(encode_bitshuffle((0, 4, 4, 0, 2), bytes(4000)))
    with pytest.raises(ValueError, match="after the last block"):
        decode_bitshuffle((0, 4, 4, 0, 2), output + b"\0", 4000)
