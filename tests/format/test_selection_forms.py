"""Selections as libhdf5 encodes them, as HDF5/JSON and as text, against libhdf5 and numpy, and broken ones."""

from __future__ import annotations

import json
import math
import struct
import zlib
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, TooLarge, Unsupported
from hsparse.format.dataspace_message import ByteReader, encode_image
from hsparse.format.filters.filters_json import record_size
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.encoded_selection import (
    decode_columns,
    decode_offsets,
    decode_selection,
    encode_selection,
)
from hsparse.format.selections.extent import coordinate_columns
from hsparse.format.selections.orthogonal import Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection, gather
from hsparse.format.selections.select_syntax import (
    MAX_PAIRED_BYTES,
    MAX_SCANNED,
    format_select,
    most_paired,
    paired_bytes,
    parse_select,
)
from hsparse.format.selections.selection_encoding import (
    blocks_size,
    encode_blocks,
    encode_offsets,
    encode_points,
    encode_regular,
)
from hsparse.format.selections.selection_json import parse_selection_json, selection_json
from hsparse.format.selections.serialized_selection import Serialized, decode_serialized
from tests.format.selection_strategies import (
    any_selections,
    boxes,
    extents,
    iterate,
    offset_sets,
    points,
    spans,
)
from tests.support.characters import CHARACTERS
from tests.support.endurance import repeats

MINIMAL = bytes.fromhex(
    "01 00 08 18 00 00 00  01 01 01 00 00 00 00 00  05 00 00 00 00 00 00 00  05 00 00 00 00 00 00 00"
    "02 00 00 00 01 00 00 00 00 00 00 00 10 00 00 00  01 00 00 00 01 00 00 00 01 00 00 00 03 00 00 00"
)
ALL, NONE, POINTS, HYPERSLABS = (
    h5py.h5s.SEL_ALL,
    h5py.h5s.SEL_NONE,
    h5py.h5s.SEL_POINTS,
    h5py.h5s.SEL_HYPERSLABS,
)


def kind(data: bytes, rank: int) -> tuple[int, ...]:
    """The type and version of an encoded selection behind a dataspace message of version 1."""
    return struct.unpack_from("<II", data, 15 + 16 * rank)


def elements(space: h5py.h5s.SpaceID) -> list[tuple[int, ...]]:
    """What libhdf5 says is selected, in its iteration order."""
    dims = space.get_simple_extent_dims()
    selected = space.get_select_type()
    if selected == POINTS:
        return [tuple(row) for row in space.get_select_elem_pointlist().tolist()]
    mask = np.full(dims, selected == ALL)
    if selected == HYPERSLABS:
        for start, end in space.get_select_hyper_blocklist().tolist():
            mask[tuple(slice(a, b + 1) for a, b in zip(start, end, strict=True))] = True
    return [tuple(row) for row in np.argwhere(mask).tolist()]


def space_of(selection: Selection) -> h5py.h5s.SpaceID:
    """The same selection made with libhdf5's own calls."""
    space = h5py.h5s.create_simple(selection.extent)
    space.select_none()
    if isinstance(selection, Points):
        if selection.size:
            space.select_elements(selection.coordinates)
    elif isinstance(selection, Boxes):
        for start, stop in zip(selection.starts.tolist(), selection.stops.tolist(), strict=True):
            block = tuple(b - a for a, b in zip(start, stop, strict=True))
            space.select_hyperslab(tuple(start), (1,) * len(block), block=block, op=h5py.h5s.SELECT_OR)
    elif selection.is_all:
        space.select_all()
    elif selection.size:
        fields = zip(*((s.start, s.count, s.stride, s.block) for s in selection.axes), strict=True)
        space.select_hyperslab(*fields)
    return space


@st.composite
def hdf5_selections(draw: st.DrawFn) -> Selection:
    extent = draw(extents())
    slab = st.builds(Orthogonal, st.just(extent), st.tuples(*map(spans, extent)))
    return draw(st.one_of(slab, points(extent), boxes(extent)))


