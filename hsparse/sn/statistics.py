"""Statistics of domains and datasets: numbers and bytes of objects in the store, from listings of keys.

A request starts a count and waits for it at most `COUNT_WAIT_SECONDS` seconds; the result is stored in `.info.json`.
The number of concurrent counts is limited for each user and in total.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from hsparse.clock import Clock
from hsparse.concurrency.request_trace import queue_user
from hsparse.errors import MISSING_KINDS, ErrorKind
from hsparse.model.dataspace import num_elements
from hsparse.model.datatype import parse_type
from hsparse.model.file_backed import SIZE
from hsparse.model.ids import (
    chunk_of_key,
    chunk_prefix,
    domain_prefix,
    is_delta_key,
    is_map_key,
    summary_id,
)
from hsparse.model.layout import class_elsewhere
from hsparse.sn.data_nodes.owners import Owners, key_pages
from hsparse.sn.records.object_path import read_each
from hsparse.sn.request import Domain, Request
from hsparse.sn.service import Service
from hsparse.sn.values.chunk_fanout import table_reader
from hsparse.sn.values.file_data import other_data
from hsparse.wire.message import Record
from hsparse.wire.record_message import PutRecord

MAX_LISTED = 10_000
"""The maximum number of datasets of a domain whose counts are stored one by one; the sums include all datasets."""
SUMMARY = ".info.json"
SUMMED = ("num_chunks", "allocated_bytes", "logical_bytes", "linked_bytes", "num_linked_chunks")
log = logging.getLogger(__name__)
COUNT_WAIT_SECONDS = 1.0
"""Seconds that an answer waits for a count; after that, the answer has the result of the last count."""
REUSE_RATIO = 4.0
"""If a count took longer than `COUNT_WAIT_SECONDS`, its result is reused for this many times the count's duration."""
SCANS_AT_ONCE = 8
SCANS_OF_USER = 3
"""The most concurrent counts of one user: fewer than `SCANS_AT_ONCE`, so that other users' counts can run."""
TIMES = ("scan_start", "scan_complete")


@dataclass(slots=True)
class _DatasetCount:
    """Counts of one dataset's keys: times in Unix seconds, `size` in bytes, `recorded` if its record was listed."""

    id: str
    modified: float = 0.0
    chunks: int = 0
    size: int = 0
    recorded: bool = False


@dataclass(slots=True)
class _Tally:
    """Counts of the keys listed so far. Keys are listed in order, so that the keys of a dataset are contiguous."""

    groups: int = 0
    datatypes: int = 0
    metadata: int = 0
    modified: float = 0.0
    datasets: list[_DatasetCount] = field(default_factory=list)

    def add(self, key: str, size: int, modified: float) -> None:
        name = key.rpartition("/")[2]
        if name == SUMMARY or is_map_key(key):
            return
        self.modified = max(self.modified, modified)
        if is_delta_key(key):
            self.metadata += size
            return
        if name in (".group.json", ".datatype.json"):
            self.groups += name == ".group.json"
            self.datatypes += name == ".datatype.json"
            self.metadata += size
            return
        if name != ".dataset.json" and chunk_of_key(key) is None:
            return
        id = dataset_of_key(key)
        if not self.datasets or self.datasets[-1].id != id:
            self.datasets.append(_DatasetCount(id))
        stored = self.datasets[-1]
        stored.modified = max(stored.modified, modified)
        if name == ".dataset.json":
            self.metadata += size
            stored.recorded = True
        else:
            stored.chunks += 1
            stored.size += size

    def finished(self, *, all: bool = False) -> list[_DatasetCount]:
        """Remove the datasets but the last, which may be incomplete, or `all`; return those that have a record."""
        count = len(self.datasets) if all else max(len(self.datasets) - 1, 0)
        done, self.datasets = self.datasets[:count], self.datasets[count:]
        # Chunks without a record are left over from a deleted dataset.
        return [stored for stored in done if stored.recorded]


