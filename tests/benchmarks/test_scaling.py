"""The tables of scaling: counted figures are those of the page, and every table can be made."""

from __future__ import annotations

import pytest

from benchmarks.scaling import cluster, cpu, profile
from benchmarks.scaling import growth as growths
from benchmarks.scaling.command import TITLES_OF_REQUESTS, table
from benchmarks.scaling.counts import growth, request_rows
from benchmarks.scaling.installation import Installation
from benchmarks.scaling.operations import OPERATIONS
from tests.docs_pages import rows

PAGE = "docs/scaling.md"


async def test_the_page_has_the_requests_of_every_operation() -> None:
    """After a change of the counts: `python -m benchmarks scaling`, and look why."""
    tables = [tuple(row) for row in rows(PAGE, TITLES_OF_REQUESTS[0])]
    assert [row for row in tables if len(row) == len(TITLES_OF_REQUESTS)] == await request_rows()


def test_counts_as_formulas() -> None:
    assert growth((6, 10, 18)) == "2 + n"
    assert growth((8, 16, 32)) == "2n"
    assert growth((3, 3, 3)) == "3"
    assert growth((16, 64, 256)) == "16/64/256"
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


async def test_cpu_is_measured_for_every_operation_and_request() -> None:
    async with Installation() as installation:
        for operation in OPERATIONS:
            assert await cpu.operation_seconds(installation, operation, 2, 1) > 0
    found = await cpu.many_chunks_rows((120,), 1)
    assert [row[0] for row in found] == list(cpu.FEW)


async def test_growth_is_measured() -> None:
    measured = await growths.object_rows((2, 3)), await growths.chunk_rows((2,))
    for (title, *_), found in zip(growths.TITLES, measured, strict=True):
        assert [row[0] for row in rows(PAGE, title)] == [row[0] for row in found]


@pytest.mark.parametrize("name", profile.HOT_PATHS)
async def test_each_hot_path_is_profiled(name: str) -> None:
    milliseconds, parts = await profile.measured(profile.HOT_PATHS[name], 2)
    assert milliseconds > 0
    assert sum(parts[part] for part in profile.TITLES[2:]) == pytest.approx(100)
    assert parts["HTTP"] > 0


async def test_the_page_has_every_hot_path() -> None:
    found = [row for row in rows("docs/performance.md", profile.TITLES[0]) if len(row) == len(profile.TITLES)]
    assert [row[0] for row in found] == list(profile.HOT_PATHS)
    for _, _, *percents in found:
        assert sum(map(int, percents)) == pytest.approx(100, abs=5)


def test_parts_are_named_by_files() -> None:
    assert profile.part_of("/x/hsparse/sn/http/stream.py") == "HTTP"
    assert profile.part_of("/x/hsparse/sn/routes.py") == "service node"
    assert profile.part_of("/x/json/decoder.py") == profile.OTHER


def test_clusters_are_simulated() -> None:
    ((nodes, idle, *_),) = cluster.join_rows((2,))
    assert (nodes, float(idle)) == ("2", 2.0)
    # One node's CPU is what limits it: a message takes 20 ms of it here.
    assert 40 <= cluster.throughput(1, reads=True, cpu=0.02) <= 52