# --- whole selections -----------------------------------------------------------------------------


def test_published_example() -> None:
    found = decode_selection(MINIMAL)
    assert found == Orthogonal.box((5,), (1,), (4,))
    assert encode_selection(found, version=1) == MINIMAL


def test_bytes_of_a_published_chunk_of_a_larger_dataset() -> None:
    """Two blocks of version 1, as the prototype writes them: the maximum dimensions are the dataset's."""
    image = MINIMAL[:23] + bytes.fromhex(
        "32 00 00 00 00 00 00 00  02 00 00 00 01 00 00 00 00 00 00 00 18 00 00 00  01 00 00 00 02 00 00 00"
        "01 00 00 00 01 00 00 00  04 00 00 00 04 00 00 00"
    )
    blocks = Boxes((5,), [[1], [4]], [[2], [5]])
    assert decode_selection(image) == blocks
    assert encode_selection(blocks, 1, max_dims=(50,)) == image
    assert decode_offsets(image, (5,), 2)[0].tolist() == [1, 4]


@given(hdf5_selections())
def test_reads_what_libhdf5_writes(selection: Selection) -> None:
    space = space_of(selection)
    found = decode_selection(space.encode())
    assert found.extent == selection.extent
    assert iterate(found) == elements(space) == iterate(selection)


@given(any_selections(least=1), st.sampled_from([None, 1, 2, 3]), st.sampled_from([1, 2]))
def test_libhdf5_reads_what_we_write(selection: Selection, version: int | None, message: int) -> None:
    try:
        data = encode_selection(selection, version, message_version=message)
    except BadRequest:
        assert version is not None  # a version that the type has not; `test_versions` has those it has
        return
    space = h5py.h5s.decode(data)
    assert space.get_simple_extent_dims() == selection.extent
    expected = iterate(selection)
    assert elements(space) == expected
    found = decode_selection(data)
    assert iterate(found) == expected
    if version == 1 and message == 1 and not isinstance(selection, Boxes):
        assert len(data) == len(space.encode())


def test_versions() -> None:
    slab = Orthogonal((40, 9), (StridedSpan(1, 10, 3, 2), StridedSpan(0, 2, 4)))
    for version in (1, 2, 3):
        data = encode_selection(slab, version)
        assert kind(data, 2) == (HYPERSLABS, version)
        assert decode_selection(data).offsets().tolist() == slab.offsets().tolist()
    assert encode_selection(slab, 1) == space_of(slab).encode()
    some = Points((40, 9), [[1, 2], [0, 3], [1, 2]])
    assert encode_selection(some, 1) == space_of(some).encode()
    assert kind(encode_selection(some), 2) == (POINTS, 2)
    assert decode_selection(encode_selection(some, 2)) == some
    assert kind(encode_selection(Orthogonal.all((4,))), 1) == (ALL, 1)
    assert kind(encode_selection(Orthogonal.none((4,))), 1) == (NONE, 1)
    assert decode_selection(encode_selection(Orthogonal.all(()))) == Orthogonal.all(())


def test_large_coordinates_as_libhdf5_writes_them() -> None:
    slab = Orthogonal((2**33,), (StridedSpan(1, 2**21, 2**11 + 10, 2),))
    space = space_of(slab)
    assert space.encode() == encode_selection(slab, 2)
    assert decode_selection(space.encode()) == slab
    far = Points((2**34,), [2**33, 1])
    assert space_of(far).encode() == encode_selection(far, 2)
    assert decode_selection(encode_selection(far, 2)) == far


def test_max_dims() -> None:
    data = encode_selection(Orthogonal.all((5,)), max_dims=(2**64 - 1,))
    assert h5py.h5s.decode(data).get_simple_extent_dims(maxdims=True) == (h5py.h5s.UNLIMITED,)
    with pytest.raises(BadRequest, match="max_dims has 2 numbers"):
        encode_selection(Orthogonal.all((5,)), max_dims=(5, 5))
    with pytest.raises(BadRequest, match="message has no version 3"):
        encode_selection(Orthogonal.all((5,)), message_version=3)


