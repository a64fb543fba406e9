"""Filter pipeline messages against libhdf5's, and those of sections: golden bytes, three variants, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.filters.definition import Filter
from hsparse.hdf5.format.messages.filter_pipeline_message import (
    MESSAGES,
    decode_pipeline,
    decode_section_pipelines,
    encode_pipeline,
    encode_section_pipelines,
    is_section_pipelines,
)
from tests.format.hdf5.messages.test_structured_layout import DATASETS, golden
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


DEFLATE, SHUFFLE = Filter(1, (6,)), Filter(2, (4,))
ANNOTATED = bytes.fromhex(
    "0102 00010a00 010001000100 06000000 01021400 020001000100 04000000 010001000100 06000000"
)
filters = st.builds(
    Filter,
    st.integers(0, 2**16 - 1),
    st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple),
    st.booleans(),
)
pipelines = st.lists(st.lists(filters, max_size=4).map(tuple), min_size=2, max_size=3).map(tuple)


@pytest.mark.parametrize("name", DATASETS)
def test_messages_of_the_golden_files_are_written_again(name: str) -> None:
    revision = FormatRevision.RFC_2025_10 if name.startswith("rfc") else FormatRevision.LIB_2026_09
    found = [dataset for dataset in golden(name)[1] if dataset.filters is not None]
    assert found
    for dataset in found:
        kind, body = dataset.filters or (0, b"")
        assert (kind, body[0]) == MESSAGES[revision]
        assert encode_section_pipelines(dataset.pipelines, revision) == body


def test_the_annotated_message() -> None:
    wanted = ((DEFLATE,), (SHUFFLE, DEFLATE))
    assert decode_section_pipelines(ANNOTATED, 2) == wanted
    assert decode_section_pipelines(ANNOTATED + bytes(6), 3) == (*wanted, ())
    assert encode_section_pipelines(wanted) == ANNOTATED


@given(pipelines, st.sampled_from(list(FormatRevision)))
def test_pipelines_come_back(found: tuple[tuple[Filter, ...], ...], revision: FormatRevision) -> None:
    body = encode_section_pipelines(found, revision)
    assert is_section_pipelines(MESSAGES[revision][0], body)
    assert decode_section_pipelines(body, len(found)) == found
    assert decode_section_pipelines(body + b"\0\0\0", len(found)) == found


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\2" + ANNOTATED[1:], "version 2"),
        (ANNOTATED[:2] + b"\2" + ANNOTATED[3:], "section 2"),
        (ANNOTATED[:2] + b"\1" + ANNOTATED[3:], "section 1 after section 1"),
        (ANNOTATED[:3] + b"\41" + ANNOTATED[4:], "33 for section 0"),
    ],
)
def test_impossible_messages_are_corrupt(body: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        decode_section_pipelines(body, 2)


def test_a_message_that_ends_early_is_corrupt() -> None:
    for end in range(len(ANNOTATED)):
        with pytest.raises(Corrupt, match=r"sections' filters ends inside"):
            decode_section_pipelines(ANNOTATED[:end], 2)


@given(st.binary(max_size=120), st.integers(2, 3))
def test_any_bytes_end_in_an_error_or_pipelines(body: bytes, sections: int) -> None:
    try:
        found = decode_section_pipelines(body, sections)
    except Corrupt:
        return
    assert len(found) == sections


def test_more_filters_than_hdf5_has_are_refused() -> None:
    with pytest.raises(BadRequest, match="33 filters"):
        encode_section_pipelines(((), (DEFLATE,) * 33))
