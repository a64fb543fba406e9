"""Filter pipeline messages, against libhdf5's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.filters.definition import Filter
from hsparse.format.hdf5.filter_pipeline_message import decode_pipeline, encode_pipeline
from tests.format.hdf5.sample_messages import messages, reader

FILTERS = st.builds(
    Filter, st.integers(1, 65535), st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple), st.booleans()
)


def test_bytes_of_libhdf5_round_trip() -> None:
    found = messages(0x0B)
    assert {data[0] for data in found} == {1, 2}
    for data in found:
        pipeline = decode_pipeline(reader(data))
        assert pipeline
        assert encode_pipeline(pipeline, data[0]) == data


@given(st.lists(FILTERS, max_size=5).map(tuple), st.sampled_from([1, 2]))
def test_round_trip(pipeline: tuple[Filter, ...], version: int) -> None:
    data = encode_pipeline(pipeline, version)
    message = reader(data)
    assert decode_pipeline(message) == pipeline
    message.done("pipeline")


def test_limits() -> None:
    with pytest.raises(Corrupt, match="version 3 with 1 filters"):
        decode_pipeline(reader(b"\3\1"))
    with pytest.raises(Corrupt, match="33 filters"):
        decode_pipeline(reader(b"\2\x21"))
    with pytest.raises(BadRequest, match="32 filters, not 33"):
        encode_pipeline([Filter(1)] * 33)
