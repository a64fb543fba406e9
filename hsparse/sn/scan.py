"""What a domain or a dataset takes in the store, counted from the listing of its keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from hsparse.errors import ErrorKind
from hsparse.model.dataspace import num_elements
from hsparse.model.datatype import parse_type
from hsparse.model.objid import chunk_of_key, chunk_prefix, domain_prefix
from hsparse.sn.owners import Owners
from hsparse.sn.walk import READS_AT_ONCE
from hsparse.wire.message import ListKeys, Record

KEYS_AT_ONCE = 10_000
_SUMMED = ("num_chunks", "allocated_bytes", "logical_bytes", "linked_bytes", "num_linked_chunks")


@dataclass(slots=True)
class _Stored:
    """One dataset's share of a listing."""

    modified: float = 0.0
    chunks: int = 0
    size: int = 0


@dataclass(slots=True)
class _Tally:
    """What a listing has shown so far."""

    groups: int = 0
    datatypes: int = 0
    metadata: int = 0
    modified: float = 0.0
    datasets: dict[str, _Stored] = field(default_factory=dict)

    def add(self, key: str, size: int, modified: float) -> None:
        self.modified = max(self.modified, modified)
        name = key.rpartition("/")[2]
        if name in (".group.json", ".datatype.json"):
            self.groups += name == ".group.json"
            self.datatypes += name == ".datatype.json"
            self.metadata += size
            return
        if name != ".dataset.json" and chunk_of_key(key) is None:
            return
        stored = self.datasets.setdefault(dataset_of_key(key), _Stored())
        stored.modified = max(stored.modified, modified)
        if name == ".dataset.json":
            self.metadata += size
        else:
            stored.chunks += 1
            stored.size += size


async def scan_domain(owners: Owners, root: str) -> Record:
    """Return what `verbose` adds to a domain: numbers of objects and chunks, bytes, and `scan_info`."""
    tally = _Tally()
    async for key, size, modified in _keys(owners, domain_prefix(root)):
        tally.add(key, size, modified)
    datasets: Record = {}
    ids = sorted(tally.datasets)
    for first in range(0, len(ids), READS_AT_ONCE):
        some = ids[first : first + READS_AT_ONCE]
        for id, outcome in zip(some, await owners.read(*some), strict=True):
            if outcome.failure is not None and outcome.failure.kind in (ErrorKind.NOT_FOUND, ErrorKind.GONE):
                continue  # chunks that are left of a deleted dataset
            datasets[id] = _dataset_counts(outcome.unwrap(), tally.datasets[id])
    sums = {key: sum(one[key] for one in datasets.values()) for key in _SUMMED}
    sums |= {"num_groups": tally.groups, "num_datatypes": tally.datatypes, "metadata_bytes": tally.metadata}
    sums |= {"lastModified": tally.modified, "md5_sum": ""}
    objects = tally.groups + tally.datatypes + len(datasets) + sums["num_chunks"]
    return {
        **sums,
        "num_datasets": len(datasets),
        "num_objects": objects,
        "total_size": tally.metadata + sums["allocated_bytes"],
        "scan_info": {**sums, "datasets": datasets},
    }


def _dataset_counts(record: Record, stored: _Stored) -> Record:
    """Return a dataset's counts; of a variable-length type nothing but the stored bytes is known."""
    datatype = parse_type(record["type"])
    logical = num_elements(record["shape"]) * datatype.guessed_size
    return {
        "lastModified": stored.modified,
        "num_chunks": stored.chunks,
        "allocated_bytes": stored.size,
        "logical_bytes": stored.size if datatype.is_variable else logical,
        "linked_bytes": 0,
        "num_linked_chunks": 0,
    }


async def scan_dataset(owners: Owners, id: str) -> tuple[int, int]:
    """Return a dataset's number of stored chunks, and their bytes."""
    count = total = 0
    async for key, size, _ in _keys(owners, chunk_prefix(id)):
        if chunk_of_key(key) is not None:
            count, total = count + 1, total + size
    return count, total


def dataset_of_key(key: str) -> str:
    """Return the id of the dataset whose record or chunk `db/<uuid1>/d/<uuid2>/<name>` is."""
    _, first, _, second, _ = key.split("/")
    return f"d-{first}-{second}"


async def _keys(owners: Owners, prefix: str) -> AsyncIterator[tuple[str, int, float]]:
    marker = ""
    while True:
        listing = await owners.ask_any(ListKeys(prefix, start_after=marker, limit=KEYS_AT_ONCE))
        for entry in zip(listing.keys, listing.sizes, listing.modified, strict=True):
            yield entry
        if not listing.more or not listing.keys:
            return
        marker = listing.keys[-1]