# --- offsets in a chunk ---------------------------------------------------------------------------


@st.composite
def chunks_with_offsets(draw: st.DrawFn) -> tuple[tuple[int, ...], NDArray[np.uint32]]:
    chunk = draw(extents(1, 4))
    return chunk, draw(offset_sets(chunk))


@given(chunks_with_offsets())
def test_offsets_round_trip(case: tuple[tuple[int, ...], NDArray[np.uint32]]) -> None:
    chunk, offsets = case
    data = encode_offsets(offsets, chunk)
    found, order = decode_offsets(data, chunk, len(offsets))
    assert found.dtype == np.uint32
    assert found.tolist() == offsets.tolist()
    assert order is None
    expected = list(zip(*np.unravel_index(offsets, chunk), strict=True))
    assert elements(h5py.h5s.decode(data)) == expected
    assert iterate(decode_selection(data)) == expected


def test_columns_of_points_in_order_are_as_narrow_as_encoded() -> None:
    places = [[0, 1], [0, 300], [2, 0], [3, 299]]
    for width, version in ((2, 2), (4, 1)):
        columns, order = decode_columns(encode_selection(Points((4, 301), places), version), (4, 301), 4)
        assert order is None
        assert [column.dtype.itemsize for column in columns] == [width, width]
        assert np.array(columns).T.tolist() == places


