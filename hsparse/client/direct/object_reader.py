"""What direct reads need of a store: the bytes of an object in the state that the map names.

Tests: tests/client/direct/test_directory_objects.py, tests/client/direct/test_bucket_objects.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ObjectChanged(Exception):
    """The object is gone, or in another state than the map's: a newer map may name its state."""


class ObjectUnavailable(Exception):
    """The object cannot be read in this way: ask the server. The message names the reason, no secret."""


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """An object of the store: its key and etag, without quotes, and its presigned URL, if the map has one."""

    key: str
    etag: str
    url: str | None = None


class ObjectReader(Protocol):
    """Reads objects of one store, for any thread. `at_once` is how many requests at a time it is good for."""

    at_once: int

    def read(self, place: ObjectPlace) -> bytes:
        """Return the object's bytes; raises `ObjectChanged` unless it has the etag, or `ObjectUnavailable`."""
        ...

    def close(self) -> None:
        """Close what is kept open; the next read opens it again."""
        ...
