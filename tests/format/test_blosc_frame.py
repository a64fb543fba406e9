"""Chunks that HSDS compressed, and what only looks like one."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.errors import Corrupt
from hsparse.format.blosc_frame import decode_frame
from hsparse.format.kinds.dense import decode_dense, encode_dense
from hsparse.format.kinds.vlen_chunk import decode_bare_vlen, encode_bare_vlen
from hsparse.format.raw_codec import blosc_encode
from hsparse.model.element import element_of
from hsparse.model.filter import Filter
from hsparse.model.variable_array import VariableArray

SHUFFLE, DEFLATE, LZ4, ZSTD = Filter(2, (8,)), Filter(1, (4,)), Filter(32004, (0,)), Filter(32015, (3,))
BLOSC = Filter(32001, (2, 2, 8, 1000, 5, 1, 1))
TEXT = element_of({"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"})


@pytest.mark.parametrize(("compressor", "filter"), [(4, DEFLATE), (1, LZ4), (5, ZSTD)])
@pytest.mark.parametrize("shuffled", [0, 1])
def test_numbers(compressor: int, filter: Filter, shuffled: int) -> None:
    array = np.arange(600.0).reshape(20, 30)
    data = blosc_encode(array.tobytes(), 5, shuffled, compressor, 8)
    pipeline = (SHUFFLE, filter) if shuffled else (filter,)
    np.testing.assert_array_equal(decode_dense(data, (20, 30), array.dtype, pipeline), array)
    own = encode_dense(array, pipeline)
    assert decode_frame(own, pipeline) is None
    np.testing.assert_array_equal(decode_dense(own, (20, 30), array.dtype, pipeline), array)


def test_elements_of_variable_length() -> None:
    words = [b"\3\0\0\0abc"] * 50
    array = VariableArray.of(words)
    data = blosc_encode(array.heap.tobytes(), 5, 0, 4, 1)
    assert list(decode_bare_vlen(data, (50,), TEXT, (DEFLATE,))) == words
    assert list(decode_bare_vlen(encode_bare_vlen(array, (DEFLATE,)), (50,), TEXT, (DEFLATE,))) == words


def test_frames_are_read_in_place_of_any_compressor() -> None:
    data = blosc_encode(bytes(1000), 5, 1, 4, 8)
    for pipeline in ((DEFLATE,), (SHUFFLE, DEFLATE), (BLOSC,), (BLOSC, Filter(3))):
        found = decode_frame(data, pipeline, 1000)
        assert found is not None
        assert bytes(found) == bytes(1000)


def test_what_is_none() -> None:
    data = bytearray(blosc_encode(bytes(1000), 5, 1, 4, 8))
    assert decode_frame(data, (SHUFFLE,)) is None, "nothing was compressed"
    assert decode_frame(data, (DEFLATE,), 999) is None
    assert decode_frame(data[:-1], (DEFLATE,)) is None
    assert decode_frame(data + b"abcd", (BLOSC, Filter(3))) is None
    with pytest.raises(Corrupt):
        decode_bare_vlen(data, (1,), TEXT, (DEFLATE,))
    data = bytearray(blosc_encode(np.arange(9000.0).tobytes(), 5, 1, 4, 8))
    data[16:] = b"\xff" * (len(data) - 16)
    with pytest.raises(Corrupt, match="HSDS"):
        decode_frame(data, (DEFLATE,))
