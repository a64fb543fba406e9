"""Bytes of arrays: views, byte planes, checksums, fields, orders, codecs; messages of dataspaces."""

from __future__ import annotations

import math
from typing import Any

import h5py
import imagecodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, Misconfigured
from hsparse.format.buffer import byte_view
from hsparse.format.byte_planes import BytePlanes
from hsparse.format.codec_library import StandardCodecs, codecs, fletcher32_swapped, lookup3
from hsparse.format.dataspace_message import (
    ByteReader,
    decode_image,
    decode_shape,
    encode_dataspace,
    encode_image,
    encode_shape,
)
from hsparse.format.fields import packed_type, parse_fields
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import apply_filters
from hsparse.format.ordering import Ordering


@given(st.data())
def test_any_column_of_any_shuffled_bytes(data: st.DataObject) -> None:
    width = data.draw(st.sampled_from((1, 2, 4, 8)))
    narrow = data.draw(st.sampled_from([size for size in (1, 2, 4, 8) if size <= width]))
    columns, count = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 40))
    before, behind = data.draw(st.binary(max_size=20)), data.draw(st.binary(max_size=5))
    most = data.draw(st.sampled_from((1 << 8 * narrow, 1 << 8 * width))) - 1
    numbers = data.draw(st.lists(st.integers(0, most), min_size=count * columns, max_size=count * columns))
    table = np.array(numbers, f"<u{width}").reshape(count, columns)
    content = before + table.tobytes() + behind
    step = width * columns
    parts = [part for part in (2, 3, 4, 8) if step % part == 0 and step > part]
    element = data.draw(
        st.sampled_from((step, 2 * step, 4 * step, step + 1, *(step // one for one in parts)))
    )
    shuffled, _ = apply_filters((Filter(2, (element,)),), content)
    planes = BytePlanes(bytes(shuffled), element, len(content))
    assert planes.joined() == content
    for size in (0, 3, len(content), 99):
        assert planes.head(size) == content[:size]
    for column in range(columns):
        expected = table[:, column]
        found = planes.column(len(before) + column * width, step, count, width, narrow)
        if (element % step and step % element) or (
            expected >> np.array(8 * narrow - 1, expected.dtype) >> np.array(1, expected.dtype)
        ).any():
            assert found is None
        else:
            assert found is not None
            assert found.dtype.itemsize == narrow
            assert found.tolist() == expected.tolist()


def test_a_contiguous_array_is_not_copied() -> None:
    array = np.zeros(3, "<u2")
    view = byte_view(array)
    array[1] = 0x0102
    assert view.tobytes() == b"\0\0\2\1\0\0"


def test_checksums_are_their_authors() -> None:
    assert (lookup3(b""), lookup3(b"Four score and seven years ago")) == (0xDEADBEEF, 0x17770551)
    assert fletcher32_swapped(0x11223344) == 0x22114433


DTYPE = np.dtype([("a", "<i4"), ("b", ">f8"), ("in", [("x", "u1")]), ("v", "<i2", (2,))])


def test_fields_are_named_with_colons() -> None:
    assert parse_fields(None, DTYPE) == parse_fields("", DTYPE) == ()
    assert parse_fields("b:a", DTYPE) == ("b", "a")
    assert parse_fields("a:b:in:v", DTYPE) == ()
    assert parse_fields("v:in:b:a", DTYPE) == ("v", "in", "b", "a")
    for text in ("c", "a,b", "in.x", "a:", "a:a"):
        with pytest.raises(BadRequest):
            parse_fields(text, DTYPE)
    with pytest.raises(BadRequest, match="none"):
        parse_fields("a", np.dtype("<i4"))


def test_a_type_with_gaps_is_packed_when_all_its_fields_are_named() -> None:
    gaps = np.dtype({"names": ["a", "b"], "formats": ["u1", "<i4"], "offsets": [0, 4]})
    assert parse_fields("a:b", gaps) == ("a", "b")
    assert packed_type(gaps, ("a", "b")).itemsize == 5


FLOATS = st.lists(st.one_of(st.integers(-5, 5).map(float), st.sampled_from([math.nan, math.inf, -math.inf])))


@given(FLOATS, st.integers(1, 10), st.booleans())
def test_the_first_are_those_of_sorted(values: list[float], limit: int, descending: bool) -> None:
    array = np.array(values, ">f4")
    found = Ordering("", descending).first(array, limit)
    sign = -1 if descending else 1

    def key(place: int) -> tuple[bool, float, int]:
        value = values[place]
        return math.isnan(value), 0.0 if math.isnan(value) else sign * value, place

    assert found.tolist() == sorted(range(len(values)), key=key)[:limit]


def test_fields_and_texts() -> None:
    dtype = np.dtype([("n", "u8"), ("s", "S2"), ("v", "f4", (2,))])
    rows = np.array([(2**63, b"b", 0), (1, b"a", 0), (2**63 + 1, b"ab", 0)], dtype)
    for text, order in {"n": [1, 0, 2], "-n": [2, 0, 1], "s": [1, 2, 0], "-s": [0, 2, 1]}.items():
        ordering = Ordering.parse(text, dtype)
        assert ordering.first(rows, 3).tolist() == order
        assert Ordering.parse(ordering.text, dtype) == ordering
    for text in ("v", "x", "_", "-", ""):
        with pytest.raises(BadRequest):
            Ordering.parse(text, dtype)
    assert Ordering.parse("-_", np.dtype("i4")) == Ordering("", True)


def test_bounds() -> None:
    assert Ordering("", True).is_after(3, 4)
    assert not Ordering("", True).is_after(4, 4)
    assert Ordering("", False).is_after(5, 4)
    assert not Ordering("", False).is_after(5.0, math.nan)


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


ALL = bytes.fromhex("03000000 01000000 00000000 00000000")
EXAMPLE = bytes.fromhex(
    "01 00 08 18 00 00 00  01 01 01 00 00 00 00 00  05 00 00 00 00 00 00 00  05 00 00 00 00 00 00 00"
)


def test_bytes_of_the_published_example() -> None:
    assert encode_image((5,), None, b"") == EXAMPLE
    assert decode_image(EXAMPLE + ALL)[0] == (5,)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=32), st.booleans())
def test_same_bytes_as_libhdf5(dims: list[int], unlimited: bool) -> None:
    max_dims = [2**64 - 1] * len(dims) if unlimited else dims
    space = h5py.h5s.create_simple(tuple(dims), (h5py.h5s.UNLIMITED,) * len(dims) if unlimited else None)
    assert encode_image(dims, max_dims, ALL) == space.encode()


@pytest.mark.parametrize("version", [1, 2])
def test_libhdf5_reads_both_versions(version: int) -> None:
    space = h5py.h5s.decode(encode_image((3, 4), (3, 2**64 - 1), ALL, version))
    assert space.get_simple_extent_dims() == (3, 4)
    assert space.get_simple_extent_dims(maxdims=True) == (3, h5py.h5s.UNLIMITED)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, 2, "begins with 02 00 08"), (2, 4, "begins with 01 00 04"), (3, 0x19, "followed by 1 unexpected"),
        (3, 0x17, "ends inside its maximum dimensions"), (3, 0xFF, "ends inside its dataspace message"),
        (7, 3, "version 3"), (8, 33, "rank 33"), (8, 2, "ends inside"), (9, 2, "flags 2"),
    ],
)  # fmt: skip
def test_corrupt(place: int, value: int, words: str) -> None:
    data = bytearray(EXAMPLE + ALL)
    data[place] = value
    with pytest.raises(Corrupt, match=words):
        decode_image(data)