def test_size_of_random_points_and_of_runs() -> None:
    """The figures that the choice of form rests on: 1024 x 1024, 10 % random; detector peaks."""
    rng = np.random.default_rng(1)
    chunk = (1024, 1024)
    offsets = np.sort(rng.choice(2**20, 2**20 // 10, replace=False)).astype(np.uint32)
    data = encode_offsets(offsets, chunk)
    assert kind(data, 2) == (POINTS, 2)
    assert len(_shuffled_and_deflated(data, record_size(chunk))) < 112_000
    starts = np.sort(rng.choice(2**20 // 16, 2000, replace=False)).astype(np.uint32) * np.uint32(16)
    lengths = rng.integers(5, 11, len(starts))
    peaks = np.concatenate([a + np.arange(n, dtype=np.uint32) for a, n in zip(starts, lengths, strict=True)])
    data = encode_offsets(peaks, chunk)
    assert len(data) <= 47 + blocks_size(2000, 2, 1023)
    as_points = encode_image(chunk, None, encode_points(coordinate_columns(peaks, chunk)))
    size = record_size(chunk)
    assert len(_shuffled_and_deflated(data, size)) < len(_shuffled_and_deflated(as_points, size))


def _shuffled_and_deflated(data: bytes, size: int) -> bytes:
    whole = len(data) // size * size
    lanes = np.frombuffer(data[:whole], np.uint8).reshape(-1, size).T
    return zlib.compress(lanes.tobytes() + data[whole:], 9)


def test_count_is_checked_before_the_offsets_are_made() -> None:
    data = encode_selection(Orthogonal.all((2**16, 2**15)))
    with pytest.raises(Corrupt, match="2147483648 elements, but there are 3 values"):
        decode_offsets(data, (2**16, 2**15), 3)
    slab = Orthogonal((2**16, 2**15), (StridedSpan(0, 2, 2**15), StridedSpan.range(1, 2**15)))
    for version in (2, 3):
        with pytest.raises(Corrupt, match="there are 3 values"):
            decode_offsets(encode_selection(slab, version), slab.extent, 3)
    starts, ends = np.array([[0, 0]], np.uint64), np.array([[2**16 - 1, 2**15 - 2]], np.uint64)
    with pytest.raises(Corrupt, match="there are 3 values"):
        decode_offsets(encode_image(slab.extent, None, encode_blocks(starts, ends)), slab.extent, 3)


def test_another_extent_is_corrupt() -> None:
    data = encode_offsets(np.array([1], np.uint32), (5,))
    with pytest.raises(Corrupt, match=r"extent \[5\]; the chunk has \[6\]"):
        decode_offsets(data, (6,))
    with pytest.raises(Corrupt, match="more than 2\\^32-1"):
        decode_offsets(encode_selection(Orthogonal.all((2**32,))), (2**32,))


# --- broken bytes ---------------------------------------------------------------------------------


@pytest.mark.endurance
@settings(max_examples=repeats(200, short=60))
@given(st.data())
def test_mutations_are_corrupt_or_valid(data: st.DataObject) -> None:
    selection = data.draw(hdf5_selections())
    version = data.draw(st.sampled_from([None, 1, 2, 3]))
    try:
        image = bytearray(encode_selection(selection, version))
    except BadRequest:
        image = bytearray(encode_selection(selection))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(image) - 1))
        image[place] = data.draw(st.sampled_from([0, 1, 2, 3, 4, 8, 127, 255]) | st.integers(0, 255))
    if data.draw(st.integers(0, 4)) == 0:
        image = image[: data.draw(st.integers(0, len(image)))]
    try:
        found = decode_selection(image)
    except Corrupt:
        pass
    else:
        _is_valid(found)
    try:
        offsets, order = decode_offsets(image, selection.extent, selection.size)
    except Corrupt:
        return
    assert (offsets[1:] > offsets[:-1]).all()
    assert not len(offsets) or offsets[-1] < math.prod(selection.extent)
    assert order is None or len(order) == len(offsets)


def _is_valid(selection: Selection) -> None:
    """The constructors check everything; build the selection again through them."""
    same = selection.translate((0,) * len(selection.extent), selection.extent)
    assert same == selection


@pytest.mark.parametrize("image", [MINIMAL, encode_selection(Points((9, 9), [[1, 2], [3, 4]]))])
def test_every_cut_is_corrupt(image: bytes) -> None:
    for length in range(len(image)):
        with pytest.raises(Corrupt):
            decode_selection(image[:length])
    with pytest.raises(Corrupt, match="followed by 1 unexpected"):
        decode_selection(image + b"\0")
    with pytest.raises(Corrupt, match="followed by 1 unexpected"):
        decode_offsets(image + b"\0", decode_selection(image).extent)


@given(any_selections())
def test_json_comes_back(selection: Selection) -> None:
    text = json.dumps(selection_json(selection))
    assert iterate(parse_selection_json(json.loads(text), selection.extent)) == iterate(selection)


def test_forms_of_json() -> None:
    assert selection_json(Orthogonal.all((4,))) == {"class": "H5S_SEL_ALL"}
    assert selection_json(Orthogonal.none((4,))) == {"class": "H5S_SEL_NONE"}
    assert selection_json(Orthogonal((9, 9), (StridedSpan(1, 4, 2, 3), StridedSpan.range(2, 5)))) == {
        "class": "H5S_SEL_HYPERSLABS",
        "start": [1, 2],
        "stride": [4, 1],
        "count": [2, 1],
        "block": [3, 3],
    }
    assert selection_json(Boxes((9, 9), [[0, 0], [2, 3]], [[1, 1], [4, 5]])) == {
        "class": "H5S_SEL_HYPERSLABS",
        "coordinates": [[[0, 0], [0, 0]], [[2, 3], [3, 4]]],
    }
    assert selection_json(Orthogonal((9,), (np.array([5, 1], np.uint64),))) == {
        "class": "H5S_SEL_POINTS",
        "coordinates": [[5], [1]],
    }


def test_region_reference_keys_and_defaults() -> None:
    value: dict[str, Any] = {"select_type": "H5S_SEL_POINTS", "selection": [[1, 2]]}
    assert parse_selection_json(value, (3, 3)) == Points((3, 3), [[1, 2]])
    value = {"select_type": "H5S_SEL_HYPERSLABS", "selection": [[[0, 0], [1, 2]]]}
    assert parse_selection_json(value, (3, 3)) == Orthogonal.box((3, 3), (0, 0), (2, 3))
    value = {"class": "H5S_SEL_HYPERSLABS", "start": [1], "count": [2]}
    assert parse_selection_json(value, (3,)) == Orthogonal.box((3,), (1,), (3,))
    assert parse_selection_json({"class": "H5S_SEL_NONE"}, ()).size == 0
    assert parse_selection_json({"class": "H5S_SEL_POINTS", "coordinates": []}, (3,)).size == 0
    assert parse_selection_json({"class": "H5S_SEL_HYPERSLABS", "coordinates": []}, (3,)).size == 0


def _slabs(**fields: Any) -> dict[str, Any]:
    return {"class": "H5S_SEL_HYPERSLABS", **fields}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "JSON object"),
        ({}, "class is None"),
        ({"class": "H5S_SEL_ODD"}, "class is 'H5S_SEL_ODD'"),
        ({"class": "H5S_SEL_POINTS"}, "must be a list"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1]]}, "shape"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 2], [1]]}, "equal length"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 2.5]]}, "integers"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, "2"]]}, "integers"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 10**30]]}, "integers"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, -2]]}, "-2"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 5]]}, "dimension 1"),
        (_slabs(coordinates=[[[0, 0], [1, 5]]]), "imension 1"),
        (_slabs(coordinates=[[[2, 0], [1, 1]]]), "ends before it starts in dimension 0"),
        (_slabs(coordinates=[[[0, 0], [1, 1]], [[1, 1], [2, 2]]]), "overlap"),
        (_slabs(), "start must be a list"),
        (_slabs(start=[0], count=[1]), "start must be a list of 2"),
        (_slabs(start=[0, 0], count=[1, True]), "count must be integers"),
        (_slabs(start=[0, 0], count=[1, 1.0]), "count must be integers"),
        (_slabs(start=[0, 0], count=[1, -1]), "count must be integers"),
        (_slabs(start=[0, 0], count=[1, 6]), "Dimension 1"),
        (_slabs(start=[0, 0], count=[1, 2], block=[1, 2]), "overlap"),
    ],
)
def test_json_that_is_refused(value: Any, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        parse_selection_json(value, (4, 5))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.floats(0, 5) | st.text(CHARACTERS, max_size=2),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["H5S_SEL_POINTS", "H5S_SEL_HYPERSLABS"]),
    st.dictionaries(st.sampled_from(["coordinates", "start", "stride", "count", "block"]), JSON),
)
def test_any_fields_select_or_are_refused(kind: str, fields: dict[str, Any]) -> None:
    for extent in ((), (9,), (4, 5)):
        try:
            selection = parse_selection_json({"class": kind, **fields}, extent)
        except BadRequest:
            continue
        assert len(iterate(selection)) == selection.size


