"""Settings of a data node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hsparse.machine_memory import machine_memory
from hsparse.setting import MIB, setting

CACHE_DIVISOR = 8
"""The part of the memory that the caches of all data nodes of a command take, unless a size is given.

Chunks that are decoded or encoded take as much at the most."""
SMALLEST_CACHE = 128 * MIB
LARGEST_CACHE = 4096 * MIB
"""Bounds of that, for a data node: beyond it the memory serves better as the page cache of all programs."""
SMALLEST_CHUNK_MEMORY = 512 * MIB
"""A dense chunk of the largest size fits."""


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Limits of a data node, in bytes where a size is meant, and how often it sweeps.

    `cache_size` bounds decoded chunks and records together, see `cache_bytes`; `chunk_memory` bounds what large chunks
    take while they are loaded and encoded, and so one chunk, see `chunk_bytes`; `pending_size` bounds the values of
    writes that are accepted but not yet durable; `max_record_size` is that of one object's record, as JSON. Changes
    of a record of more than `large_record_size` are stored beside it.
    `messages_at_once` and `store_requests` bound what is under way.
    """

    GROUP: ClassVar[str] = "Memory and limits"

    files: tuple[str, ...] = setting(
        (),
        "places with HDF5 files, comma-separated, each as NAME=PLACE or PLACE, a directory, s3://bucket/prefix or "
        "https://host/folder/: the files below it are domains below /NAME, which are only read",
        group="Storage",
    )
    files_cache: Path | None = setting(
        None,
        "directory in which what is known of those files is kept, up to 1GiB; none: hsparse in $XDG_CACHE_HOME or "
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
        600.0, "seconds between looks for interrupted deletions, which are finished then; 0: never", ge=0
    )
    messages_at_once: int = setting(
        256, "messages that a data node of a cluster works on at a time", ge=1, le=100_000
    )
    store_requests: int = setting(64, "requests to a store under way at a time", ge=1, le=10_000)
    large_record_size: int = 256 * 1024
    max_object_size: int = 5 * 1024 * MIB

    def cache_bytes(self, nodes: int = 1) -> int:
        """Return the bytes of the cache of each of `nodes` data nodes that share the machine's memory."""
        if self.cache_size is not None:
            return self.cache_size
        return _part_of_memory(SMALLEST_CACHE, nodes)

    def chunk_bytes(self, nodes: int = 1) -> int:
        """Return the bytes for large chunks of each of `nodes` data nodes that share the machine's memory."""
        if self.chunk_memory is not None:
            return self.chunk_memory
        return _part_of_memory(SMALLEST_CHUNK_MEMORY, nodes)


def _part_of_memory(least: int, nodes: int) -> int:
    return min(max(least, machine_memory() // CACHE_DIVISOR // nodes), LARGEST_CACHE)
