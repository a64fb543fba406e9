"""Timing of many requests with a fixed number in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Load:
    """The duration of all requests together and of each request, in seconds."""

    seconds: float
    latencies: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.latencies) / self.seconds

    def percentile(self, percent: float) -> float:
        """Return a percentile of the latencies in milliseconds."""
        return float(np.percentile(self.latencies, percent)) * 1e3


Action = Callable[[int], Awaitable[object]]


async def drive(job: Action, count: int, clients: int = 1) -> Load:
    """Run `job(0) ... job(count - 1)` with `clients` of them in flight; their results are dropped."""
    numbers = iter(range(count))
    latencies: list[float] = []

    async def client() -> None:
        for number in numbers:
            began = time.perf_counter()
            await job(number)
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return Load(time.perf_counter() - began, tuple(latencies))