def test_scalar_has_no_hyperslabs() -> None:
    with pytest.raises(BadRequest, match="scalar"):
        parse_selection_json(_slabs(coordinates=[[[], []]]), ())


DIMS = (60,)


def read(text: str, dims: tuple[int, ...] = DIMS) -> Serialized:
    reader = ByteReader(memoryview(bytes.fromhex(text)))
    found = decode_serialized(reader, dims)
    reader.done("selection")
    return found


def column(*values: int) -> np.ndarray:
    return np.array(values, np.uint64).reshape(-1, 1)


BLOCK_V1 = "02000000 01000000 00000000 10000000 01000000 01000000 02000000 04000000"
BLOCKS_V1 = (
    "02000000 01000000 00000000 20000000 01000000 03000000"
    "00000000 00000000 07000000 08000000 14000000 15000000"
)
BLOCKS_V3 = "02000000 03000000 00 02 01000000 0300 0000 0000 0700 0800 1400 1500"
REGULAR_V2 = (
    "02000000 02000000 01 24000000 01000000"
    "0100000000000000 0a00000000000000 0500000000000000 0200000000000000"
)
REGULAR_V3 = "02000000 03000000 01 02 01000000 0100 0a00 0500 0200"
POINTS_V1 = "01000000 01000000 00000000 14000000 01000000 03000000 07000000 02000000 05000000"
POINTS_V2 = "01000000 02000000 02 01000000 0300 0700 0200 0500"


