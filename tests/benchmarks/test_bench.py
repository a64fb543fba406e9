"""Turns."""

from pathlib import Path

import pytest

from benchmarks.bench import Bench
from benchmarks.report import Report


@pytest.mark.parametrize("repeats", [1, 3])
async def test_sides_take_turns_and_another_begins_each_time(tmp_path: Path, repeats: int) -> None:
    told: list[str] = []
    taken: list[str] = []

    async def turn(name: str) -> None:
        taken.append(name)

    bench = Bench(tmp_path, tmp_path, frozenset(), repeats, True, Report(), told.append)
    await bench.in_turn("x", {name: lambda name=name: turn(name) for name in "ab"})  # type: ignore[misc]
    assert taken == list("abbaab")[: 2 * repeats]
    assert told[0] == f"x: a, repeat 1 of {repeats}"


async def test_the_bare_handler_answers_as_many_bytes_as_asked(tmp_path: Path) -> None:
    bench = Bench(tmp_path, tmp_path, frozenset({"bare"}), 1, True, Report(), lambda text: None)
    async with bench.sides("x", "bare", "hsds", "tiledb", "hsparse") as sides:
        assert sides.bare is not None
        assert sides.servers() == []
        child = sides.bare.children[0]
        (tmp_path / "x" / "some.h5").write_bytes(bytes(range(100)))
        async with sides.bare.rest() as rest:
            assert await rest.send("GET", "/static/some.h5") == bytes(range(100))
            for size in (0, 2, 2**20, 3 * 2**20 + 1):
                assert len(await rest.send("PUT", "/x", b"body", params={"bytes": str(size)})) == size
    assert child.process.returncode is not None
