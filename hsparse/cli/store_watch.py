"""Readiness of the buckets of a process, for `/readyz`: a bucket whose last operation failed is listed as a probe."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from hsparse.clock import Clock, Reminder
from hsparse.errors import HsparseError, Misconfigured
from hsparse.storage.object_store import PROBE_PREFIX

log = logging.getLogger(__name__)

PROBE_SECONDS = 1.0
"""Seconds between probes of a failing bucket, and the maximum duration of a probe."""


class StoreWatch:
    """Watches buckets; only buckets whose last operation failed get extra requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: list[Any] = []
        self._next_look = 0.0
        self._reminder = Reminder(clock)

    def add(self, bucket: Any) -> None:
        """Add a bucket (a `BucketClient`) that has the method `list` to the watched buckets."""
        self._buckets.append(bucket)

    async def error(self) -> Misconfigured | None:
        """Return an error that says why a bucket does not answer, or None if all buckets answer."""
        troubled = [bucket for bucket in self._buckets if bucket.trouble is not None]
        if troubled and self._clock.monotonic() >= self._next_look:
            self._next_look = self._clock.monotonic() + PROBE_SECONDS
            for bucket in troubled:
                with suppress(HsparseError, TimeoutError):  # the bucket keeps the error in `trouble`
                    async with asyncio.timeout(PROBE_SECONDS):
                        async for _ in bucket.list(PROBE_PREFIX):
                            break
        for bucket in troubled:
            if bucket.trouble is not None:
                if self._reminder.is_due(bucket.trouble):
                    log.error("this node is not ready: %s", bucket.trouble)
                return Misconfigured(bucket.trouble)
        return None
