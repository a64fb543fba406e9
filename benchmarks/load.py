"""Requests in flight, timed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Load:
    """How long all requests took together, and each of them, in seconds."""

    seconds: float
    latencies: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.latencies) / self.seconds

    def percentile(self, percent: float) -> float:
        """Return a percentile of the latencies in milliseconds."""
        return float(np.percentile(self.latencies, percent)) * 1e3


Action = Callable[[int], Awaitable[object]]


async def drive(job: Action, count: int, clients: int = 1) -> Load:
    """Run `job(0) ... job(count - 1)` with `clients` of them in flight; what they return is dropped."""
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
