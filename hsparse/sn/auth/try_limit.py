"""A limit of tries in a time, for each name; what succeeded is forgiven."""

from __future__ import annotations

from collections import OrderedDict

from hsparse.clock import Clock


class TryLimit:
    """At most `most` tries of a name within `seconds` of its first one, for at most `names` names."""

    def __init__(self, most: int, seconds: float, names: int, clock: Clock) -> None:
        self._most = most
        self._seconds = seconds
        self._names = names
        self._clock = clock
        self._tries: OrderedDict[str, tuple[float, int]] = OrderedDict()  # name -> start, count; oldest first

    def wait(self, name: str) -> float:
        """Return the seconds until `name` may try again, 0 for at once."""
        now = self._clock.monotonic()
        start, count = self._tries.get(name, (now, 0))
        left = self._seconds - (now - start)
        return left if count >= self._most and left > 0 else 0.0

    def count(self, name: str) -> None:
        """Count a try."""
        now = self._clock.monotonic()
        start, count = self._tries.get(name, (now, 0))
        if now - start >= self._seconds:
            del self._tries[name]
            start, count = now, 0
        self._tries[name] = (start, count + 1)
        while len(self._tries) > self._names:
            self._tries.popitem(last=False)

    def forgive(self, name: str) -> None:
        """Take one try back, which has succeeded."""
        start, count = self._tries.get(name, (0.0, 0))
        if count > 1:
            self._tries[name] = (start, count - 1)
        else:
            self._tries.pop(name, None)

    def forget(self, name: str) -> None:
        """Take all tries of a name back."""
        self._tries.pop(name, None)
