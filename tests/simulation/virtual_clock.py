"""The clocks of a simulated process: virtual time, a seed's tokens, and clocks that jump, drift and stand."""

from __future__ import annotations

import random

from tests.simulation.virtual_loop import VirtualLoop

EPOCH = 1_700_000_000.0


class _Seconds:
    """Seconds as a clock counts them, `rate` a second."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._count = self._since = 0.0
        self._rate = 1.0

    def read(self) -> float:
        return self._count + self._rate * (self._loop.time() - self._since)

    def go_at(self, rate: float) -> None:
        if rate == self._rate:  # else a run would differ by what is rounded
            return
        self._count, self._since, self._rate = self.read(), self._loop.time(), rate


class VirtualClock:
    """A `Clock`. Monotonic clocks of two processes have nothing to do with each other, as on two machines."""

    def __init__(self, loop: VirtualLoop, generator: random.Random) -> None:
        self._generator = generator
        self._boot = generator.uniform(0, 1e6)
        self._offset = generator.uniform(-1, 1)
        self._monotonic = _Seconds(loop)
        self._day = _Seconds(loop)
        self._drift = 1.0

    def now(self) -> float:
        return EPOCH + self._day.read() + self._offset

    def monotonic(self) -> float:
        return self._boot + self._monotonic.read()

    def token(self, nbytes: int) -> bytes:
        return self._generator.randbytes(nbytes)

    def jump(self, seconds: float) -> None:
        """Set the time of day forward, or back."""
        self._offset += seconds

    def drift(self, rate: float, *, both: bool = False) -> None:
        """Let the monotonic clock go at so many seconds a second, and the time of day, too, if `both`."""
        self._drift = rate
        self._monotonic.go_at(rate)
        if both:
            self._day.go_at(rate)

    def stand(self) -> None:
        """Stop the monotonic clock, as a suspended machine does where there is no clock of the time since boot."""
        self._monotonic.go_at(0.0)

    def go_on(self) -> None:
        """Let the monotonic clock go on."""
        self._monotonic.go_at(self._drift)
