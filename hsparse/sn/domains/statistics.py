"""Statistics of domains: counted when they are asked for, kept in `.info.json`, never waited for long."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from hsparse.clock import Clock
from hsparse.errors import NOT_THERE
from hsparse.model.objid import summary_id
from hsparse.sn.domains.scan import SUMMED, scan_dataset, scan_domain
from hsparse.sn.owners import Owners
from hsparse.wire.message import Record
from hsparse.wire.record_message import PutRecord

log = logging.getLogger(__name__)

WAIT = 1.0
"""Seconds that an answer waits for a count; then it has the last one."""
REST = 4.0
"""A count that took longer than `WAIT` is good for so many times as long as it took."""
SCANS_AT_ONCE = 8
TIMES = ("scan_start", "scan_complete")


class Statistics:
    """Counts domains, each at most once at a time, and goes on counting when nobody waits any more."""

    def __init__(self, owners: Owners, clock: Clock, bucket: str) -> None:
        self._owners = owners
        self._clock = clock
        self._bucket = bucket
        self._running: dict[str, asyncio.Task[Record]] = {}
        self._gate = asyncio.Semaphore(SCANS_AT_ONCE)

    async def of_domain(self, root: str) -> Record | None:
        """Return a domain's summary, counted now or, if that takes too long, last; None when it never was."""
        kept = await self._kept(root)
        if kept is not None and self._rests(kept):
            return kept
        try:
            async with asyncio.timeout(WAIT):
                return await self.rescan(root)
        except TimeoutError:
            return kept

    async def of_dataset(self, root: str, id: str) -> tuple[int, int] | None:
        """Return a dataset's number of stored chunks and their bytes, as `of_domain` does."""
        try:
            async with asyncio.timeout(WAIT):
                return await scan_dataset(self._owners, id)
        except TimeoutError:
            counts = ((await self._kept(root)) or {}).get("datasets", {}).get(id)
            return None if counts is None else (counts["num_chunks"], counts["allocated_bytes"])

    async def rescan(self, root: str) -> Record:
        """Count a domain, all that was stored before this call, and return its summary."""
        if root in self._running:
            await asyncio.wait({self._running[root]})  # it may have passed by what is asked for
        task = self._running.get(root)
        if task is None:
            task = self._running[root] = asyncio.create_task(self._scan(root))
            task.add_done_callback(lambda done: self._ended(root, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Stop counting."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, root: str, task: asyncio.Task[Record]) -> None:
        del self._running[root]
        if not task.cancelled() and task.exception() is not None:
            log.warning("The domain of %s could not be counted: %s", root, task.exception())

    async def _scan(self, root: str) -> Record:
        async with self._gate:
            started = self._clock.now()
            counted = await scan_domain(self._owners, root)
            summary = counted | {"bucket": self._bucket, "scan_start": started}
            summary["scan_complete"] = self._clock.now()
            await self._keep(root, summary)
            return summary

    async def _keep(self, root: str, summary: Record) -> None:
        """Keep a summary that says something new, of a domain that is still there."""
        there, kept = await self._owners.read(root, summary_id(root))
        known = kept.failure is None and _counts(kept.unwrap()) == _counts(summary)
        if there.failure is not None or (known and not _slow(summary)):
            return
        outcome = (await self._owners.change(PutRecord(summary_id(root), summary)))[0]
        if outcome.failure is not None:
            # Only the next answer is slower for it.
            log.warning("The summary of %s could not be kept: %s", root, outcome.failure.message)

    async def _kept(self, root: str) -> Record | None:
        outcome = (await self._owners.read(summary_id(root)))[0]
        if outcome.failure is not None and outcome.failure.kind in NOT_THERE:
            return None
        return outcome.unwrap()

    def _rests(self, kept: Record) -> bool:
        took = _time(kept, "scan_complete") - _time(kept, "scan_start")
        return _slow(kept) and self._clock.now() < _time(kept, "scan_complete") + REST * took


def told(summary: Record | None, modified: float) -> Record:
    """Return what `verbose` adds to a domain that was `modified`; without a summary all counts are 0."""
    counts = summary or {}
    keys = (
        *(key for key in SUMMED if key != "logical_bytes"),
        "num_groups",
        "num_datatypes",
        "metadata_bytes",
    )
    shown: Record = {key: counts.get(key, 0) for key in keys}
    datasets = counts.get("datasets") or {}
    shown["num_datasets"] = counts.get("num_datasets", len(datasets))
    objects = ("num_groups", "num_datatypes", "num_datasets", "num_chunks")
    shown["num_objects"] = sum(shown[key] for key in objects)
    shown["total_size"] = shown["metadata_bytes"] + shown["allocated_bytes"]
    shown["md5_sum"] = counts.get("md5_sum", "")
    shown["lastModified"] = max(modified, counts.get("lastModified", 0.0))
    return shown | ({} if summary is None else {"scan_info": summary})


def _counts(summary: Record) -> Record:
    return {key: value for key, value in summary.items() if key not in TIMES}


def _slow(summary: Record) -> bool:
    return _time(summary, "scan_complete") - _time(summary, "scan_start") > WAIT


def _time(summary: Record, key: str) -> float:
    value: Any = summary.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
