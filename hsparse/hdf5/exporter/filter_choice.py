"""The filters of an export, from flags: `--filter shuffle --filter gzip=4`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from hsparse.errors import BadRequest
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import parse_filters, record_size
from hsparse.format.filters.pipeline import BY_NAME
from hsparse.hdf5.format.messages.object_messages import Pipelines

NONE = "none"


@dataclass(frozen=True, slots=True)
class FilterChoice:
    """Filters in the order of application, in the form of `creationProperties.filters`; or `none`."""

    items: tuple[Any, ...]

    @classmethod
    def parse(cls, flags: Sequence[str]) -> FilterChoice:
        """Parse flags, each `NAME` or `NAME=LEVEL`, or many joined by `+`; `BadRequest` for others."""
        names = [name for flag in flags for name in flag.split("+")]
        if NONE in names:
            if len(names) > 1:
                raise BadRequest("--filter none goes with no other filter.")
            return cls((NONE,))
        choice = cls(tuple(map(_item, names)))
        choice.pipeline(8, 1 << 20)  # raises before anything is fetched
        return choice

    @property
    def is_none(self) -> bool:
        return self.items == (NONE,)

    def pipeline(self, element_size: int, chunk_bytes: int) -> tuple[Filter, ...]:
        """Return the filters of chunks of `chunk_bytes`, of elements of `element_size` bytes."""
        (found,) = parse_filters(self.items, element_size, sparse=False, chunk_bytes=chunk_bytes)
        return found

    def pipelines(self, dims: tuple[int, ...], element_size: int, sections: int) -> Pipelines:
        """Return the filters of each section, 2 or 3, of sparse chunks of dimensions `dims`."""
        return parse_filters(
            self.items,
            element_size,
            sparse=True,
            chunk_bytes=prod(dims) * element_size,
            record_size=record_size(dims),
            heap=sections == 3,
        )


def _item(flag: str) -> Any:
    name, equals, level = flag.partition("=")
    if name not in BY_NAME:
        raise BadRequest(
            f"The filter {name!r} is unknown; use names such as gzip=4, shuffle, lzf, fletcher32 or none."
        )
    if not equals:
        return name
    if not level.isdecimal():
        raise BadRequest(f"The level of --filter {flag} is no number; it should be like gzip=4.")
    return {"name": name, "level": int(level)}
