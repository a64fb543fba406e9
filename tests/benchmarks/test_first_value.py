"""`first-value`: each side reads the value, and every process is a sample."""

from __future__ import annotations

from pathlib import Path

from benchmarks import first_value
from benchmarks.first_value import OPENED, bare, fill, sample
from benchmarks.report import OURS
from tests.client.conftest import NUMBERS


def test_each_side_reads_the_value(embedded_url: str, tmp_path: Path) -> None:
    domain = f"/first-{next(NUMBERS)}.h5"
    places = (f"{embedded_url}{domain}", domain, embedded_url, "admin", "any")
    first_value.client.open(places[0], "x", user="admin", password="any")
    fill(places[0])
    samples = {side: sample(side, places, tmp_path) for side in OPENED} | {"bare": bare(tmp_path)}
    for side, found in samples.items():
        assert all(value > 0 for value in found.values())
        assert len(found) == (2 if side == "bare" else 6)
    ours = samples[OURS]
    parts = [ours[f"{what}, wall"] for what in ("import", "first value after the import")]
    assert sum(parts) < ours["the process, wall"]
