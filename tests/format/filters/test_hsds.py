"""What dense chunks are stored through so that HSDS can undo it, and chunks that HSDS compressed."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.format import codec_library as raw_codec
from hsparse.format.codec_library import blosc_encode
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import decode_hsds_frame, parse_hsds_filters
from hsparse.format.kinds.dense import decode_dense, encode_dense
from hsparse.format.kinds.vlen_chunk import decode_bare_vlen, encode_bare_vlen
from hsparse.model.element import element_of
from hsparse.model.vlen_array import VlenArray

SHUFFLE, CHECKSUM = Filter(2, (4,)), Filter(3, (), optional=False)
COMPRESSING = ("gzip", "lzf", "blosclz", "lz4", "lz4hc", "zstd")
NAMES = [
    "none",
    "gzip",
    "shuffle",
    "fletcher32",
    "nbit",
    "scaleoffset",
    "lzf",
    "blosclz",
    "lz4",
    "lz4hc",
    "bitshuffle",
    "zstd",
]


def blosc(compressor: int, shuffle: int, level: int = 5) -> Filter:
    return Filter(32001, (2, 2, 4, 4000, level, shuffle, compressor))


@pytest.mark.parametrize(
    ("items", "stored"),
    [
        ([], ()),
        (["gzip"], (Filter(1, (4,)),)),
        (["gzip", "shuffle"], (SHUFFLE, Filter(1, (4,)))),
        (["fletcher32", "shuffle", "gzip"], (SHUFFLE, Filter(1, (4,)), CHECKSUM)),
        (["gzip", "lz4"], (Filter(1, (4,)),)),
        (["lz4"], (blosc(1, 0),)),
        (["shuffle", "lz4hc"], (blosc(2, 1),)),
        (["shuffle", "lzf", "fletcher32"], (blosc(0, 1), CHECKSUM)),
        (["blosclz"], (blosc(0, 1),)),
        (["bitshuffle", "blosclz"], (blosc(0, 2),)),
        (["bitshuffle", {"class": "H5Z_FILTER_DEFLATE", "level": 7}], (blosc(4, 2, 7),)),
        (["zstd"], (blosc(5, 0, 2),)),
        ([{"id": 32015, "level": 0}], (blosc(5, 0, 2),)),
        ([{"id": 32015, "level": 1}], (blosc(5, 0, 1),)),
        ([{"id": 32015, "level": 22}], (blosc(5, 0, 9),)),
        (["shuffle"], (SHUFFLE,)),
        (["bitshuffle", "fletcher32"], ()),
        (["nbit", "gzip"], (Filter(1, (4,)),)),
        (["scaleoffset", "gzip"], ()),
        ([{"class": "H5Z_FILTER_SCALEOFFSET", "id": 6, "scaleOffset": 2}, "shuffle", "gzip"], (SHUFFLE,)),
        (["gzip", 6], (Filter(1, (4,)),)),
    ],
    ids=str,
)
def test_stored_pipelines(items: list[Any], stored: tuple[Filter, ...]) -> None:
    found = parse_hsds_filters(items, 4, 4000)
    assert [(filter.id, filter.values) for filter in found] == [
        (filter.id, filter.values) for filter in stored
    ]


def test_bitshuffle_that_compresses_stays() -> None:
    items = [{"class": "H5Z_FILTER_USER", "id": 32008, "parameters": [0, 2]}, "fletcher32"]
    assert [filter.id for filter in parse_hsds_filters(items, 4, 4000)] == [32008, 3]


@pytest.mark.parametrize(
    "items", [["szip"], ["nbit", "snappy"], [{"class": []}], [{"id": "x"}], "gzip"], ids=str
)
def test_what_is_refused(items: Any) -> None:
    with pytest.raises((BadRequest, Unsupported)):
        parse_hsds_filters(items, 4, 4000)


@given(st.lists(st.sampled_from(NAMES), max_size=5), st.integers(1, 300), st.integers(0, 500))
def test_chunks_come_back(names: list[str], size: int, count: int) -> None:
    try:
        pipeline = parse_hsds_filters(names, size, size * count)
    except BadRequest:
        assert "bitshuffle" in names
        return
    array = np.frombuffer(np.arange(size * count, dtype="<u4").astype("u1").tobytes(), f"V{size}")
    found = decode_dense(encode_dense(array, pipeline), (count,), array.dtype, pipeline)
    assert found.tobytes() == array.tobytes()


def undone_by_hsds(names: list[str], data: bytes, size: int) -> bytes:
    """Return what HSDS 1.0.2 makes of a chunk object: the frame's content, or zlib's, then unshuffled."""
    shuffled = "shuffle" in names
    compressor = next((name for name in names if name in COMPRESSING or name == "scaleoffset"), "scaleoffset")
    if compressor != "scaleoffset":
        if data[:1] == b"\x02":
            data, shuffled = raw_codec.blosc_decode(data, struct.unpack_from("<I", data, 4)[0]), False
        else:
            assert compressor == "gzip"
            data = zlib.decompress(data)
    if shuffled:
        data = np.frombuffer(data, np.uint8).reshape(size, -1).T.tobytes()
    return data


@given(st.lists(st.sampled_from(NAMES), max_size=5), st.integers(1, 300), st.integers(1, 500))
def test_hsds_can_undo_what_is_stored(names: list[str], size: int, count: int) -> None:
    try:
        pipeline = parse_hsds_filters(names, size, size * count)
    except BadRequest:
        return
    data = np.arange(size * count, dtype="<u4").astype("u1").tobytes()
    array = np.frombuffer(data, f"V{size}")
    assert undone_by_hsds(names, bytes(encode_dense(array, pipeline)), size) == data


@pytest.mark.parametrize("compressor", range(6))
@pytest.mark.parametrize("name", ["gzip", "lzf", "blosclz", "lz4", "lz4hc", "zstd"])
def test_frames_of_hsds_are_read_whatever_the_filters_say(compressor: int, name: str) -> None:
    array = np.arange(1000, dtype="<i4")
    data = blosc_encode(array.tobytes(), 5, 1, compressor, 1)
    for items in ([name], ["shuffle", name], ["shuffle", name, "fletcher32"], ["bitshuffle", name]):
        pipeline = parse_hsds_filters(items, 4, 4000)
        np.testing.assert_array_equal(decode_dense(data, (1000,), array.dtype, pipeline), array)


SHUFFLE_OF_8, DEFLATE, LZ4, ZSTD = Filter(2, (8,)), Filter(1, (4,)), Filter(32004, (0,)), Filter(32015, (3,))
BLOSC = Filter(32001, (2, 2, 8, 1000, 5, 1, 1))
TEXT = element_of({"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"})


@pytest.mark.parametrize(("compressor", "filter"), [(4, DEFLATE), (1, LZ4), (5, ZSTD)])
@pytest.mark.parametrize("shuffled", [0, 1])
def test_numbers(compressor: int, filter: Filter, shuffled: int) -> None:
    array = np.arange(600.0).reshape(20, 30)
    data = blosc_encode(array.tobytes(), 5, shuffled, compressor, 8)
    pipeline = (SHUFFLE_OF_8, filter) if shuffled else (filter,)
    np.testing.assert_array_equal(decode_dense(data, (20, 30), array.dtype, pipeline), array)
    own = encode_dense(array, pipeline)
    assert decode_hsds_frame(own, pipeline) is None
    np.testing.assert_array_equal(decode_dense(own, (20, 30), array.dtype, pipeline), array)


def test_elements_of_variable_length() -> None:
    words = [b"\3\0\0\0abc"] * 50
    array = VlenArray.of(words)
    data = blosc_encode(array.heap.tobytes(), 5, 0, 4, 1)
    assert list(decode_bare_vlen(data, (50,), TEXT, (DEFLATE,))) == words
    assert list(decode_bare_vlen(encode_bare_vlen(array, (DEFLATE,)), (50,), TEXT, (DEFLATE,))) == words


def test_frames_are_read_in_place_of_any_compressor() -> None:
    data = blosc_encode(bytes(1000), 5, 1, 4, 8)
    for pipeline in ((DEFLATE,), (SHUFFLE_OF_8, DEFLATE), (BLOSC,), (BLOSC, Filter(3))):
        found = decode_hsds_frame(data, pipeline, 1000)
        assert found is not None
        assert bytes(found) == bytes(1000)


def test_what_is_none() -> None:
    data = bytearray(blosc_encode(bytes(1000), 5, 1, 4, 8))
    assert decode_hsds_frame(data, (SHUFFLE_OF_8,)) is None, "nothing was compressed"
    assert decode_hsds_frame(data, (DEFLATE,), 999) is None
    assert decode_hsds_frame(data[:-1], (DEFLATE,)) is None
    assert decode_hsds_frame(data + b"abcd", (BLOSC, Filter(3))) is None
    with pytest.raises(Corrupt):
        decode_bare_vlen(data, (1,), TEXT, (DEFLATE,))
    data = bytearray(blosc_encode(np.arange(9000.0).tobytes(), 5, 1, 4, 8))
    data[16:] = b"\xff" * (len(data) - 16)
    with pytest.raises(Corrupt, match="HSDS"):
        decode_hsds_frame(data, (DEFLATE,))
