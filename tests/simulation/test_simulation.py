"""Whole clusters in one process, on virtual time and a seed: what clients were answered is linearizable."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.fixed_simulation import WEATHER, Run, run_fixed

ROOT = Path(__file__).parents[2]
SHARED = [("dn-001", "dn-002")] * 2
"""Two service nodes that know the same two data nodes: each object has one owner."""
RIVALS = [("dn-001",), ("dn-002",)]
"""Two service nodes that know one data node each: both data nodes serve every object."""


def failed(run: Callable[[int], Run], seeds: range) -> list[str]:
    """Return a report of each run that failed."""
    return [found.report() for found in map(run, seeds) if found.wrong]


def test_owners_that_are_killed_and_lose_requests(pytestconfig: pytest.Config) -> None:
    seeds = range(pytestconfig.getoption("seeds") // 4)
    assert failed(lambda seed: run_fixed(seed, SHARED, kills=2, rates=WEATHER), seeds) == []


def test_two_caches_of_an_object_are_found_out() -> None:
    wrong = [line for seed in range(5) for line in run_fixed(seed, RIVALS).wrong]
    assert any("read" in line for line in wrong)


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    program = (
        "from tests.simulation.fixed_simulation import run_fixed, WEATHER\n"
        "for seed in range(3):\n"
        "    run = run_fixed(seed, [('dn-001', 'dn-002')] * 2, kills=2, rates=WEATHER)\n"
        "    print(run.seconds, run.steps, run.faults, *run.history.operations, sep='\\n')\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONHASHSEED": number, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    }
    assert len(outputs) == 1
    assert "write" in outputs.pop()
