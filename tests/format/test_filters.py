"""Filters as the REST API takes and tells them, and what is stored so that HSDS can undo it."""

from __future__ import annotations

import contextlib
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
from hsparse.format.filters.filters_json import (
    decode_hsds_frame,
    filters_to_json,
    parse_filters,
    parse_hsds_filters,
    record_size,
)
from hsparse.format.filters.pipeline import BY_ID
from hsparse.format.kinds.dense import decode_dense, encode_dense
from hsparse.format.kinds.vlen_chunk import decode_bare_vlen, encode_bare_vlen
from hsparse.model.element import element_of
from hsparse.model.vlen_array import VlenArray
from tests.support.characters import CHARACTERS

SHUFFLE = {"class": "H5Z_FILTER_SHUFFLE", "id": 2, "name": "shuffle"}
DEFLATE = {"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 9, "name": "deflate"}


def dense(*items: Any) -> tuple[Filter, ...]:
    (pipeline,) = parse_filters(items, 4, sparse=False, chunk_bytes=4000)
    return pipeline


def sparse(*items: Any) -> tuple[tuple[Filter, ...], ...]:
    return parse_filters(items, 4, sparse=True, chunk_bytes=4000, record_size=6)


def user(id: int, *parameters: int) -> dict[str, Any]:
    return {"class": "H5Z_FILTER_USER", "id": id, "name": "mine", "parameters": list(parameters)}


@pytest.mark.parametrize(
    ("forms", "expected"),
    [
        ([DEFLATE, {"id": 1, "level": 9}, {"name": "gzip", "level": 9}, user(1, 9)], Filter(1, (9,))),
        (["gzip", "deflate", "zlib", 1, {"class": "H5Z_FILTER_DEFLATE"}], Filter(1, (4,))),
        (["shuffle", 2, SHUFFLE, {"class": "H5Z_FILTER_SHUFFLE"}], Filter(2, (4,))),
        (["fletcher32", 3, {"class": "H5Z_FILTER_FLETCHER32"}], Filter(3, (), optional=False)),
        (["lzf", 32000, user(32000)], Filter(32000, (4, 0x0105, 4000))),
        (["blosc", "blosclz", 32001, user(32001)], Filter(32001, (2, 2, 4, 4000, 5, 1, 0))),
        ([user(32001, 0, 0, 0, 0, 7, 2, 5)], Filter(32001, (2, 2, 4, 4000, 7, 2, 5))),
        ([user(32001, 2, 2, 8, 99, 7, 2, 5)], Filter(32001, (2, 2, 4, 4000, 7, 2, 5))),
        (["lz4hc", 32005, {"class": "H5Z_FILTER_LZ4HC"}], Filter(32001, (2, 2, 4, 4000, 5, 1, 2))),
        (["lz4", 32004, {"class": "H5Z_FILTER_LZ4", "level": 1}], Filter(32004, (0,))),
        ([user(32004, 4096)], Filter(32004, (4096,))),
        (["bitshuffle", 32008, user(32008)], Filter(32008, (0, 4, 4))),
        ([user(32008, 0, 2), user(32008, 0, 4, 8, 0, 2)], Filter(32008, (0, 4, 4, 0, 2))),
        ([user(32008, 0, 4, 8)], Filter(32008, (0, 4, 4))),
        ([user(32008, 64, 3, 22)], Filter(32008, (0, 4, 4, 64, 3, 22))),
        (["zstd", 32015, user(32015)], Filter(32015, (3,))),
        ([user(32015, 9), {"class": "H5Z_FILTER_ZSTD", "level": 9}], Filter(32015, (9,))),
    ],
    ids=lambda value: str(value.id) if isinstance(value, Filter) else "",
)
def test_every_form_means_the_same_filter(forms: list[Any], expected: Filter) -> None:
    for form in forms:
        assert dense(form) == (expected,)


def test_the_element_size_is_that_of_points() -> None:
    shuffle = {"id": 2, "element_size": 6}
    found = parse_filters([shuffle], 4, sparse=True, chunk_bytes=64, record_size=8)
    assert found == ((Filter(2, (6,)),), (Filter(2, (4,)),))
    assert parse_filters([shuffle], 4, sparse=False, chunk_bytes=64) == ((Filter(2, (4,)),),)
    for size in (0, 257, "4", True):
        with pytest.raises(BadRequest, match="element size of the filter 2 must be 1 to 256"):
            parse_filters([shuffle | {"element_size": size}], 4, sparse=True, chunk_bytes=64)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("gzipp", "'gzipp' is unknown; deflate, .* work"),
        (77, "77 is unknown"),
        (True, "True is unknown"),
        (None, "None is unknown"),
        (["gzip"], "unknown"),
        ({}, "unknown"),
        ({"class": "H5Z_FILTER_MAFISC"}, "MAFISC' is unknown"),
        ({"class": ["gzip"]}, "unknown"),
        ({"class": "H5Z_FILTER_USER", "name": "mine"}, "'mine' is unknown"),
        ({"class": "H5Z_FILTER_DEFLATE", "id": 2}, "id 1, not 2"),
        ({**DEFLATE, "level": 10}, "level .* 0 to 9, not 10"),
        ({**DEFLATE, "level": -1}, "not -1"),
        ({**DEFLATE, "level": "9"}, "integer"),
        ({**DEFLATE, "level": True}, "integer"),
        ({"name": "zstd", "level": 23}, "0 to 22"),
        ({"name": "lz4", "level": 10}, "0 to 9"),
        (user(1, 10), "not 10"),
        (user(32001, 0, 0, 0, 0, 10), "level"),
        (user(32001, 0, 0, 0, 0, 5, 3), "shuffle"),
        (user(32001, 0, 0, 0, 0, 5, 1, 6), "compressor"),
        (user(32004, 2**31), "block size"),
        (user(32008, 12), "multiple of 8"),
        (user(32008, 8, 1), "compression"),
        (user(32008, 8, 3, 23), "level"),
        ({**user(32015), "parameters": [-1]}, "32-bit"),
        ({**user(32015), "parameters": [2**32]}, "32-bit"),
        ({**user(32015), "parameters": "3"}, "32-bit"),
        ({**SHUFFLE, "section": "H5_SECTION_FIXED"}, "only sparse"),
    ],
    ids=str,
)
def test_what_is_not_valid_is_named(item: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        dense(item)


@pytest.mark.parametrize(
    ("section", "message"),
    [("H5_SECTION_VL", "fixed size"), ("fixed", "use one of"), (1, "use one of"), ([], "use one of")],
    ids=str,
)
def test_a_section_that_is_not_there_is_refused(section: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        sparse({**SHUFFLE, "section": section})


def variable(*items: Any, is_sparse: bool = True) -> tuple[tuple[Filter, ...], ...]:
    return parse_filters(items, 16, sparse=is_sparse, chunk_bytes=4000, record_size=6, heap=True)


def test_variable_length_data_has_a_third_section() -> None:
    """References are of one size and can be shuffled, what is on the heap cannot."""
    level = Filter(1, (9,))
    assert variable(SHUFFLE, DEFLATE) == ((Filter(2, (6,)), level), (Filter(2, (16,)), level), (level,))
    assert variable(SHUFFLE, DEFLATE, is_sparse=False) == ((), (Filter(2, (16,)), level), (level,))
    assert variable({**DEFLATE, "section": "H5_SECTION_VL"}) == ((), (), (level,))
    assert variable({**DEFLATE, "section": "H5_SECTION_FIXED"}) == ((), (level,), ())
    assert variable("blosc")[2] == (Filter(32001, (2, 2, 1, 4000, 5, 1, 0)),)
    with pytest.raises(BadRequest, match="dense layout"):
        variable({**DEFLATE, "section": "H5_SECTION_SELECTION"}, is_sparse=False)


def test_places_and_references_are_compressed_by_default() -> None:
    places, references, values = variable()
    assert places == (Filter(2, (6,)), Filter(1, (2,)))
    assert references == (Filter(2, (16,)), Filter(1, (2,)))
    assert values == ()
    assert variable(is_sparse=False) == ((), references, ())
    assert variable("none") == ((), (), ())


def test_bitshuffle_behind_what_changes_the_size_is_refused() -> None:
    for item in (DEFLATE, "fletcher32", "bitshuffle"):
        with pytest.raises(BadRequest, match="bitshuffle must come before"):
            dense(item, "bitshuffle")
    assert len(dense(SHUFFLE, "bitshuffle")) == 2


def test_more_than_32_filters_are_refused() -> None:
    assert len(dense(*[SHUFFLE] * 32)) == 32
    for parse in (dense, sparse):
        with pytest.raises(BadRequest, match="32"):
            parse(*[SHUFFLE] * 33)


@pytest.mark.parametrize("items", ["gzip", {"class": "H5Z_FILTER_DEFLATE"}, 1, None], ids=str)
def test_what_is_no_list_is_refused(items: Any) -> None:
    with pytest.raises(BadRequest, match="must be a list"):
        parse_filters(items, 4, sparse=False, chunk_bytes=4)


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(CHARACTERS, max_size=5)
    | st.sampled_from(["gzip", "H5Z_FILTER_USER"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["class", "id", "name", "level", "parameters", "section"]), inner, max_size=4
        )
    ),
)