def test_no_such_version() -> None:
    for call in (
        lambda: encode_points([np.array([1])], 3),
        lambda: encode_blocks(column(1), column(1), 2),
        lambda: encode_regular([StridedSpan(1)], 1),
    ):
        with pytest.raises(BadRequest, match=r"no version|only version"):
            call()
    with pytest.raises(BadRequest, match="32-bit"):
        encode_points([np.array([2**32], np.uint64)], 1)
    with pytest.raises(BadRequest, match="32-bit"):
        encode_blocks(column(0), column(2**32), 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("04000000 01000000 00000000 00000000", "type 4"),
        ("03000000 02000000 00000000 00000000", "version other than 1"),
        ("03000000 01000000 00000000 04000000", "or a length"),
        ("03000000 01000000 00000000 00000000 00", "followed by 1 unexpected"),
        ("03000000 01000000 00000000 0000", "ends inside its selection header"),
        (POINTS_V1.replace("14000000", "15000000"), "claims 21 bytes and has 20"),
        (POINTS_V1.replace("00000000", "01000000", 1), "reserved"),
        (POINTS_V1.replace("01000000 01000000", "01000000 03000000", 1), "version 3"),
        (POINTS_V2.replace("0700", "3c00"), "coordinate 60 in dimension 0, not below 60"),
        (POINTS_V2.replace("02000000 02", "02000000 03"), "in 3 bytes"),
        (POINTS_V2.replace("01000000 0300", "02000000 0300"), "rank 2; the right rank is 1"),
        (POINTS_V2.replace("0300", "ffff"), "131070 bytes are needed"),
        (BLOCK_V1.replace("02000000 04000000", "04000000 02000000"), "ends before it starts"),
        (BLOCK_V1.replace("04000000", "3c000000"), "not below 60"),
        (BLOCK_V1.replace("10000000", "0f000000"), "claims 15 bytes"),
        (BLOCKS_V1.replace("00000000 20000000", "00000001 20000000", 1), "reserved"),
        (BLOCKS_V3.replace("00 02", "02 02"), "flags 2"),
        (REGULAR_V2.replace("01 24", "00 24"), "flags 0"),
        (REGULAR_V2.replace("24000000", "25000000"), "claims 37 bytes"),
        (REGULAR_V2.replace("02000000 02000000", "02000000 04000000"), "version 4"),
        (REGULAR_V3.replace("0a00 0500", "0a00 0700"), "ends at 63"),
        (REGULAR_V3.replace("0a00", "0100"), "overlaps itself"),
        (REGULAR_V3.replace("0500 0200", "0000 0200"), "empty"),
        (REGULAR_V3.replace("0500 0200", "0500 0000"), "empty"),
        (REGULAR_V3.replace("0a00", "0000"), "overlaps itself|empty"),
        (REGULAR_V3.replace("0500", "ffff"), "ends at"),
    ],
)
def test_corrupt_selections(text: str, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        read(text)


def test_counts_are_checked_before_anything_is_allocated() -> None:
    with pytest.raises(Corrupt, match="bytes are needed"):
        read("01000000 02000000 08 01000000 ffffffffffffff7f", (2**62,))
    with pytest.raises(Corrupt, match="bytes are needed"):
        read("02000000 03000000 00 08 01000000 ffffffffffffffff", (2**62,))


@st.composite
def pieces(draw: st.DrawFn, length: int) -> tuple[str, slice | list[int]]:
    """One piece, and the numpy index it means; an index keeps its dimension."""
    kind = draw(st.sampled_from(["index", "slice", "list"]))
    if kind == "index":
        index = draw(st.integers(0, length - 1))
        return str(index), slice(index, index + 1)
    if kind == "list":
        listed = draw(st.lists(st.integers(0, length - 1), max_size=5))
        return f"[{','.join(map(str, listed))}]", listed
    start = draw(st.integers(0, length))
    stop = draw(st.integers(start, length))
    step = draw(st.integers(1, 4))
    first = "" if start == 0 and draw(st.booleans()) else str(start)
    last = "" if stop == length and draw(st.booleans()) else str(stop)
    tail = draw(st.sampled_from(["", ":"])) if step == 1 else f":{step}"
    return f"{first}:{last}{tail}", slice(start, stop, step)


@given(st.data())
def test_reads_as_numpy_with_at_most_one_list(data: st.DataObject) -> None:
    extent = data.draw(extents())
    texts, index = zip(*(data.draw(pieces(length)) for length in extent), strict=True)
    if sum(isinstance(one, list) for one in index) <= 1:
        array = np.arange(math.prod(extent)).reshape(extent)
        found = gather(array, parse_select(f"[{' , '.join(texts)}]", extent))
        expected = array[tuple(np.array(one, np.intp) if isinstance(one, list) else one for one in index)]
        assert found.tolist() == expected.tolist()
        assert found.shape == expected.shape


@pytest.mark.parametrize("text", ["[]", "[0]", "[:]", "[0:1]"])
def test_texts_of_scalars(text: str) -> None:
    assert parse_select(text, ()) == Orthogonal.all(())


def test_what_h5pyd_sends() -> None:
    assert parse_select("[0:100:2,5:6]", (100, 10)).shape == (50, 1)
    assert parse_select("[0:99:2]", (99,)) == Orthogonal((99,), (StridedSpan(0, 2, 50),))
    assert parse_select("[3,[1,4,9]]", (5, 10)).shape == (1, 3)
    assert parse_select("[0:0]", (0,)).size == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0:3,0:3", "brackets"), ("[", "brackets"), ("[0:3]", "1 dimensions; the dataset has 2"),
        ("[0:3,0:3,0:3]", "3 dimensions"), ("[0:3,5]", "'5' .*dimension 1.*not below the extent 5"),
        ("[0:3,0:6]", "'0:6' .*stops beyond the extent 5"), ("[0:3,4:2]", "'4:2' .*after its stop"),
        ("[0:3,6:]", "'6:' .*after its stop"), ("[0:3,0:4:0]", "'0:4:0' .*at least 1"),
        ("[0:3,-1]", "'-1' .*negative"), ("[0:3,0:-1]", "'0:-1' .*negative"), ("[0:3,0:4:-1]", "negative"),
        ("[0:3,]", "neither an index"), ("[,0:3]", "neither an index"), ("[0:3,x]", "'x' .*neither"),
        ("[0:3,1:2:3:4]", "neither"), ("[0:3,1e3]", "neither"), ("[0:3,٣]", "neither"),
        ("[0:3,[1,2]", "not closed"), ("[0:3,[1,,2]]", "neither"), ("[0:3,[1:2]]", "neither"),
        ("[0:3,[[1]]]", "not closed|after the list|neither"), ("[0:3,[1]2]", "after the list"),
        ("[0:3,[1,9]]", "index 9, not below"), ("[[1,2],[1,2,3]]", "equal lengths"),
        ("[0:3," + "9" * 5000 + "]", "neither"), ("[" + "1," * 100 + "1]", "101 dimensions"),
    ],
)  # fmt: skip
def test_texts_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words) as caught:
        parse_select(text, (4, 5))
    assert len(caught.value.message) < 250


