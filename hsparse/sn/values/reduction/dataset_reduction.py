"""Reductions of a dataset: owners reduce their chunks, and the service node merges the partial results.

Chunks that are wholly selected and have statistics need not be read. Results can be grouped by labels along an axis.
The labels are given in the request or in the domain: in a dataset, such as a column of an AnnData's obs, or in a group
with the datasets `codes` and `categories`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import SUMMED, is_known, partials_of
from hsparse.format.plan.chunk_plan import PlannedChunk, count_chunks
from hsparse.format.reductions.finished import add_missing, finished, needed_columns
from hsparse.format.reductions.label_groups import LabelGroups, check_labels
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import OPERATIONS, Codes, Reduction, check_numbers, parse_axes
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.selections.signed_extent import outside_of, places_along
from hsparse.model.ids import collection_of
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.records.object_path import resolve_path
from hsparse.sn.request import Request
from hsparse.sn.values.chunk_fanout import MANY_WHOLE, ChunkFanout, from_parts
from hsparse.sn.values.request_selection import ascending_selection
from hsparse.wire.message import Record

Scaled = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribedChunks:
    """The statistics of one column; `places` maps the scaled coordinates of chunks to rows of `words` and `defined`."""

    places: dict[Scaled, int]
    words: NDArray[np.uint64]
    defined: NDArray[np.uint64]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, rows: ChunkRows, column: int, dtype: np.dtype[Any]) -> DescribedChunks:
        """Return the `DescribedChunks` of `rows` that have statistics, for the statistics' column number `column`."""
        known = np.flatnonzero(is_known(rows.statistics))
        places = {tuple(scaled): place for place, scaled in enumerate(rows.scaled[known].tolist())}
        return cls(places, rows.statistics[known, column], rows.defined[known], dtype)

    def split(
        self, planned: Sequence[PlannedChunk], reduction: Reduction
    ) -> tuple[list[PlannedChunk], Partials]:
        """Return a pair: the chunks that must be read, and the partial result of all other chunks by statistics."""
        rest, there = [], []
        for chunk in planned:
            place = self.places.get(chunk.scaled) if chunk.full else None
            if place is None:
                rest.append(chunk)
            else:
                there.append(place)
        if not there:
            return rest, Partials.empty(1, self.dtype, reduction.columns)
        found = partials_of(self.words[there], self.defined[there], self.dtype, reduction.columns)
        return rest, found.folded()


CODES, CATEGORIES = "codes", "categories"
GROUPED_BYTES = 32
"""The approximate bytes of memory for each label while labels are grouped, because numpy sorts them."""


async def read_groups(request: Request, by: str | list[Any], length: int, axis: ax.Axis) -> LabelGroups:
    """Return the groups of the selected indices `axis` by the labels `by`, a list or the path or id of a dataset.

    Raises `BadRequest` unless there is one label for each of `length` indices, `NotFound` if there is no dataset `by`.
    """
    make: Callable[..., LabelGroups]
    datasets: list[StoredDataset]
    if isinstance(by, list):
        check_labels(len(by), length)
        datasets, make, nbytes = [], partial(LabelGroups.of_list, by), len(by) * GROUPED_BYTES
    else:
        datasets, make = await _label_datasets(request, by, length)
        nbytes = sum(_needed(request, one) for one in datasets)

    def picked(read: Sequence[Values]) -> LabelGroups:
        found = make(*(_labels_in(one, values) for one, values in zip(datasets, read, strict=True)))
        return LabelGroups(_picked(found.codes, axis), found.labels)

    async with request.service.answers.hold(nbytes):
        read = [await _read(request, one) for one in datasets]
        return await from_parts(read, picked, length)


async def _label_datasets(
    request: Request, by: str, length: int
) -> tuple[list[StoredDataset], Callable[..., LabelGroups]]:
    """Return a pair: the datasets of labels that `by` names, and the function that makes groups of their values."""
    record = await _record(request, by)
    if collection_of(record["id"]) != "groups":
        return [_labels(request, record, length)], _groups_of
    links = record.get("links") or {}
    ids = [links.get(name, {}).get("id") for name in (CODES, CATEGORIES)]
    if None in ids:
        raise BadRequest(
            f"{record['id']} is a group without the datasets {CODES} and {CATEGORIES}: by must be a dataset "
            "or a categorical column of AnnData."
        )
    codes_record, categories_record = [(await request.service.owners.record(id)) for id in ids]
    codes = _labels(request, codes_record, length)
    categories = _labels(request, categories_record, None)
    return [codes, categories], lambda read, labels: LabelGroups.of_categories(read, labels, codes.id)


