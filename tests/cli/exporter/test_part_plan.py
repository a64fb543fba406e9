from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import TooLarge
from hsparse.hdf5.exporter.multipart_upload import CopySource
from hsparse.hdf5.exporter.part_plan import LIMITS, MIB, FileChunk, FilePart, Limits, plan_parts


def chunk(start: int, size: int, address: int = 0) -> FileChunk:
    return FileChunk(start, CopySource("bucket", f"db/{start}", "etag", address, size))


@st.composite
def files(draw: st.DrawFn) -> tuple[int, list[FileChunk], Limits]:
    """A file's size, its chunks, and limits that they meet."""
    least = draw(st.integers(1, 8))
    limits = Limits(
        least, draw(st.integers(2 * least, 60)), draw(st.integers(1, 60)), draw(st.integers(1, 20))
    )
    at, chunks = 0, []
    for gap, size, address in draw(
        st.lists(st.tuples(st.integers(0, 12), st.integers(0, 100), st.integers(0, 9)), max_size=20)
    ):
        chunks.append(chunk(at + gap, size, address))
        at += gap + size
    return at + draw(st.integers(0, 40)), chunks, limits


@given(files())
def test_parts_make_the_file(case: tuple[int, list[FileChunk], Limits]) -> None:
    size, chunks, limits = case
    try:
        parts = plan_parts(size, chunks, limits)
    except TooLarge:
        assert size > (limits.most - 1) * (limits.largest // 4)
        return
    assert len(parts) <= limits.most
    assert [0, *(part.stop for part in parts)] == [*(part.start for part in parts), size]
    assert all(part.size >= limits.least for part in parts[:-1])
    assert all(0 < part.size <= limits.largest for part in parts)
    of = {one.source.key: one for one in chunks}
    for part in parts:
        if part.source is not None:
            whole = of[part.source.key]
            assert part.source.size == part.size
            assert part.source.address - whole.source.address == part.start - whole.start >= 0
            assert part.stop <= whole.stop


@given(files())
def test_little_of_large_chunks_is_sent(case: tuple[int, list[FileChunk], Limits]) -> None:
    """Of a chunk that has two parts' bytes no more is sent than what lies before it lacks."""
    size, chunks, limits = case
    limits = Limits(limits.least, limits.largest, 10_000, limits.sent)
    parts = plan_parts(size, chunks, limits)
    for one in chunks:
        if one.source.size >= 2 * limits.least:
            copied = sum(
                part.size for part in parts if part.source is not None and part.source.key == one.source.key
            )
            assert one.source.size - copied < limits.least


def test_chunks_end_to_end_are_all_copied() -> None:
    start = 2 * MIB
    chunks = [chunk(start + number * 6 * MIB, 6 * MIB, 9) for number in range(4)]
    parts = plan_parts(chunks[-1].stop + 10, chunks)
    assert (
        [(part.start, part.source and part.source.key) for part in parts]
        == [
            (
                0,
                None,
            ),  # 2 MiB are no part: the first chunk goes with them, as 3 MiB of it would be none either
            *((one.start, one.source.key) for one in chunks[1:]),
            (chunks[-1].stop, None),
        ]
    )


def test_what_lies_before_a_large_chunk_has_some_of_it() -> None:
    parts = plan_parts(100 * MIB, [chunk(1000, 100 * MIB - 1000, 7)])
    least = LIMITS.least
    rest = CopySource("bucket", "db/1000", "etag", 7 + least - 1000, 100 * MIB - least)
    assert parts == (FilePart(0, least), FilePart(least, 100 * MIB, rest))


def test_a_chunk_that_no_part_holds() -> None:
    size = 12 * 1024 * MIB
    parts = plan_parts(size, [chunk(0, size)])
    assert [part.size for part in parts] == [size // 3] * 3
    assert all(part.source is not None for part in parts)


def test_more_chunks_than_parts() -> None:
    small = [chunk(number * 6 * MIB, 6 * MIB) for number in range(30_000)]
    parts = plan_parts(small[-1].stop, small)
    assert len(parts) <= 10_000
    assert all(part.source is None for part in parts)
    large = chunk(small[-1].stop, 1024 * MIB)
    assert plan_parts(large.stop, [*small, large])[-1].source is not None


def test_a_file_that_no_parts_hold() -> None:
    with pytest.raises(TooLarge, match="10000 parts"):
        plan_parts(10**14, [])
    assert len(plan_parts(15 * 1024**4, [])) <= 10_000
