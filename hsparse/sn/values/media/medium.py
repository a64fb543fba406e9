"""What a media type of values is: how answers are encoded, and how bodies are decoded."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from hsparse.format.selections.selection import Selection
from hsparse.format.value_arrays import ValueArrays
from hsparse.model.json_values import Values
from hsparse.sn.context import Context
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.element_query import Rows

STREAM_PAGES = 2
"""A streamed answer has one page on its way and makes the next."""


@dataclass(frozen=True, slots=True)
class ValueRead:
    """A read of values that is to be answered: of a selection of a dataset, or of some fields there."""

    context: Context
    dataset: Dataset
    selection: Selection
    fields: tuple[str, ...] = ()

    @property
    def chunks(self) -> ChunkFanout:
        return ChunkFanout(self.context.service.owners, self.dataset)

    @property
    def arrays(self) -> ValueArrays:
        """What is done with the values that are read."""
        return self.dataset.arrays.of_fields(self.fields)


@dataclass(frozen=True, slots=True)
class FoundRead:
    """What a query finds, page by page in row-major order, to be answered."""

    context: Context
    dataset: Dataset
    found: AsyncGenerator[Rows, None]
    fields: tuple[str, ...] = ()

    @property
    def arrays(self) -> ValueArrays:
        return self.dataset.arrays.of_fields(self.fields)


@dataclass(frozen=True, slots=True)
class Append:
    """Grow dimension `dim` by `count`, then write there."""

    count: int
    dim: int


class WriteBody(Protocol):
    """A write as sent, before it is known which extent it meets."""

    @property
    def append(self) -> Append | None:
        """What the dataset is to grow by first."""
        ...

    @property
    def fields(self) -> str | None:
        """The fields that the values have alone, as the request names them."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether it has the places of its elements with it, which only sparse datasets take."""
        ...

    def resolve(self, dataset: Dataset) -> tuple[Selection, Values]:
        """Return the selection that the write names in the dataset's extent, and its values.

        The values have the selection's shape, or are one for all. `BadRequest` says what does not fit.
        """
        ...

    def work(self) -> int:
        """Return about how many variable-length elements `resolve` looks at one by one."""
        ...


Answer = Awaitable[web.StreamResponse]


@dataclass(frozen=True, slots=True)
class Medium:
    """A media type; an operation that it has no form for is None, and answered in JSON."""

    name: str
    """As `Accept` and `Content-Type` have it."""
    read_body: Callable[[Context], Awaitable[WriteBody]]
    answer_values: Callable[[ValueRead], Answer] | None = None
    """All values of a selection."""
    answer_defined: Callable[[ValueRead], Answer] | None = None
    """The defined elements of a selection: places and values."""
    answer_places: Callable[[Context, Selection], web.StreamResponse] | None = None
    """A selection."""
    answer_found: Callable[[FoundRead], Answer] | None = None
    """What a query finds."""
    read_points: Callable[[Context], Awaitable[Callable[[tuple[int, ...]], Selection]]] | None = None
    """The body of a read by points, as a selection of an extent."""
