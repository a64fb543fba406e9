"""Chunks that HSDS compressed, and what only looks like one."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.errors import Corrupt
from hsparse.format.blosc_frame import decode_frame
from hsparse.format.raw_codec import blosc_encode
from hsparse.model.filter import Filter

SHUFFLE, DEFLATE, BLOSC = Filter(2, (8,)), Filter(1, (4,)), Filter(32001, (2, 2, 8, 1000, 5, 1, 1))


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
    data = bytearray(blosc_encode(np.arange(9000.0).tobytes(), 5, 1, 4, 8))
    data[16:] = b"\xff" * (len(data) - 16)
    with pytest.raises(Corrupt, match="HSDS"):
        decode_frame(data, (DEFLATE,))
