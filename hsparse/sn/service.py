"""The components of a service node, made once and given to every request.

Tests: tests/sn/http/test_rate_limit.py, tests/sn/test_statistics.py.
"""

from __future__ import annotations

from typing import Any, Protocol, Self, TypeVar

from hsparse.clock import Clock
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.sn.auth.authenticator import Authenticator
from hsparse.sn.data_nodes import Owners
from hsparse.sn.http.rate_limit import RateLimit
from hsparse.sn.metrics import Metrics
from hsparse.sn.service_settings import ServiceSettings


class Component(Protocol):
    """State that the handlers of one folder share, such as a cache or a queue; there is one for each node.

    The service does not know the folders above it: each component says how it is made.
    """

    @classmethod
    def of(cls, service: Service) -> Self:
        """Make the component of a service node."""
        ...


C = TypeVar("C", bound=Component)


class Service:
    """What handlers reach through their context; `bodies` and `answers` are the memory they may use.

    A handler holds its body before its answer, never the other way round, so that none waits in a circle.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        owners: Owners,
        clock: Clock,
        authenticator: Authenticator,
        metrics: Metrics,
        start_time: float,
    ) -> None:
        self.settings = settings
        self.owners = owners
        self.clock = clock
        self.authenticator = authenticator
        self.metrics = metrics
        self.start_time = start_time
        self.bodies = MemoryBudget(settings.request_memory)
        self.answers = MemoryBudget(settings.answer_memory)
        self.rates = RateLimit(settings.rate_limit, settings.rate_burst, clock)
        self._components: dict[type[Component], Any] = {}

    def component(self, kind: type[C]) -> C:
        """Return the node's component of a class, made when it is first asked for."""
        found: C | None = self._components.get(kind)
        if found is None:
            found = self._components[kind] = kind.of(self)
        return found
