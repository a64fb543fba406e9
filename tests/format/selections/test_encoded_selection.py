"""Section 0 against libhdf5 (through h5py), against numpy, and against broken bytes."""

from __future__ import annotations

import math
import struct
import zlib

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import encode_image
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
from hsparse.format.selections.points import Points, Selection
from hsparse.format.selections.selection_encoding import (
    blocks_size,
    encode_blocks,
    encode_offsets,
    encode_points,
)
from tests.format.selection_strategies import (
    any_selections,
    boxes,
    extents,
    iterate,
    offset_sets,
    points,
    spans,
)
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
    with pytest.raises(BadRequest, match="2 maximum dimensions for 1"):
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
    with pytest.raises(Corrupt, match="2147483648 elements for 3 values"):
        decode_offsets(data, (2**16, 2**15), 3)
    slab = Orthogonal((2**16, 2**15), (StridedSpan(0, 2, 2**15), StridedSpan.range(1, 2**15)))
    for version in (2, 3):
        with pytest.raises(Corrupt, match="for 3 values"):
            decode_offsets(encode_selection(slab, version), slab.extent, 3)
    starts, ends = np.array([[0, 0]], np.uint64), np.array([[2**16 - 1, 2**15 - 2]], np.uint64)
    with pytest.raises(Corrupt, match="for 3 values"):
        decode_offsets(encode_image(slab.extent, None, encode_blocks(starts, ends)), slab.extent, 3)


def test_another_extent_is_corrupt() -> None:
    data = encode_offsets(np.array([1], np.uint32), (5,))
    with pytest.raises(Corrupt, match=r"extent \[5\], the chunk of \[6\]"):
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
    with pytest.raises(Corrupt, match="followed by 1 bytes"):
        decode_selection(image + b"\0")
    with pytest.raises(Corrupt, match="followed by 1 bytes"):
        decode_offsets(image + b"\0", decode_selection(image).extent)
