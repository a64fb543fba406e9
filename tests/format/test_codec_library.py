"""What replaces imagecodecs in the base install gives what imagecodecs gives."""

from __future__ import annotations

import imagecodecs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Misconfigured
from hsparse.format.codec_library import StandardCodecs, codecs

STANDARD = StandardCodecs()


def test_imagecodecs_is_taken_where_it_is_installed() -> None:
    assert codecs is imagecodecs


@given(st.binary(max_size=3000))
def test_checksums_are_the_same(data: bytes) -> None:
    assert STANDARD.h5checksum_metadata(data) == imagecodecs.h5checksum_metadata(data)
    assert STANDARD.h5checksum_fletcher32(data) == imagecodecs.h5checksum_fletcher32(data)
    assert STANDARD.deflate_crc32(data) == imagecodecs.deflate_crc32(data)


@pytest.mark.parametrize("data", [bytes(70_000), b"\xff" * 70_001, bytes(range(256)) * 999])
def test_checksums_of_long_data_are_the_same_and_slow(data: bytes) -> None:
    with pytest.warns(UserWarning, match=r'as slow: pip install "hsparse\[files\]"'):
        test_checksums_are_the_same.hypothesis.inner_test(data)  # type: ignore[attr-defined]


@given(st.binary(max_size=3000), st.integers(0, 9))
def test_deflate_goes_both_ways(data: bytes, level: int) -> None:
    assert imagecodecs.deflate_decode(STANDARD.deflate_encode(data, level), out=len(data)) == data
    encoded = imagecodecs.deflate_encode(data, level=level)
    assert STANDARD.deflate_decode(encoded, len(data)) == data
    assert STANDARD.deflate_decode(memoryview(encoded), len(data) + 1000) == data


@pytest.mark.parametrize(
    ("data", "out"),
    [(b"", 9), (b"no zlib stream", 99), (STANDARD.deflate_encode(bytes(100), 5)[:-1], 100),
     (STANDARD.deflate_encode(bytes(100), 5), 99), (STANDARD.deflate_encode(bytes(100), 5), 0)],
)  # fmt: skip
def test_what_is_no_whole_stream_of_the_size_is_an_error(data: bytes, out: int) -> None:
    with pytest.raises(RuntimeError):
        STANDARD.deflate_decode(data, out)


def test_other_codecs_name_the_extra_to_install() -> None:
    with pytest.raises(Misconfigured, match=r'The codec zstd .*pip install "hsparse\[files\]"'):
        STANDARD.zstd_decode(b"", out=1)
