"""A data node of several buckets: one service for each store, over one cache, one budget and one pool of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from hsparse.dn.membership.ownership import Accepted
from hsparse.dn.service import DataService
from hsparse.errors import NotFound
from hsparse.wire.message import GetInfo, InBucket, Message, NodeInfo

R = TypeVar("R")


class BucketRouter:
    """`DataNode` over services by the names of their stores; a message that names no bucket is for the first.

    The services share their resources (`NodeResources.of_bucket`), so that the node's memory is bounded as for one.
    """

    def __init__(self, services: Sequence[DataService]) -> None:
        self._services = {service.bucket: service for service in services}
        self._first = services[0]
        self.id = self._first.id

    @property
    def buckets(self) -> tuple[str, ...]:
        """The names of the buckets, the first one first."""
        return tuple(self._services)

    async def send(self, message: Message[R], accepted: Accepted | None = None) -> R:
        """Give the message to the service of its bucket; `NotFound` for a bucket that is not here."""
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
        """See `DataService`."""
        for service in self._services.values():
            service.invalidate(kept)

    def counters(self) -> dict[str, int]:
        """Return the counters of all buckets together; the bytes are those of the one cache."""
        found = [service.counters() for service in self._services.values()]
        objects = sum(one["cached_objects"] for one in found)
        return {"cached_objects": objects, "cached_bytes": found[0]["cached_bytes"]}

    def forget_fences(self) -> None:
        """See `DataService`."""
        for service in self._services.values():
            service.forget_fences()

    async def close(self) -> None:
        """Finish the accepted changes of all buckets, then stop."""
        for service in self._services.values():
            await service.drain()
        for service in self._services.values():
            await service.close()
