"""The interface of a media type of values: functions that encode answers and decode request bodies."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from aiohttp import web

from hsparse.format.selections.points import Selection
from hsparse.format.value_arrays import ValueArrays
from hsparse.model.json_values import Values
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.request import Request
from hsparse.sn.values.append import Append
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.element_query import Rows
from hsparse.sn.values.reduction.dataset_reduction import Reduced
from hsparse.sn.values.request_selection import ReadRequest

STREAM_PAGES = 2
"""The number of a streamed answer's pages in memory: one page is sent while the next page is read."""


@dataclass(frozen=True, slots=True)
class ValueRead:
    """A read of the values of a selection: of some fields, or of whole elements if `fields` is ()."""

    request: Request
    dataset: StoredDataset
    selection: Selection
    fields: tuple[str, ...] = ()

    @property
    def chunks(self) -> ChunkFanout:
        return ChunkFanout(self.request.service.owners, self.dataset)

    @property
    def arrays(self) -> ValueArrays:
        """The operations on arrays of the values, which have only `fields`."""
        return self.dataset.arrays.of_fields(self.fields)


@dataclass(frozen=True, slots=True)
class FoundRead:
    """The result of a query: `found` yields pages of matches, in row-major order or in the order of `order_by`."""

    request: Request
    dataset: StoredDataset
    found: AsyncGenerator[Rows, None]
    fields: tuple[str, ...] = ()

    @property
    def arrays(self) -> ValueArrays:
        return self.dataset.arrays.of_fields(self.fields)


class WriteBody(Protocol):
    """The decoded body of a write. Its selection is resolved later, in the extent that the dataset has then."""

    @property
    def append(self) -> Append | None:
        """The `Append`, or None if the write is no append. An append's selection is relative to the new elements."""
        ...

    @property
    def fields(self) -> str | None:
        """The `fields` parameter of the request, or None if the values are whole elements."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether the body has the coordinates of its elements; only sparse datasets accept such a body."""
        ...

    @property
    def named(self) -> Mapping[str, Any]:
        """The selection in the URL as the body of a read that has it (`select`), or {} for a body with a selection."""
        ...

    def resolve(self, dataset: StoredDataset, fields: tuple[str, ...]) -> tuple[Selection, Values]:
        """Return a pair: the write's selection in the dataset's extent, and its values (of `fields`; (): all fields).

        The values have the selection's shape, or one value is for all elements. Raises `BadRequest` if invalid.
        """
        ...


@dataclass(frozen=True, slots=True)
class CoordinatesBody:
    """The base of a `WriteBody` whose bytes have the coordinates of its elements."""

    data: bytes | bytearray
    append: Append | None
    fields: str | None
    sparse: bool = True
    named: Mapping[str, Any] = field(default_factory=dict)


PendingAnswer: TypeAlias = Awaitable[web.StreamResponse]


@dataclass(frozen=True, slots=True)
class Medium:
    """A media type of values.

    Media are made by `dataclasses.replace(JSON, name=..., ...)`, so operations that a medium does not define use JSON.
    """

    name: str
    """The media type in `Accept` and `Content-Type`."""
    read_body: Callable[[Request], Awaitable[WriteBody]]
    """Read and decode the whole body of a write. A body that is cut short changes nothing."""
    read_request: Callable[[Request], Awaitable[ReadRequest]]
    """Read the body of a POST that names the elements to read."""
    answer_values: Callable[[ValueRead], PendingAnswer]
    """Answer with all values of a selection; undefined elements have the fill value."""
    answer_defined: Callable[[ValueRead], PendingAnswer]
    """Answer with the defined elements of a selection: their coordinates and values."""
    answer_places: Callable[[ValueRead], web.StreamResponse]
    """Answer with the selection itself, without values."""
    answer_found: Callable[[FoundRead], PendingAnswer]
    """Answer with the elements that a query has found."""
    answer_reduced: Callable[[Request, Reduced], PendingAnswer]
    """Answer with the result of a reduction."""
