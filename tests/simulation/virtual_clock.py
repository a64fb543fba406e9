"""The clock of a simulated process: virtual time, a seed's tokens, and a time of day that jumps."""

from __future__ import annotations

import random

from tests.simulation.virtual_loop import VirtualLoop

EPOCH = 1_700_000_000.0


class VirtualClock:
    """A `Clock`. Monotonic clocks of two processes have nothing to do with each other, as on two machines."""

    def __init__(self, loop: VirtualLoop, generator: random.Random) -> None:
        self._loop = loop
        self._generator = generator
        self._boot = generator.uniform(0, 1e6)
        self._offset = generator.uniform(-1, 1)

    def now(self) -> float:
        return EPOCH + self._loop.time() + self._offset

    def monotonic(self) -> float:
        return self._boot + self._loop.time()

    def token(self, nbytes: int) -> bytes:
        return self._generator.randbytes(nbytes)

    def jump(self, seconds: float) -> None:
        """Set the time of day forward, or back."""
        self._offset += seconds