@given(st.text("[]:,0123456789-. x", max_size=12), extents(0, 3, least=0))
def test_any_text_selects_or_is_refused(text: str, extent: tuple[int, ...]) -> None:
    try:
        selection = parse_select(text, extent)
    except BadRequest:
        return
    assert selection.extent == extent
    assert len(iterate(selection)) == selection.size


def test_paired_lists_are_bounded() -> None:
    with pytest.raises(TooLarge, match="select"):
        parse_select("[[1,2],[1,2],:]", (4, 4, 2**40))
    assert most_paired(3) * 3 * 8 <= MAX_PAIRED_BYTES < (most_paired(3) + 1) * 3 * 8
    most = most_paired(3) // 2
    for parse in (parse_select, paired_bytes):
        for text, rank in (("[[],[],:]", 3), ("[[1,2],[1,2],:,5:5]", 4)):
            with pytest.raises(TooLarge, match="select"):
                parse(text, (9, 9, 2**40, 9)[:rank])
        with pytest.raises(TooLarge, match="select"):
            parse(f"[[1,2],[1,2],0:{most + 1}]", (4, 4, 2**40))
    assert MAX_PAIRED_BYTES - 48 < paired_bytes(f"[[1,2],[1,2],0:{most}]", (4, 4, 2**40)) <= MAX_PAIRED_BYTES