def _groups_of(labels: NDArray[Any] | list[Any]) -> LabelGroups:
    return LabelGroups.of_list(labels) if isinstance(labels, list) else LabelGroups.of_numbers(labels)


async def _record(request: Request, by: str) -> Record:
    if by.startswith("d-"):
        id = request.domain.member(by, "datasets")
    else:
        place = await resolve_path(request, request.domain, by)
        id = request.domain.member(place.id)
    return await request.service.owners.record(id)


def _labels(request: Request, record: Record, length: int | None) -> StoredDataset:
    """Return the 1-D dataset of labels of `record`; raise `BadRequest` unless it has `length` labels (None: any)."""
    if collection_of(record["id"]) != "datasets":
        raise BadRequest(f"{record['id']} is no dataset of labels: by must name a dataset.")
    dataset = StoredDataset.of(record, request.file_rights())
    if len(dataset.extent) != 1:
        raise BadRequest(f"{dataset.id} has {len(dataset.extent)} dimensions; labels must have one.")
    if length is not None:
        check_labels(parse_select(None, dataset.extent).size, length)
    return dataset


def _needed(request: Request, dataset: StoredDataset) -> int:
    """Return the approximate bytes of memory that it takes to read and group a dataset of labels."""
    count, limit = dataset.extent[0], request.service.settings.max_request_size
    if dataset.arrays.least(count) > limit:
        raise _too_large(dataset, limit)
    return min(limit, dataset.arrays.expected(count)) + count * GROUPED_BYTES


async def _read(request: Request, dataset: StoredDataset) -> Values:
    """Return the values of a 1-D dataset of labels."""
    limit = request.service.settings.max_request_size
    chunks = ChunkFanout(request.service.owners, dataset)
    values = await chunks.read_within(parse_select(None, dataset.extent), (), limit)
    if isinstance(values, int):
        raise _too_large(dataset, limit)
    return values


def _labels_in(dataset: StoredDataset, values: Values) -> NDArray[Any] | list[Any]:
    """Convert values to labels: numbers to an array, text to a list; raise `BadRequest` for other values."""
    if not isinstance(values, VlenArray) and values.dtype.kind in "biuf":
        return np.asarray(values.view(dataset.dtype))
    listed, _ = dataset.arrays.to_json(values)
    listed = listed.tolist() if isinstance(listed, np.ndarray) else listed
    if not all(isinstance(label, str | int | None) for label in listed):
        raise BadRequest(f"The elements of {dataset.id} cannot be labels: labels must be numbers or text.")
    return list(listed)


def _too_large(dataset: StoredDataset, limit: int) -> TooLarge:
    return TooLarge(f"The labels in {dataset.id} have more than {limit} bytes, the limit (max_request_size).")


SKIP, FILL = "skip", "fill"
KEYS = frozenset({"op", "axis", "select", "field", "undefined", "ddof", "by"})


@dataclass(frozen=True, slots=True)
class ReduceRequest:
    """The parameters of a reduction, before its dataset is loaded.

    `undefined` says how undefined elements count: "skip" (not at all), "fill" (as the fill value), or None if the
    request does not say. `by` is the path or id of a dataset of labels, a list of labels, or None.
    """

    operations: tuple[str, ...]
    axis: Any
    select: Any
    field: str
    undefined: str | None
    ddof: int
    by: Any

    @classmethod
    def of(cls, request: Request, body: dict[str, Any]) -> ReduceRequest:
        """Take each parameter from the keys of `body`, or else from the URL; raise `BadRequest` if one is invalid."""
        unknown = set(body) - KEYS
        if unknown:
            raise BadRequest(
                f"Unknown key {min(unknown)[:40]!r} in the body; known are {', '.join(sorted(KEYS))}."
            )
        op, axis, select, field, undefined, by = (
            body.get(name, request.arg(name)) for name in ("op", "axis", "select", "field", "undefined", "by")
        )
        ddof = body.get("ddof", request.number("ddof") or 0)
        check_undefined(undefined)
        if type(ddof) is not int or not 0 <= ddof <= 1:
            raise BadRequest("ddof must be 0 or 1.")
        if not isinstance(axis, str | int | list | None) or isinstance(axis, bool):
            raise BadRequest("axis must be a number, or numbers like '0,2'.")
        if not isinstance(field, str | None):
            raise BadRequest("field must be a string.")
        if not isinstance(by, str | list | None):
            raise BadRequest("by must be the path of a dataset, or a list of labels.")
        return cls(_operations(op), axis, select, field or "", undefined, ddof, by or None)

    def resolve(self, extent: tuple[int, ...]) -> Orthogonal:
        """Return the orthogonal selection in an extent; raise `BadRequest` unless each list ascends strictly."""
        return ascending_selection(self.select, extent)


