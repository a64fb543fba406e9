"""Raw codecs: every pair undoes itself on every kind of buffer, and never returns more than it may."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format import codec_library as raw_codec
from hsparse.format.buffer import Buffer

Encode = Callable[[Buffer], bytes]
Decode = Callable[[Buffer, int], bytes]

PAIRS: dict[str, tuple[Encode, Decode]] = {
    "deflate": (lambda data: raw_codec.deflate_encode(data, 6), raw_codec.deflate_decode),
    "lzf": (raw_codec.lzf_encode, raw_codec.lzf_decode),
    "zstd": (lambda data: raw_codec.zstd_encode(data, 3), raw_codec.zstd_decode),
    "lz4h5": (lambda data: raw_codec.lz4h5_encode(data, 16), raw_codec.lz4h5_decode),
    "blosc": (lambda data: raw_codec.blosc_encode(data, 5, 1, 1, 2), raw_codec.blosc_decode),
}
INTO: dict[str, tuple[Encode, Callable[[Buffer, memoryview], int]]] = {
    "lz4": (raw_codec.lz4_encode, raw_codec.lz4_decode_into),
    "zstd": (lambda data: raw_codec.zstd_encode(data, 3), raw_codec.zstd_decode_into),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@given(data=st.binary(min_size=1, max_size=500))
def test_decoding_undoes_encoding(name: str, kind: Callable[[bytes], Buffer], data: bytes) -> None:
    encode, decode = PAIRS[name]
    encoded = encode(kind(data))
    assert decode(kind(encoded), len(data)) == data


@pytest.mark.parametrize("name", PAIRS)
def test_too_little_room_is_an_error(name: str) -> None:
    encode, decode = PAIRS[name]
    with pytest.raises((RuntimeError, ValueError)):
        decode(encode(bytes(1000)), 999)


@pytest.mark.parametrize("name", INTO)
@given(data=st.binary(min_size=1, max_size=500))
def test_decoding_into_a_buffer_fills_its_start(name: str, data: bytes) -> None:
    encode, decode = INTO[name]
    out = bytearray(b"x" * (len(data) + 3))
    assert decode(encode(data), memoryview(out)[: len(data)]) == len(data)
    assert out == data + b"xxx"
    with pytest.raises((RuntimeError, ValueError)):
        decode(encode(data), memoryview(out)[: len(data) - 1])