@given(st.lists(json, max_size=3), st.booleans(), st.booleans())
def test_any_json_is_parsed_or_refused(items: list[Any], is_sparse: bool, heap: bool) -> None:
    with contextlib.suppress(BadRequest, Unsupported):
        pipelines = parse_filters(items, 4, sparse=is_sparse, chunk_bytes=4, heap=heap)
        assert len(pipelines) == (3 if heap else 1 + is_sparse)


@pytest.mark.parametrize(
    ("dims", "size"),
    [((), 2), ((65535,), 2), ((65536,), 4), ((255, 257), 4), ((256, 256), 8), ((10, 20, 30), 6)],
    ids=str,
)
def test_a_record_is_rank_times_the_coordinates_width(dims: tuple[int, ...], size: int) -> None:
    assert record_size(dims) == size


GZIP = {"class": "H5Z_FILTER_DEFLATE", "id": 1, "name": "gzip"}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("gzip", GZIP),
        ("deflate", {**GZIP, "name": "deflate"}),
        ("H5Z_FILTER_DEFLATE", GZIP),
        (1, GZIP),
        ({"id": 1, "level": 4}, {**GZIP, "level": 4}),
        ({"class": "H5Z_FILTER_DEFLATE"}, GZIP),
        (
            {"class": "H5Z_FILTER_DEFLATE", "name": "deflate", "level": 0},
            {**GZIP, "name": "deflate", "level": 0},
        ),
        ({"class": "H5Z_FILTER_USER", "id": 32004}, {"class": "H5Z_FILTER_LZ4", "id": 32004, "name": "lz4"}),
        ({"name": "zstd"}, {"class": "H5Z_FILTER_ZSTD", "id": 32015, "name": "zstd"}),
        ("none", "none"),
        ({"class": "H5Z_FILTER_NONE"}, {"class": "H5Z_FILTER_NONE"}),
        (77, 77),
    ],
)
def test_a_filter_is_told_by_class_id_and_name(asked: Any, told: Any) -> None:
    assert filters_to_json([asked]) == [told]
    assert filters_to_json([told]) == [told]