def check_undefined(undefined: Any) -> None:
    """Raise `BadRequest` unless `undefined` is "skip", "fill" or None."""
    if undefined not in (None, SKIP, FILL):
        raise BadRequest(f"undefined must be {SKIP} or {FILL}, not {str(undefined)[:40]!r}.")


def _operations(text: Any) -> tuple[str, ...]:
    names = text.split(",") if isinstance(text, str) else text
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise BadRequest(f"Name what to compute by op: one or more of {', '.join(OPERATIONS)}.")
    for name in names:
        if name not in OPERATIONS:
            raise BadRequest(f"There is no op {name[:40]!r}; there are: {', '.join(OPERATIONS)}.")
    if len(set(names)) < len(names):
        raise BadRequest("op names an operation twice: name each operation once.")
    return tuple(names)


Array = NDArray[Any]
MAX_GENERATED = 1 << 14
"""The maximum number of chunks of computed values (`arange`) that a reduction may select."""
CODE_BYTES = 12
"""The approximate bytes of memory for the group code of each selected index while a reduction runs."""
STATE_BYTES = 64
"""The approximate maximum of bytes of memory for each item of a result while it is computed."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """The result of a reduction; `values` maps each operation's name to an array of `reduction.result_shape`.

    `labels` are the labels of the groups, or None without groups. `coords` maps the number of each other dimension
    that the result keeps to the selected indices of that dimension.
    """

    dataset: StoredDataset
    reduction: Reduction
    values: dict[str, Array]
    labels: list[Any] | None
    coords: dict[int, NDArray[np.uint64]]


class DatasetReduction:
    """One reduction of a selection, which is resolved in the dataset's current extent."""

    def __init__(
        self, request: Request, dataset: StoredDataset, asked: ReduceRequest, selection: Orthogonal
    ) -> None:
        self._request = request
        self._dataset = dataset
        self._asked = asked
        self._selection = selection
        if dataset.arrays.is_exact:
            check_numbers(dataset.dtype, asked.field, asked.operations)
        elif asked.field or asked.operations != ("count",):
            raise BadRequest(f"Elements of {dataset.id} have no fixed size: only op=count can reduce them.")
        if dataset.spec.sparse and asked.undefined is None:
            raise BadRequest(
                "Add undefined=skip to leave out undefined elements, or undefined=fill to count them with the fill "
                "value."
            )
        self._fills = not dataset.spec.sparse or asked.undefined == FILL

    async def run(self) -> Reduced:
        """Run the reduction and return its result; raise `TooLarge` if the result exceeds `max_request_size`."""
        axes = parse_axes(self._asked.axis, len(self._dataset.extent))
        groups = await self._groups(axes)
        reduction = self._reduction(axes, groups)
        limit = self._request.service.settings.max_request_size
        # A result of size 0 still takes memory, for lists and for the indices of its other dimensions.
        nbytes = prod(max(1, length) for length in reduction.result_shape) * STATE_BYTES
        if nbytes > limit:
            raise TooLarge(
                f"A result of the shape {list(reduction.result_shape)}, with {STATE_BYTES} bytes an element, has more "
                f"than {limit} bytes (max_request_size): select less, or reduce more axes."
            )
        codes = None if groups is None else groups.codes
        num_codes = 0 if codes is None else codes.size
        self._check_chunks()
        async with self._request.service.answers.hold(2 * nbytes + num_codes * CODE_BYTES):
            chunks = ChunkFanout(self._request.service.owners, self._dataset)
            state = Partials.empty(reduction.places, self._numbers, reduction.columns)
            described = await self._described(chunks, reduction)
            async for planned in chunks.batches(self._selection):
                rest: Sequence[PlannedChunk] = planned
                if described is not None:
                    rest, part = described.split(planned, reduction)
                    state.merge(part)
                parts = await chunks.source.reduce(rest, reduction, codes)
                await from_parts(parts, state.merge_all)
            values = await from_parts([state], partial(self._finished, reduction, codes), num_codes)
        labels = None if groups is None else groups.labels
        kept = [dim for dim in reduction.kept if dim != reduction.grouped]
        extent = self._dataset.extent
        coords = {dim: places_along(extent, dim, ax.indices(self._selection.axes[dim])) for dim in kept}
        return Reduced(self._dataset, reduction, values, labels, coords)

    def _check_chunks(self) -> None:
        """Raise `TooLarge` if the selection has too many computed chunks (`arange`): all of them would be planned."""
        if self._dataset.spec.arange and count_chunks(self._selection, self._dataset.grid) > MAX_GENERATED:
            raise TooLarge(f"The selection meets more than {MAX_GENERATED} chunks; select less at a time.")

    async def _described(self, chunks: ChunkFanout, reduction: Reduction) -> DescribedChunks | None:
        """Return the statistics of the chunks that the selection intersects, or None if they do not help.

        Statistics do not help if the result keeps a dimension, if they lack the field or a needed column, or if there
        are so few chunks that the owners may have them cached.
        """
        spec, field = self._dataset.spec, self._asked.field
        if reduction.kept or not set(reduction.columns) <= set(SUMMED) or field not in spec.statistic_columns:
            return None
        if count_chunks(self._selection, self._dataset.grid) < MANY_WHOLE:
            return None
        pages = [rows async for rows in chunks.listed(self._selection)]
        rows = ChunkRows.joined(pages, len(spec.dims))
        return DescribedChunks.of(rows, spec.statistic_columns.index(field), self._numbers)

    @property
    def _numbers(self) -> np.dtype[Any]:
        """The dtype of the reduced numbers: the field's, or the dataset's."""
        dtype, field = self._dataset.dtype, self._asked.field
        return dtype[field] if field else dtype

    async def _groups(self, axes: Sequence[int]) -> LabelGroups | None:
        """Return the groups of the selected indices of the first axis in `axes`, or None if `by` is not given."""
        if self._asked.by is None:
            return None
        if not axes or self._asked.axis in (None, ""):
            raise BadRequest("Name the axis of the labels in by: it must be the first in axis.")
        selection = outside_of(self._dataset.extent, self._selection)
        assert isinstance(selection, Orthogonal)
        length = selection.extent[axes[0]]
        return await read_groups(self._request, self._asked.by, length, selection.axes[axes[0]])

    def _reduction(self, axes: Sequence[int], groups: LabelGroups | None) -> Reduction:
        return Reduction(
            self._selection.shape,
            tuple(sorted(axes)),
            needed_columns(self._asked.operations),
            self._asked.field,
            -1 if groups is None else axes[0],
            0 if groups is None else len(groups.labels),
        )

    # --- the result ----------------------------------------------------------------------------------

    def _finished(
        self, reduction: Reduction, codes: Codes | None, states: Sequence[Partials]
    ) -> dict[str, Array]:
        """Return a dict that maps each operation to its result; `states` has one item, the merged partial result."""
        (state,) = states
        fill = self._dataset.fill if self._dataset.arrays.is_exact else np.zeros((), "u1")
        if self._fills:
            add_missing(state, reduction, fill, codes)
        shape, number, ddof = reduction.result_shape, reduction.numbers(fill), self._asked.ddof
        return {name: finished(name, state, number, ddof).reshape(shape) for name in self._asked.operations}


def _picked(codes: Codes, axis: ax.Axis) -> Codes:
    """Return the codes of the selected indices of an axis, as a view if the indices are contiguous."""
    if isinstance(axis, ax.StridedSpan) and axis.contiguous:
        return codes[axis.start : axis.stop]
    return codes[ax.indices(axis).astype(np.intp)]
