"""What a data node can be told."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Limits of a data node, in bytes where a size is meant.

    `cache_size` bounds decoded chunks and records together; `pending_size` bounds the values of writes
    that are accepted but not yet durable; `workers` is the number of encoding threads.
    """

    cache_size: int = 128 * MIB
    pending_size: int = 256 * MIB
    workers: int = 4
    max_object_size: int = 5 * 1024 * MIB