async def scan_domain(owners: Owners, root: str) -> Record:
    """Return the summary of a domain for `.info.json`, without the times of the scan.

    The summary has the numbers of groups, datatypes, datasets and chunks, their bytes, a checksum of the listing, and
    the counts of each of the first `MAX_LISTED` datasets. Memory is bounded by these counts and one page of keys.
    """
    tally, digest = _Tally(), hashlib.md5(usedforsecurity=False)
    sums: Record = dict.fromkeys(SUMMED, 0)
    datasets: Record = {}
    count = 0
    async for page in key_pages(owners, domain_prefix(root)):
        for key, size, modified in page:
            tally.add(key, size, modified)
            if not key.endswith(SUMMARY) and not is_map_key(key):
                digest.update(f"{key} {size} {modified}\n".encode())
        count += await _fold(owners, tally.finished(), sums, datasets)
    count += await _fold(owners, tally.finished(all=True), sums, datasets)
    return {
        **sums,
        "num_groups": tally.groups,
        "num_datatypes": tally.datatypes,
        "num_datasets": count,
        "metadata_bytes": tally.metadata,
        "lastModified": tally.modified,
        "md5_sum": digest.hexdigest(),
        "datasets": datasets,
    }


async def _fold(owners: Owners, done: list[_DatasetCount], sums: Record, datasets: Record) -> int:
    """Add the counts of the datasets `done` to `sums` and `datasets`; return the number of datasets that exist."""
    count = 0
    async with aclosing(read_each(owners, [(one, one.id) for one in done])) as found:
        async for stored, outcome in found:
            if outcome.failure is not None and outcome.failure.kind in MISSING_KINDS:
                continue  # deleted since it was listed
            record = outcome.unwrap()
            counts = _dataset_counts(record, stored)
            if elsewhere := class_elsewhere(record):
                counts |= await other_data(elsewhere).counts(owners, record, table_reader(owners))
            count += 1
            for key in SUMMED:
                sums[key] += counts[key]
            if len(datasets) < MAX_LISTED:
                datasets[stored.id] = counts
    return count


def _dataset_counts(record: Record, stored: _DatasetCount) -> Record:
    """Return the counts of a dataset. The logical size of vlen elements is unknown, so the stored bytes are used."""
    datatype = parse_type(record["type"])
    logical = num_elements(record["shape"]) * datatype.guessed_size
    return {
        "lastModified": stored.modified,
        "num_chunks": stored.chunks,
        "allocated_bytes": stored.size,
        "linked_bytes": 0,
        "num_linked_chunks": 0,
        "logical_bytes": stored.size if datatype.is_vlen else logical,
    }


async def scan_dataset(owners: Owners, id: str) -> tuple[int, int]:
    """Return a pair: the number of a dataset's stored chunks, and their total bytes."""
    count = total = 0
    async for page in key_pages(owners, chunk_prefix(id)):
        for key, size, _ in page:
            if chunk_of_key(key) is not None:
                count, total = count + 1, total + size
    return count, total


def dataset_of_key(key: str) -> str:
    """Return the dataset id of a record's or chunk's key, `db/<uuid1>/d/<uuid2>/<name>`."""
    _, first, _, second, _ = key.split("/", 4)
    return f"d-{first}-{second}"


@dataclass(slots=True)
class _Scan:
    """A count under way, and the number of requests that wait for it. A `lasting` count runs on if no request waits."""

    task: asyncio.Task[Record]
    waiters: int = 0
    lasting: bool = False


