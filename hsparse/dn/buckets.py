"""A data node that serves several buckets: one service per bucket, with a cache and memory budgets shared by all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from hsparse.dn.membership.member_ownership import Accepted
from hsparse.dn.service import DataService
from hsparse.errors import NotFound
from hsparse.wire.message import GetInfo, InBucket, Message, NodeInfo

R = TypeVar("R")


class BucketRouter:
    """A `DataNode` that sends each message to its bucket's service, or to the first service if no bucket is named.

    The services share their resources (`NodeResources.of_bucket`), so all buckets share the node's memory limits.
    """

    def __init__(self, services: Sequence[DataService]) -> None:
        self._services = {service.bucket: service for service in services}
        self._first = services[0]
        self.id = self._first.id

    @property
    def buckets(self) -> tuple[str, ...]:
        """The names of the buckets, in the order of the services."""
        return tuple(self._services)

    async def send(self, message: Message[R], accepted: Accepted | None = None) -> R:
        """Send the message to the service of its bucket; raise `NotFound` if this node does not serve the bucket."""
        if isinstance(message, InBucket):
            service = self._services.get(message.bucket)
            if service is None:
                raise NotFound(f"The bucket {message.bucket!r} is not served by the data node {self.id}.")
            reply: R = await service.send(message.message, accepted)
            return reply
        found = await self._first.send(message, accepted)
        if isinstance(message, GetInfo) and isinstance(found, NodeInfo):
            return replace(found, buckets=tuple(self._services))
        return found

    def invalidate(self, kept: Callable[[str], bool]) -> None:
        """Check cached objects of all buckets with the store before their next use; see `DataService.invalidate`."""
        for service in self._services.values():
            service.invalidate(kept)

    def counters(self) -> dict[str, int]:
        """Return `cached_objects`, summed over all buckets, and `cached_bytes` of the shared cache."""
        found = [service.counters() for service in self._services.values()]
        objects = sum(one["cached_objects"] for one in found)
        return {"cached_objects": objects, "cached_bytes": found[0]["cached_bytes"]}

    def forget_fences(self) -> None:
        """Forget the fences of all buckets; see `DataService.forget_fences`."""
        for service in self._services.values():
            service.forget_fences()

    async def close(self) -> None:
        """Complete the accepted changes of all buckets, then close their services."""
        for service in self._services.values():
            await service.drain()
        for service in self._services.values():
            await service.close()