@pytest.mark.parametrize(
    "text",
    [
        "[[1,2],[3,0],0:6:4]",
        "[ [1,2], [3,0] , 1]",
        "[:,[0],[5]]",
        "[[1],0,0]",
        "[...]",
        "[[],[],0:3]",
    ],
)
def test_the_bytes_of_paired_lists_are_known_before_they_are_parsed(text: str) -> None:
    selection = parse_select(text, (4, 5, 6))
    nbytes = selection.coordinates.nbytes if isinstance(selection, Points) else 0
    assert paired_bytes(text, (4, 5, 6)) == nbytes


@pytest.mark.parametrize("rest", ["0:3", "0:1000", " " * 2 * MAX_SCANNED])
def test_of_long_lists_the_bytes_are_bounded(rest: str) -> None:
    column = ",".join(map(str, range(100_000)))
    text = f"[[{column}],[{column}],{rest}]"
    assert len(text) > MAX_SCANNED
    nbytes = paired_bytes(text, (10**6, 10**6, 10**6))
    assert 100_000 * (3 if ":3" in rest else 1) * 3 * 8 <= nbytes <= MAX_PAIRED_BYTES


@pytest.mark.parametrize("text", ["", "[[[", "[[1],[2]", "[[1],[2],x]", "[[1],[2],9:]", "[[1],[2]]"])
def test_what_cannot_be_parsed_takes_no_bytes(text: str) -> None:
    assert paired_bytes(text, (4, 5, 6)) == 0


@given(any_selections())
def test_texts_come_back(selection: Selection) -> None:
    try:
        text = format_select(selection)
    except Unsupported:
        lists = isinstance(selection, Orthogonal) and len(selection.extent) > 1
        assert lists or (isinstance(selection, Boxes) and len(selection.starts) > 1)
        return
    assert iterate(parse_select(text, selection.extent)) == iterate(selection)


def test_format_examples() -> None:
    assert format_select(Orthogonal.box((100,), (10,), (20,))) == "[10:20]"
    assert (
        format_select(Orthogonal((9, 9), (StridedSpan(1, 3, 2), np.array([4, 2], np.uint64))))
        == "[1:5:3,[4,2]]"
    )
    assert format_select(Points((9, 9), [[1, 2], [3, 4]])) == "[[1,3],[2,4]]"
    assert format_select(Boxes((9,), [[2]], [[4]])) == "[2:4]"
    assert format_select(Orthogonal.all(())) == "[...]"
    with pytest.raises(Unsupported, match="union of boxes"):
        format_select(Boxes((9,), [[2], [5]], [[4], [6]]))
