"""The settings of a data node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hsparse.machine_memory import machine_memory
from hsparse.setting import MIB, setting

CACHE_DIVISOR = 8
"""By default, the caches of all data nodes of one command take the machine's memory divided by this number.

The memory for decoding and encoding chunks is limited to the same amount.
"""
SMALLEST_CACHE = 128 * MIB
LARGEST_CACHE = 4096 * MIB
"""The least and the most bytes of a data node's cache; more memory is better used as the system's page cache."""
SMALLEST_CHUNK_MEMORY = 512 * MIB
"""The least memory for large chunks, in bytes: the largest dense chunk fits into it."""


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Limits of a data node (sizes are in bytes), and how often it looks for interrupted deletions.

    `cache_size` limits decoded chunks and records together, see `cache_bytes`. `chunk_memory` limits the memory of
    large chunks while they are loaded and encoded, and thereby the size of one chunk, see `chunk_bytes`. `pending_size`
    limits the values of writes that are accepted but not yet durable. `max_record_size` limits the JSON of one object's
    record. Changes to a record larger than `large_record_size` are stored beside the record. `messages_at_once` and
    `store_requests` limit concurrent messages and requests.
    """

    GROUP: ClassVar[str] = "Memory and limits"

    files: tuple[str, ...] = setting(
        (),
        "places with HDF5 files, comma-separated, each as NAME=PLACE or PLACE: a directory, s3://bucket/prefix or "
        "https://host/folder/; the files in a place are read-only domains below /NAME",
        group="Storage",
    )
    files_cache: Path | None = setting(
        None,
        "directory for a cache of those files' metadata, up to 1GiB; none: hsparse in $XDG_CACHE_HOME or "
        "~/.cache, unless --read-only",
        group="Storage",
    )
    cache_size: int | None = setting(
        None,
        "memory of a data node for decoded objects; none: an eighth of the machine's, 128MiB to 4GiB",
        ge=MIB,
        is_size=True,
    )
    chunk_memory: int | None = setting(
        None,
        "memory of a data node for large chunks while they are loaded and encoded: a chunk that takes more is "
        "refused; none: an eighth of the machine's, 512MiB to 4GiB",
        ge=MIB,
        is_size=True,
    )
    pending_size: int = setting(
        256 * MIB, "memory of a data node for writes not yet durable", ge=MIB, is_size=True
    )
    max_record_size: int = setting(
        32 * MIB,
        "largest record: the attributes and links of one object together",
        ge=64 * 1024,
        is_size=True,
    )
    sweep_interval: float = setting(
        600.0, "seconds between searches for interrupted deletions, which are then finished; 0: never", ge=0
    )
    messages_at_once: int = setting(
        256, "messages that a data node of a cluster answers concurrently", ge=1, le=100_000
    )
    store_requests: int = setting(64, "concurrent requests to a store", ge=1, le=10_000)
    large_record_size: int = 256 * 1024
    max_object_size: int = 5 * 1024 * MIB

    def cache_bytes(self, nodes: int = 1) -> int:
        """Return the cache size, in bytes, of each of `nodes` data nodes that share the machine's memory."""
        if self.cache_size is not None:
            return self.cache_size
        return _part_of_memory(SMALLEST_CACHE, nodes)

    def chunk_bytes(self, nodes: int = 1) -> int:
        """Return the memory for large chunks, in bytes, of each of `nodes` data nodes that share a machine's memory."""
        if self.chunk_memory is not None:
            return self.chunk_memory
        return _part_of_memory(SMALLEST_CHUNK_MEMORY, nodes)


def _part_of_memory(least: int, nodes: int) -> int:
    return min(max(least, machine_memory() // CACHE_DIVISOR // nodes), LARGEST_CACHE)
