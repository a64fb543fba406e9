"""The guess whether the next chunk is new."""

from __future__ import annotations

from hsparse.dn.chunks import MAX_DATASETS, NEW_CHUNKS_STREAK, NewChunkStreaks


def test_a_streak_of_new_chunks_lets_expect_more_until_one_was_there() -> None:
    new = NewChunkStreaks()
    for number in range(NEW_CHUNKS_STREAK + 3):
        assert new.expects("d-1") == (number >= NEW_CHUNKS_STREAK)
        new.note("d-1", True)
    assert not new.expects("d-2")
    new.note("d-1", False)
    assert not new.expects("d-1")


def test_datasets_that_were_not_written_to_for_long_are_forgotten() -> None:
    new = NewChunkStreaks()
    for _ in range(NEW_CHUNKS_STREAK):
        new.note("old", True)
    for number in range(MAX_DATASETS - 1):
        new.note(f"d-{number}", True)
    assert new.expects("old")
    new.note("one more", True)
    assert not new.expects("old")