@pytest.mark.parametrize("id", [id for id, one in BY_ID.items() if one.available and one.api_names])
def test_what_is_told_means_the_same(id: int) -> None:
    (told,) = filters_to_json([id])
    assert told["id"] == id
    options: dict[str, Any] = {"sparse": False, "chunk_bytes": 800}
    assert parse_filters([told], 8, **options) == parse_filters([id], 8, **options)


HSDS_SHUFFLE, CHECKSUM = Filter(2, (4,)), Filter(3, (), optional=False)
COMPRESSING = ("gzip", "lzf", "blosclz", "lz4", "lz4hc", "zstd")
NAMES = ["none", "shuffle", "fletcher32", "nbit", "scaleoffset", "bitshuffle", *COMPRESSING]


def blosc(compressor: int, shuffle: int, level: int = 5) -> Filter:
    return Filter(32001, (2, 2, 4, 4000, level, shuffle, compressor))


@pytest.mark.parametrize(
    ("items", "stored"),
    [
        ([], ()),
        (["gzip"], (Filter(1, (4,)),)),
        (["gzip", "shuffle"], (HSDS_SHUFFLE, Filter(1, (4,)))),
        (["fletcher32", "shuffle", "gzip"], (HSDS_SHUFFLE, Filter(1, (4,)), CHECKSUM)),
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
        (["shuffle"], (HSDS_SHUFFLE,)),
        (["bitshuffle", "fletcher32"], ()),
        (["nbit", "gzip"], (Filter(1, (4,)),)),
        (["scaleoffset", "gzip"], ()),
        (
            [{"class": "H5Z_FILTER_SCALEOFFSET", "id": 6, "scaleOffset": 2}, "shuffle", "gzip"],
            (HSDS_SHUFFLE,),
        ),
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


SHUFFLE_OF_8, GZIP_4 = Filter(2, (8,)), Filter(1, (4,))
BLOSC = Filter(32001, (2, 2, 8, 1000, 5, 1, 1))
TEXT = element_of({"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"})


@pytest.mark.parametrize("compressor", range(6))
@pytest.mark.parametrize("shuffled", [0, 1])
@pytest.mark.parametrize("name", COMPRESSING)
def test_frames_of_hsds_are_read_in_place_of_what_any_filters_make(
    name: str, shuffled: int, compressor: int
) -> None:
    array = np.arange(600.0).reshape(20, 30)
    data = blosc_encode(array.tobytes(), 5, shuffled, compressor, 8)
    asked = ([name], ["shuffle", name], ["shuffle", name, "fletcher32"], ["bitshuffle", name])
    hsds = (parse_hsds_filters(items, 8, 4800) for items in asked)
    for pipeline in (*hsds, (SHUFFLE_OF_8, Filter(32004, (0,))), (Filter(32015, (3,)),), (BLOSC, Filter(3))):
        np.testing.assert_array_equal(decode_dense(data, (20, 30), array.dtype, pipeline), array)
        own = encode_dense(array, pipeline)
        np.testing.assert_array_equal(decode_dense(own, (20, 30), array.dtype, pipeline), array)
    assert decode_hsds_frame(encode_dense(array, (SHUFFLE_OF_8, GZIP_4)), (SHUFFLE_OF_8, GZIP_4)) is None


def test_elements_of_variable_length() -> None:
    words = [b"\3\0\0\0abc"] * 50
    array = VlenArray.of(words)
    data = blosc_encode(array.heap.tobytes(), 5, 0, 4, 1)
    assert list(decode_bare_vlen(data, (50,), TEXT, (GZIP_4,))) == words
    own = encode_bare_vlen(array, (GZIP_4,))
    assert list(decode_bare_vlen(own, (50,), TEXT, (GZIP_4,))) == words


def test_what_is_none() -> None:
    data = bytearray(blosc_encode(bytes(1000), 5, 1, 4, 8))
    assert decode_hsds_frame(data, (SHUFFLE_OF_8,)) is None, "nothing was compressed"
    assert decode_hsds_frame(data, (GZIP_4,), 999) is None
    assert decode_hsds_frame(data[:-1], (GZIP_4,)) is None
    assert decode_hsds_frame(data + b"abcd", (BLOSC, Filter(3))) is None
    with pytest.raises(Corrupt):
        decode_bare_vlen(data, (1,), TEXT, (GZIP_4,))
    data = bytearray(blosc_encode(np.arange(9000.0).tobytes(), 5, 1, 4, 8))
    data[16:] = b"\xff" * (len(data) - 16)
    with pytest.raises(Corrupt, match="HSDS"):
        decode_hsds_frame(data, (GZIP_4,))