def test_null_dataspace_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="null dataspace"):
        decode_image(h5py.h5s.create(h5py.h5s.NULL).encode())


@given(st.integers(0, len(EXAMPLE) - 1))
def test_cut_short(length: int) -> None:
    with pytest.raises(Corrupt, match="ends inside"):
        decode_image(EXAMPLE[:length])


def message(data: bytes) -> ByteReader:
    return ByteReader(memoryview(data), subject="test")


SHAPES = [
    {"class": "H5S_SCALAR"},
    {"class": "H5S_SIMPLE", "dims": [3, 0, 2**40]},
    {"class": "H5S_SIMPLE", "dims": [3, 4], "maxdims": ["H5S_UNLIMITED", 4]},
    {"class": "H5S_SIMPLE", "dims": [3], "maxdims": [7]},
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("version", [1, 2])
def test_shapes(shape: dict[str, Any], version: int) -> None:
    data = encode_shape(shape, version)
    assert data[0] == version
    assert decode_shape(message(data)) == shape
    space = h5py.h5s.decode(b"\1\0\x08" + len(data).to_bytes(4, "little") + data + ALL)
    assert list(space.get_simple_extent_dims()) == shape.get("dims", [])


def test_a_null_dataspace() -> None:
    data = encode_shape({"class": "H5S_NULL"})
    assert data == h5py.h5s.create(h5py.h5s.NULL).encode()[7:11]
    assert decode_shape(message(data)) == {"class": "H5S_NULL"}
    with pytest.raises(BadRequest, match="use version 2"):
        encode_dataspace(None)


def test_narrow_numbers() -> None:
    data = encode_dataspace((3, 4), (2**16 - 1, 4), 1, 2)
    assert decode_shape(message(data), 2) == {
        "class": "H5S_SIMPLE",
        "dims": [3, 4],
        "maxdims": ["H5S_UNLIMITED", 4],
    }


def test_extents_that_no_dataspace_has() -> None:
    with pytest.raises(Corrupt, match="more than 2\\^63-1 elements"):
        decode_shape(message(encode_dataspace((2**40, 2**40))))
    with pytest.raises(Corrupt, match="beyond its maximum"):
        decode_shape(message(encode_dataspace((5,), (4,))))
