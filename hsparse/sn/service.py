"""The service of a node: the components that all requests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from types import MappingProxyType
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
"""Bytes for the points of selections by paired lists: enough for four of the largest selections."""


class Component(Protocol):
    """State that outlives a request, such as a cache or a queue; each `Service` (node and bucket) has one instance.

    This module must not import the packages of the components, so each component class has its own factory.
    """

    @classmethod
    def of(cls, service: Service) -> Self:
        """Make the component for `service`."""
        ...


NONE_ADDED: Mapping[type, Any] = MappingProxyType({})
C = TypeVar("C", bound=Component)
P = TypeVar("P")


class Service:
    """The components that handlers use for one bucket; `bodies`, `selections` and `answers` are memory budgets.

    To avoid deadlocks, a request reserves memory in this order: for its body, its selection, its answer. A request
    gives up its place in `admission` while it waits for memory for its body.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        owners: Owners,
        clock: Clock,
        authenticator: Authenticator,
        metrics: Metrics,
        start_time: float,
        added: Mapping[type, Any] = NONE_ADDED,
    ) -> None:
        self.settings = settings
        self._added = added
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
        """The bucket's name if requests must name it, or None for the first bucket."""
        self._components: dict[type[Component], Any] = {}
        self.provides: dict[Any, type[Component]] = {}
        """The component classes of extensions, by the protocol of the core that they implement."""
        self.about: dict[str, Any] = {}
        """The keys that extensions add to `/about`."""
        self.ready = True
        """Whether load balancers should send requests to this node. A node that is about to stop still answers."""
        self._first: Service = self
        self._others: dict[str, Service] = {}

    def of_bucket(self, bucket: str) -> Service:
        """Return the service of a bucket; the services of all buckets share their limits.

        Raises `NotFound` if the bucket is not served.
        """
        first = self._first
        if bucket == first.settings.bucket:
            return first
        if bucket not in first.settings.other_buckets:
            raise NotFound(f"The bucket {bucket!r} is not served here: name another bucket.")
        other = first._others.get(bucket)
        if other is None:
            other = first._others[bucket] = copy(first)
            other.settings = replace(first.settings, bucket=bucket, directory="")
            other.owners = first.owners.of_bucket(bucket)
            other.named_bucket = bucket
            other._components, other._others = {}, {}
        return other

    def section(self, kind: type[P]) -> P:
        """Return the extension settings of class `kind`, or its defaults if no such settings were given."""
        found: P = self._added.get(kind) or kind()
        return found

    def component(self, kind: type[C]) -> C:
        """Return this service's component of a class; the first call makes it."""
        made: C | None = self._components.get(kind)
        if made is None:
            made = self._components[kind] = kind.of(self)
        return made

    def provided(self, protocol: Callable[..., P]) -> P | None:
        """Return the extension's component that implements `protocol`, or None if no extension implements it."""
        kind = self.provides.get(protocol)
        return None if kind is None else cast("P", self.component(kind))

    @property
    def buckets(self) -> tuple[str, ...]:
        """The names of all buckets that this node serves."""
        return (self._first.settings.bucket, *self._first.settings.other_buckets)

    def end_soon(self) -> None:
        """Mark the node as not ready: each answer then closes its connection, so that clients go to another node."""
        for one in self._first.all_buckets():
            one.ready = False

    def all_buckets(self) -> list[Service]:
        """Return this service and the services of the other buckets that requests have named so far."""
        return [self, *self._others.values()]
