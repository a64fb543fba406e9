"""The workload `metadata`: the small requests of a client's session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MetadataCase:
    """The numbers of requests of each kind, and of objects in the opened domain."""

    requests: int
    objects: int
    opens: int
    clients: tuple[int, ...] = (1, 16)

    def attribute(self, number: int) -> dict[str, Any]:
        """Return the body of an attribute PUT."""
        return {"type": "H5T_STD_I32LE", "shape": [4], "value": [number, 2, 3, 4]}

    def dataset(self, group: str, title: str) -> dict[str, Any]:
        """Return the body of a dataset POST that links it as `title` in `group`."""
        return {
            "type": "H5T_IEEE_F64LE",
            "shape": [100, 100],
            "creationProperties": {"layout": {"class": "H5D_CHUNKED", "dims": [100, 100]}},
            "link": {"id": group, "name": title},
        }


def metadata(quick: bool = False) -> MetadataCase:
    """Return the case at full size, or small."""
    return MetadataCase(64, 50, 3) if quick else MetadataCase(1_000, 1_000, 20)