class Statistics:
    """Counts the objects of domains, with at most one count of each domain at a time."""

    def __init__(self, owners: Owners, clock: Clock, bucket: str, *, keeps: bool = True) -> None:
        self._owners = owners
        self._clock = clock
        self._bucket = bucket
        self._keeps = keeps
        self._running: dict[str, _Scan] = {}
        self._places = asyncio.Semaphore(SCANS_AT_ONCE)
        self._places_of_users: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @classmethod
    def of(cls, service: Service) -> Statistics:
        """Make the statistics component of a service."""
        settings = service.settings
        return cls(service.owners, service.clock, settings.bucket, keeps=not settings.read_only)

    async def of_domain(self, root: str, *, lasting: bool = True) -> Record | None:
        """Return a domain's current summary or, if counting exceeds `COUNT_WAIT_SECONDS`, the stored summary or None.

        A count that takes longer continues if it is `lasting` or if there is no stored summary.
        """
        kept = await self._kept(root)
        if kept is not None and self._is_recent(kept):
            return kept
        try:
            async with asyncio.timeout(COUNT_WAIT_SECONDS):
                return await self.rescan(root, lasting=lasting or kept is None)
        except TimeoutError:
            return kept

    async def of_dataset(self, root: str, id: str) -> tuple[int, int] | None:
        """Return a pair: number and bytes of a dataset's chunks (after `COUNT_WAIT_SECONDS`: as stored, or None)."""
        try:
            async with asyncio.timeout(COUNT_WAIT_SECONDS):
                return await scan_dataset(self._owners, id)
        except TimeoutError:
            counts = ((await self._kept(root)) or {}).get("datasets", {}).get(id)
            return None if counts is None else (counts["num_chunks"], counts["allocated_bytes"])

    async def rescan(self, root: str, *, lasting: bool = True) -> Record:
        """Count a domain and return its summary, which includes everything stored before this call."""
        if root in self._running:
            # A count under way may have listed the keys before the last write.
            await asyncio.wait({self._running[root].task})
        scan = self._running.get(root)
        if scan is None:
            scan = self._running[root] = _Scan(asyncio.create_task(self._scan(root)))
            scan.task.add_done_callback(lambda done: self._ended(root, done))
        scan.lasting |= lasting
        scan.waiters += 1
        try:
            return await asyncio.shield(scan.task)
        finally:
            scan.waiters -= 1
            if not scan.waiters and not scan.lasting:
                scan.task.cancel()
            del scan  # the traceback of the task's error refers to this frame: avoid a reference cycle

    async def close(self) -> None:
        """Cancel all counts."""
        tasks = [scan.task for scan in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, root: str, task: asyncio.Task[Record]) -> None:
        del self._running[root]
        if not task.cancelled() and task.exception() is not None:
            log.warning("The domain of %s could not be counted: %s", root, task.exception())

    async def _scan(self, root: str) -> Record:
        async with self._place():
            started = self._clock.now()
            counted = await scan_domain(self._owners, root)
            summary = counted | {"bucket": self._bucket, "scan_start": started}
            summary["scan_complete"] = self._clock.now()
            if self._keeps:
                await self._keep(root, summary)
            return summary

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Wait until the user, and then the node, has fewer counts under way than the limits allow."""
        own = self._places_of_users.setdefault(queue_user(), asyncio.Semaphore(SCANS_OF_USER))
        async with own, self._places:
            yield

    async def _keep(self, root: str, summary: Record) -> None:
        """Store the summary if the domain still exists and the counts changed, or the count was slow."""
        there, kept = await self._owners.read(root, summary_id(root))
        known = kept.failure is None and _counts(kept.unwrap()) == _counts(summary)
        if there.failure is not None or (known and not _slow(summary)):
            return
        outcome = (await self._owners.change(PutRecord(summary_id(root), summary)))[0]
        if outcome.failure is not None and outcome.failure.kind != ErrorKind.FORBIDDEN:  # a read-only file
            # This is no error: without a stored summary, only the next answer is slower.
            log.warning("The summary of %s could not be stored: %s", root, outcome.failure.message)

    async def _kept(self, root: str) -> Record | None:
        outcome = (await self._owners.read(summary_id(root)))[0]
        if outcome.failure is not None and outcome.failure.kind in MISSING_KINDS:
            return None
        return outcome.unwrap()

    def _is_recent(self, kept: Record) -> bool:
        took = _time(kept, "scan_complete") - _time(kept, "scan_start")
        return _slow(kept) and self._clock.now() < _time(kept, "scan_complete") + REUSE_RATIO * took


async def statistics_json(request: Request, domain: Domain, root: str, *, lasting: bool = True) -> Record:
    """Return the keys that `verbose` adds to a domain. For a served file and `size_only`, this is only `total_size`."""
    record = domain.record
    on_disk = {"total_size": record[SIZE]} if SIZE in record else {}
    if on_disk and request.flag("size_only"):
        return on_disk
    summary = await request.service.component(Statistics).of_domain(root, lasting=lasting)
    return summary_json(summary, record.get("lastModified", 0)) | on_disk


def summary_json(summary: Record | None, modified: float) -> Record:
    """Return the keys that `verbose` adds to a domain modified at `modified`; without a summary all counts are 0."""
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
    return _time(summary, "scan_complete") - _time(summary, "scan_start") > COUNT_WAIT_SECONDS


def _time(summary: Record, key: str) -> float:
    value: Any = summary.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
