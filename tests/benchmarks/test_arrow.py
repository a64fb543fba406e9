"""Points survive an Arrow stream."""

import io

import nanoarrow as na
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nanoarrow import c_array_from_buffers, ipc
from nanoarrow.c_array_stream import CArrayStream

from benchmarks import arrow
from benchmarks.workloads.points import PointData


@given(st.integers(1, 4), st.integers(0, 50), st.sampled_from(sorted(arrow.TYPES)))
def test_what_is_encoded_decodes_to_the_same_columns(rank: int, count: int, dtype: str) -> None:
    rng = np.random.default_rng(count)
    coords = tuple(rng.integers(0, 2**40, count).astype(np.uint64) for _ in range(rank))
    points = PointData(coords, rng.integers(0, 200, count).astype(dtype))
    found = arrow.decode(arrow.encode(points))
    assert len(found.coords) == rank
    assert found.values.dtype == points.values.dtype
    for ours, theirs in zip((*points.coords, points.values), (*found.coords, found.values), strict=True):
        assert np.array_equal(ours, theirs)


def test_columns_of_several_batches_are_joined() -> None:
    out = io.BytesIO()
    schema = na.struct({"dim_0": na.uint64(), "value": na.float64()})
    with ipc.StreamWriter.from_writable(out) as writer:
        pieces = []
        for start in (0, 3):
            column = np.arange(start, start + 3, dtype=np.uint64)
            children = [
                c_array_from_buffers(na.uint64(), 3, [None, column]),
                c_array_from_buffers(na.float64(), 3, [None, column / 2]),
            ]
            pieces.append(c_array_from_buffers(schema, 3, [None], children=children))
        writer.write_stream(CArrayStream.from_c_arrays(pieces, na.c_schema(schema)))
    found = arrow.decode(out.getvalue())
    assert found.coords[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert found.values.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]


def test_a_stream_without_values_is_refused() -> None:
    stream = arrow.encode(PointData((), np.arange(3, dtype=np.uint8))).replace(b"value", b"valve")
    with pytest.raises(ValueError, match="value"):
        arrow.decode(stream)
