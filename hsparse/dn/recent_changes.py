"""Which domains had their objects changed lately: a client that is told all of such a domain would keep it as it is."""

from __future__ import annotations

from collections import OrderedDict

from hsparse.clock import Clock
from hsparse.model.ids import domain_hex

MAX_DOMAINS = 10_000
"""The most domains that are remembered, those that changed last."""


class RecentChanges:
    """The time of the last change of each domain's objects that this node has made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: OrderedDict[str, float] = OrderedDict()

    def note(self, id: str) -> None:
        """Note a change of an object now."""
        domain = domain_hex(id)
        self._times[domain] = self._clock.now()
        self._times.move_to_end(domain)
        if len(self._times) > MAX_DOMAINS:
            self._times.popitem(last=False)

    def settle(self, root: str) -> None:
        """Answer `SettleChanges`."""
        self._times.pop(domain_hex(root), None)

    def within(self, root: str, seconds: float) -> bool:
        """Answer `ChangedLately`."""
        last = self._times.get(domain_hex(root))
        return last is not None and self._clock.now() - last < seconds
