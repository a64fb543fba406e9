"""The interface of a media type of values: functions that encode answers and decode bodies."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from aiohttp import web

from hsparse.format.selections.points import Selection
from hsparse.format.value_arrays import ValueArrays
from hsparse.model.json_values import Values
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.request import Request
from hsparse.sn.values.append import Append
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.element_query import Rows
from hsparse.sn.values.reduction.dataset_reduction import Reduced
from hsparse.sn.values.request_selection import ReadRequest

STREAM_PAGES = 2
"""Pages in memory of a streamed answer: one is sent while the next is read."""


@dataclass(frozen=True, slots=True)
class ValueRead:
    """A read of values: of a selection of a dataset, or of some fields there."""

    request: Request
    dataset: Dataset
    selection: Selection
    fields: tuple[str, ...] = ()

    @property
    def chunks(self) -> ChunkFanout:
        return ChunkFanout(self.request.service.owners, self.dataset)

    @property
    def arrays(self) -> ValueArrays:
        """The array operations for the values, of the fields alone."""
        return self.dataset.arrays.of_fields(self.fields)


@dataclass(frozen=True, slots=True)
class FoundRead:
    """What a query finds: `found` yields pages in row-major order."""

    request: Request
    dataset: Dataset
    found: AsyncGenerator[Rows, None]
    fields: tuple[str, ...] = ()

    @property
    def arrays(self) -> ValueArrays:
        return self.dataset.arrays.of_fields(self.fields)


class WriteBody(Protocol):
    """The decoded body of a write. Its selection is resolved later, in the extent that the dataset has then."""

    @property
    def append(self) -> Append | None:
        """How the dataset grows, None if it does not. Then all places are those in the new elements alone."""
        ...

    @property
    def fields(self) -> str | None:
        """The fields that the values have, as the request names them; None for whole elements."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether the body has the places of its elements, which only a sparse dataset accepts."""
        ...

    @property
    def named(self) -> Mapping[str, Any]:
        """The `select` of the request, as in the body of a read, for the memory of paired lists; {} if it has none."""
        ...

    def resolve(self, dataset: Dataset, fields: tuple[str, ...]) -> tuple[Selection, Values]:
        """Return the write's selection in the dataset's extent, and its values: of these fields, whole without any.

        The values have the selection's shape, or are one for all. `BadRequest` if the body does not fit the dataset.
        """
        ...


PendingAnswer: TypeAlias = Awaitable[web.StreamResponse]


@dataclass(frozen=True, slots=True)
class Medium:
    """A media type of values.

    A medium that lacks a form for some operation has JSON's: it is made by `dataclasses.replace(JSON, name=..., ...)`.
    """

    name: str
    """As in `Accept` and `Content-Type`."""
    read_body: Callable[[Request], Awaitable[WriteBody]]
    """Read the body of a write whole; a body that is cut short changes nothing."""
    read_request: Callable[[Request], Awaitable[ReadRequest]]
    """Read the body of a POST that names what to read."""
    answer_values: Callable[[ValueRead], PendingAnswer]
    """Answer with all values of a selection, the fill value for undefined elements."""
    answer_defined: Callable[[ValueRead], PendingAnswer]
    """Answer with the defined elements of a selection: places and values."""
    answer_places: Callable[[ValueRead], web.StreamResponse]
    """Answer with a selection of a dataset."""
    answer_found: Callable[[FoundRead], PendingAnswer]
    """Answer with the elements that a query finds."""
    answer_reduced: Callable[[Request, Reduced], PendingAnswer]
    """Answer with the result of a reduction."""
