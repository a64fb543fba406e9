"""The estimate of what JSON takes, against what Python's allocator says."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from hsparse.sn.http.request import WIDE, value_memory

COUNT = 20_000


@pytest.mark.parametrize(
    "value",
    [
        [f"{number:x}" for number in range(COUNT)],
        {f"{number:x}": number for number in range(COUNT)},
        [1.25] * COUNT,
        [number + 1000 for number in range(COUNT)],
        [[]] * COUNT,
        [[number / 7, number] for number in range(COUNT)],
        [{"a": number} for number in range(COUNT)],
        [{}] * COUNT,
        "é" * COUNT,
        "x" * COUNT + "\U0001f600",
    ],
    ids=lambda value: json.dumps(value)[:24],
)
@pytest.mark.parametrize("plain", [True, False])
async def test_the_estimate_is_no_less_than_the_memory(value: Any, plain: bool) -> None:
    data = json.dumps(value, ensure_ascii=plain, separators=(",", ":")).encode()
    tracemalloc.start()
    try:
        parsed = json.loads(data)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert parsed == value
    assert taken <= await value_memory(data) <= 5 * taken + WIDE * len(data)
