"""Random programs of writes, erasures, appends at both ends, and shrinks of either, against a dict of places."""

from __future__ import annotations

import pytest

from hsparse.sn.records import dataset
from tests.sn.value_client import value_client
from tests.sn.values.signed.signed_model import LAYOUTS, run_program


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_program(monkeypatch: pytest.MonkeyPatch, layout: str, seed: int) -> None:
    monkeypatch.setattr(dataset, "FIRST_KEYS", 1 + seed % 3)  # what is dropped is sought in several pages
    monkeypatch.setattr(dataset, "MOST_ASKED", (0, 0, 3, 100)[seed % 4])
    monkeypatch.setattr(dataset, "MOST_SOUGHT", (3, 100)[seed % 2])
    async with value_client() as client:
        await run_program(client, layout, seed, 30)
