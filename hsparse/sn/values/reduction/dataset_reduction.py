"""A reduction of a dataset: owners reduce their chunks, and what they send is combined here.

Tests: tests/sn/values/test_reduce.py, tests/sn/values/test_reduce_groups.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest, TooLarge, Unsupported
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_statistics import SUMMED
from hsparse.format.plan.chunk_plan import PlannedChunk, count_chunks
from hsparse.format.reductions.partials import LIMB, Partials, split_integers
from hsparse.format.reductions.reduction import OPERATIONS, Codes, Reduction, check_numbers, parse_axes
from hsparse.format.selections import axis as ax
from hsparse.sn.context import Context
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.chunk_fanout import MANY_WHOLE, ChunkFanout
from hsparse.sn.values.reduction.described_chunks import DescribedChunks
from hsparse.sn.values.reduction.group_labels import GroupLabels
from hsparse.sn.values.reduction.reduce_request import FILL, ReduceRequest

Array = NDArray[Any]
MAX_GENERATED = 1 << 14
STATE_BYTES = 64
"""About the most bytes of one place of a result while it is computed."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """The result of a reduction: an array of `reduction.result_shape` for each operation, by its name.

    `labels` are those of the groups, None without groups; `coords` has the indices of the others of its dimensions in
    the dataset.
    """

    dataset: Dataset
    reduction: Reduction
    values: dict[str, Array]
    labels: list[Any] | None
    coords: dict[int, NDArray[np.uint64]]


class DatasetReduction:
    """One reduction of a dataset in its current extent."""

    def __init__(self, context: Context, dataset: Dataset, request: ReduceRequest) -> None:
        self._context = context
        self._dataset = dataset
        self._request = request
        if dataset.arrays.is_exact:
            check_numbers(dataset.dtype, request.field, request.operations)
        elif request.field or request.operations != ("count",):
            raise BadRequest(f"Elements of {dataset.id} have no fixed size: they can be counted only.")
        if dataset.spec.sparse and request.undefined is None:
            raise BadRequest(
                "Say what becomes of undefined elements: undefined=skip leaves them out, undefined=fill takes them as "
                "the fill value."
            )
        self._fills = not dataset.spec.sparse or request.undefined == FILL
        self._selection = request.resolve(dataset.extent)

    async def run(self) -> Reduced:
        """Return the result; `TooLarge` if it has more places than the limits allow."""
        axes = parse_axes(self._request.axis, len(self._dataset.extent))
        groups = await self._groups(axes)
        reduction = self._reduction(axes, groups)
        limit = self._context.service.settings.max_request_size
        nbytes = reduction.places * STATE_BYTES
        if nbytes > limit:
            raise TooLarge(
                f"The result has {reduction.places} places; with {STATE_BYTES} bytes each it may have {limit} bytes "
                "(max_request_size): select less, or reduce more axes."
            )
        codes = None if groups is None else groups.codes
        self._check_chunks()
        async with self._context.service.answers.hold(2 * nbytes):
            chunks = ChunkFanout(self._context.service.owners, self._dataset)
            state = Partials.empty(reduction.places, self._numbers, reduction.columns)
            described = await self._described(chunks, reduction)
            async for planned in chunks.batches(self._selection):
                rest: Sequence[PlannedChunk] = planned
                if described is not None:
                    rest, part = described.split(planned, reduction)
                    state.merge(part)
                for part in await chunks.reduce(rest, reduction, codes):
                    await offload(part.size, state.merge, part)
            values = await offload(reduction.places, self._finished, state, reduction, codes)
        labels = None if groups is None else groups.labels
        kept = [dim for dim in reduction.kept if dim != reduction.grouped]
        coords = {dim: ax.indices(self._selection.axes[dim]) for dim in kept}
        return Reduced(self._dataset, reduction, values, labels, coords)

    def _check_chunks(self) -> None:
        """Raise `TooLarge` for a selection of too many chunks whose values are generated: all of them are planned."""
        if self._dataset.spec.arange and count_chunks(self._selection, self._dataset.grid) > MAX_GENERATED:
            raise TooLarge(f"The selection meets more than {MAX_GENERATED} chunks; select less at a time.")

    async def _described(self, chunks: ChunkFanout, reduction: Reduction) -> DescribedChunks | None:
        """Return the statistics of the chunks that the selection meets; None where they do not help.

        That is if a place of the result has not all elements of a chunk, if something else is asked for than they
        have, or if the chunks are so few that the owners may have them in their caches.
        """
        spec, field = self._dataset.spec, self._request.field
        if reduction.kept or not set(reduction.columns) <= set(SUMMED) or field not in spec.statistic_columns:
            return None
        if count_chunks(self._selection, self._dataset.grid) < MANY_WHOLE:
            return None
        pages = [rows async for rows in chunks.listed(self._selection)]
        rows = ChunkRows.joined(pages, len(spec.dims))
        return DescribedChunks.of(rows, spec.statistic_columns.index(field), self._numbers)

    @property
    def _numbers(self) -> np.dtype[Any]:
        """The type of what is reduced."""
        dtype, field = self._dataset.dtype, self._request.field
        return dtype[field] if field else dtype

    async def _groups(self, axes: Sequence[int]) -> GroupLabels | None:
        """Return the groups of the selection's positions along the first of the axes, None without groups."""
        if self._request.by is None:
            return None
        if not axes or self._request.axis in (None, ""):
            raise BadRequest("Name the axis that by has labels of: the first one in axis.")
        length = self._dataset.extent[axes[0]]
        found = await GroupLabels.read(self._context, self._request.by, length)
        picked = found.codes[ax.indices(self._selection.axes[axes[0]]).astype(np.intp)]
        return GroupLabels(picked, found.labels)

    def _reduction(self, axes: Sequence[int], groups: GroupLabels | None) -> Reduction:
        needed = {column for name in self._request.operations for column in OPERATIONS[name]}
        return Reduction(
            self._selection.shape,
            tuple(sorted(axes)),
            tuple(sorted(needed)),
            self._request.field,
            -1 if groups is None else axes[0],
            0 if groups is None else len(groups.labels),
        )

    # --- the result ----------------------------------------------------------------------------------

    def _finished(self, state: Partials, reduction: Reduction, codes: Codes | None) -> dict[str, Array]:
        """Return the result of each operation."""
        if self._fills:
            fill = self._dataset.fill if self._dataset.arrays.is_exact else np.zeros((), "u1")
            missing = _sizes(reduction, codes) - state.count
            state.merge(filled(missing, reduction.numbers(fill), reduction.columns))
        shape = reduction.result_shape
        return {name: self._result(name, state).reshape(shape) for name in self._request.operations}

    def _result(self, name: str, state: Partials) -> Array:
        match name:
            case "count":
                return state.count
            case "nnz":
                return state.nonzero
            case "sum":
                return whole_sums(state, self._numbers)
            case "mean":
                return state.means()
            case "var":
                with np.errstate(invalid="ignore", divide="ignore"):
                    return np.where(
                        state.count > self._request.ddof,
                        state.squares / (state.count - self._request.ddof),
                        np.nan,
                    )
            case "min":
                return self._extremes(state.least, state)
            case "max":
                return self._extremes(state.greatest, state)
        raise Unsupported(f"The operation {name} has no result here.")

    def _extremes(self, found: Array, state: Partials) -> Array:
        """Return extremes, the fill value where there is no element."""
        fill = self._dataset.fill[self._request.field] if self._request.field else self._dataset.fill
        return np.where(state.count > 0, found, fill.astype(found.dtype))


