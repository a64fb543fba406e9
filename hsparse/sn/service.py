"""The components of a service node, which all requests share."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Protocol, Self, TypeVar, cast

from hsparse.clock import Clock
from hsparse.concurrency.admission import Admission
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.errors import NotFound
from hsparse.format.selections.select_syntax import MAX_PAIRED_BYTES
from hsparse.sn.auth.authenticator import Authenticator
from hsparse.sn.body_memory import BodyBudget
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.metrics import Metrics
from hsparse.sn.service_settings import ServiceSettings

SELECTION_MEMORY = 4 * MAX_PAIRED_BYTES
"""Bytes of the points of paired lists, of which a short request can name many: those of four requests, or of more."""


class Component(Protocol):
    """State that outlives a request, such as a cache or a queue; there is one for each node.

    The service does not know the folders above it, so each component has its own factory.
    """

    @classmethod
    def of(cls, service: Service) -> Self:
        """Make the component of a service node."""
        ...


C = TypeVar("C", bound=Component)
P = TypeVar("P")


class Components(Protocol):
    """Returns the component of a class."""

    def __call__(self, kind: type[C], /) -> C: ...


def _components(service: Service) -> Components:
    """Return what makes each component of a service when it is first asked for."""

    class Cache(dict[type[Component], Any]):
        def __missing__(self, kind: type[Component]) -> Any:
            made = self[kind] = kind.of(service)
            return made

    return cast("Components", Cache().__getitem__)


class Service:
    """The components that handlers use; `bodies`, `selections` and `answers` are memory budgets.

    A handler reserves memory for its body before that for its selection, and this before that for its answer, not
    after, to avoid a deadlock. Nothing that has a place, which `admission` gives, waits for memory for its body.
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
        self.bodies = BodyBudget(settings.request_memory)
        self.selections = MemoryBudget(SELECTION_MEMORY)
        self.answers = MemoryBudget(settings.answer_memory)
        self.admission = Admission(settings.requests_at_once, metrics.watcher)
        metrics.show(self.admission)
        self.named_bucket: str | None = None
        """The bucket if requests must name it, None for the first one."""
        self.component = _components(self)
        """Returns the node's component of a class; the first call makes it."""
        self.provides: dict[Any, type[Component]] = {}
        """The components of extensions, by the protocol that the core has for them."""
        self.about: dict[str, Any] = {}
        """What extensions say of the server."""
        self.ready = True
        """Whether requests should be sent here. A node that is about to stop is not ready, and answers all the same."""
        self._first: Service = self
        self._others: dict[str, Service] = {}

    def of_bucket(self, bucket: str) -> Service:
        """Return the service of a bucket: itself for its own, another with the same limits for one of the others.

        `NotFound` for a bucket that is not served.
        """
        first = self._first
        if bucket == first.settings.bucket:
            return first
        if bucket not in first.settings.other_buckets:
            raise NotFound(f"The bucket {bucket!r} is not served here.")
        other = first._others.get(bucket)
        if other is None:
            other = first._others[bucket] = copy(first)
            other.settings = replace(first.settings, bucket=bucket, directory="")
            other.owners = first.owners.of_bucket(bucket)
            other.named_bucket = bucket
            other.component, other._others = _components(other), {}
        return other

    def provided(self, protocol: Callable[..., P]) -> P | None:
        """Return the component of an extension that implements a protocol of the core, None without one."""
        kind = self.provides.get(protocol)
        return None if kind is None else cast("P", self.component(kind))

    @property
    def buckets(self) -> tuple[str, ...]:
        """The names of all buckets that are served."""
        return (self._first.settings.bucket, *self._first.settings.other_buckets)

    def end_soon(self) -> None:
        """Be ready no more: from now on each answer closes its connection, so that clients go to another node."""
        for one in self._first.all_buckets():
            one.ready = False

    def all_buckets(self) -> list[Service]:
        """Return the services of all buckets that were asked for, this one first."""
        return [self, *self._others.values()]
