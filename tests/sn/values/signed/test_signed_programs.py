"""Random programs of writes, erasures, appends at both ends, and shrinks of either, against a dict of places."""

from __future__ import annotations

import pytest

from tests.sn.value_client import value_client
from tests.sn.values.signed.signed_model import LAYOUTS, run_program


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_program(layout: str, seed: int) -> None:
    async with value_client() as client:
        await run_program(client, layout, seed, 30)
