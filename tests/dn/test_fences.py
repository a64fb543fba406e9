"""Which chunk operations come too late."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from hsparse.dn.fences import Fences
from hsparse.dn.record_changes import DeletedNames
from hsparse.errors import Gone, Moved, NotFound
from hsparse.format.chunk_spec import ChunkSpec

SPEC = ChunkSpec("d-1", "H5T_STD_I8LE", (1,), False, b"", ((),))


class Records:
    """Generations as stored, and how often they were asked for."""

    def __init__(self, **generations: int) -> None:
        self.generations = {name.replace("_", "-"): value for name, value in generations.items()}
        self.asked: list[str] = []

    async def generation(self, dataset: str) -> int:
        self.asked.append(dataset)
        return self.generations.get(dataset, 0)


async def test_the_record_tells_what_was_before() -> None:
    records = Records(d_1=2)
    fences = Fences(records.generation)
    fences.check(SPEC)
    await fences.learn("d-1")
    await fences.learn("d-1")
    assert records.asked == ["d-1"]
    with pytest.raises(Moved):
        fences.check(replace(SPEC, generation=1))
    fences.check(replace(SPEC, generation=2))


async def test_the_newest_generation_heard_of_counts() -> None:
    fences = Fences(Records().generation)
    fences.check(replace(SPEC, generation=3))
    with pytest.raises(Moved):
        fences.check(replace(SPEC, generation=2))
    await fences.learn("d-1")
    with pytest.raises(Moved):
        fences.check(replace(SPEC, generation=2))


async def test_the_deleted_stay_deleted() -> None:
    fences = Fences(Records(d_1=1).generation)
    fences.refuse_deleted("d-1")
    await fences.learn("d-1")
    with pytest.raises(Gone):
        fences.check(replace(SPEC, generation=9))


async def test_what_is_forgotten_is_learnt_again() -> None:
    records = Records(d_1=1)
    fences = Fences(records.generation, limit=2)
    for dataset in ("d-1", "d-2", "d-3", "d-1"):
        await fences.learn(dataset)
    assert records.asked == ["d-1", "d-2", "d-3", "d-1"]
    with pytest.raises(Moved):
        fences.check(SPEC)


async def test_of_the_deleted_only_so_many_are_remembered() -> None:
    records = Records(d_1=1, d_2=1)
    fences = Fences(records.generation, limit=3)
    await fences.learn("d-1")
    for number in range(10, 100):
        fences.refuse_deleted(f"d-{number}")
    await fences.learn("d-1")
    assert records.asked == ["d-1", "d-1"]
    for number in (98, 99):
        with pytest.raises(Gone):
            fences.check(replace(SPEC, dataset=f"d-{number}"))
    fences.check(replace(SPEC, dataset="d-97"))


def test_long_names_of_what_was_deleted_take_no_more_memory() -> None:
    deleted = DeletedNames()
    tracemalloc.start()
    try:
        for number in range(1000):
            deleted.add("g-1", "attribute", f"{number}".rjust(1024, "\N{GRINNING FACE}"))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 300 * 1000
    name = "999".rjust(1024, "\N{GRINNING FACE}")
    assert isinstance(deleted.missing("It", "g-1", "attribute", name), Gone)
    deleted.remove("g-1", "attribute", name)
    assert isinstance(deleted.missing("It", "g-1", "attribute", name), NotFound)


async def test_a_record_is_read_although_a_message_has_told_its_generation() -> None:
    """The record may forbid changes, which no message tells."""
    records = Records(d_1=3)
    fences = Fences(records.generation)
    fences.check(replace(SPEC, generation=3))
    await fences.learn("d-1")
    await fences.learn("d-1")
    assert records.asked == ["d-1"]
    with pytest.raises(Moved):
        fences.check(replace(SPEC, generation=2))


async def test_a_node_that_does_not_hear_of_all_shrinks_reads_the_record_each_time() -> None:
    records, hears = Records(d_1=1), [False]
    fences = Fences(records.generation, hears_all=lambda: hears[0])
    await fences.learn("d-1")
    records.generations["d-1"] = 2
    await fences.learn("d-1")
    with pytest.raises(Moved):
        fences.check(replace(SPEC, generation=1))
    hears[0] = True
    await fences.learn("d-1")
    assert len(records.asked) == 2