def filled(missing: NDArray[np.int64], fill: Array, columns: Sequence[str]) -> Partials:
    """Return the partial results of `missing: (k,)` elements of the fill value."""
    places = np.flatnonzero(missing)
    count = missing[places]
    found = Partials.empty(len(places), fill.dtype, columns)
    found.places = places
    found.count[:] = count
    if len(found.nonzero) and fill != 0:
        found.nonzero[:] = count
    if found.total.size and fill != 0:
        found.total[:] = _multiplied(count, fill)
    if len(found.least):
        found.least[:] = fill
    if len(found.greatest):
        found.greatest[:] = fill
    return found


def whole_sums(state: Partials, dtype: np.dtype[Any]) -> Array:
    """Return sums as doubles or, of integers, as such of 64 bits; `BadRequest` if one has more."""
    if dtype.kind == "f":
        return state.sums()
    high, low = state.total
    least, most = (0, 1 << LIMB) if dtype.kind == "u" else (-(1 << (LIMB - 1)), 1 << (LIMB - 1))
    if len(high) and not (least <= int(high.min()) and int(high.max()) < most):
        raise BadRequest("A sum has more than 64 bits: ask for the mean and the count, or select less.")
    kind = np.uint64 if dtype.kind == "u" else np.int64
    return np.asarray((high.astype(kind) << kind(LIMB)) | low.astype(kind))


def _multiplied(count: NDArray[np.int64], fill: Array) -> Array:
    """Return so many times the fill value, as `total` has it; exact for integers."""
    if fill.dtype.kind == "f":
        return np.stack((count * np.float64(fill), np.zeros(len(count))))
    high, low = split_integers(fill.reshape(1))[:, 0].tolist()
    if int(count.max(initial=0)) < 1 << (LIMB - 1):
        upper, lower = count * high, count * low
        return np.stack((upper + (lower >> LIMB), lower & ((1 << LIMB) - 1)))
    products = [number * int(fill) for number in count.tolist()]
    if any(not -(1 << 94) < product < 1 << 94 for product in products):
        raise BadRequest("A sum has more than 64 bits: ask for undefined=skip, or select less.")
    return np.array(
        [[one >> LIMB for one in products], [one & ((1 << LIMB) - 1) for one in products]], np.int64
    )


def _sizes(reduction: Reduction, codes: Codes | None) -> NDArray[np.int64]:
    """Return how many elements, defined or not, each place of the result has."""
    each = prod(reduction.shape[dim] for dim in reduction.axes if dim != reduction.grouped)
    if each >= 1 << 63:
        raise TooLarge("The selection has more elements than 63 bits can count; select less.")
    if codes is None:
        return np.full(reduction.places, each, np.int64)
    sizes = np.bincount(codes[codes >= 0], minlength=reduction.groups).astype(np.int64) * each
    place = reduction.kept.index(reduction.grouped)
    after = prod(reduction.result_shape[place + 1 :])
    before = prod(reduction.result_shape[:place])
    return np.tile(np.repeat(sizes, after), before)
