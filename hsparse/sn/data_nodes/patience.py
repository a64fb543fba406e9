"""How long a service node waits for a data node before it asks another one (hedged requests).

Dean and Barroso, "The Tail at Scale", 2013: a second request after the 95th percentile costs a few more requests, and
cuts off the slowest answers. Where all nodes are slow because they have too much to do, it would double what they have
to do: so no more than a part of the reads is hedged, as in gRPC's retry throttling.
"""

from __future__ import annotations

from collections import deque

WINDOW = 256
"""The reads whose times are remembered."""
RENEWED = 32
"""The percentile is computed anew after so many reads."""
PERCENTILE = 0.95
LEAST = 0.1
"""Seconds below which a read never counts as slow: reading from the store takes as long."""
MOST = 2.0
HEDGED = 0.1
"""The part of the reads that may be sent to another node because they take long."""
MOST_SAVED = 100.0
"""How many may be at once, after enough that were not: until a node that hangs is taken over from."""


class Patience:
    """The times that reads took lately, and what follows from them."""

    WITH_CHANGES = 1.0
    """Seconds after which another node is asked to find out whether the owner is there."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=WINDOW)
        self._noted = 0
        self._saved = MOST_SAVED
        self.with_reads = MOST / 2
        """Seconds after which another node is asked to read too."""

    def note(self, seconds: float) -> None:
        """Note how long a read took."""
        self._seconds.append(seconds)
        self._saved = min(self._saved + HEDGED, MOST_SAVED)
        self._noted += 1
        if self._noted % RENEWED == 0:
            ordered = sorted(self._seconds)
            slow = ordered[int(PERCENTILE * (len(ordered) - 1))]
            self.with_reads = min(max(slow, LEAST), MOST)

    def may_hedge(self) -> bool:
        """Say whether one more read may be sent to another node because it takes long; it counts if so."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True
